//! The `validation` block of a parameter (terraform 3.5, step 7).

use coder_domain::go_regex;

use super::kind;
use crate::value::Value;

/// Checks a value against the block.
pub(super) fn check(rules: &Value, kind: &str, value: &str, previous: Option<&str>) -> Result<(), String> {
    let text = |name| rules.field(name).text_or_empty();
    if kind != "number" {
        for bound in ["min", "max"] {
            if !rules.field(bound).is_null() {
                return Err(format!("a {bound} cannot be specified for a {kind} type"));
            }
        }
        if !text("monotonic").is_empty() {
            return Err(format!(
                "monotonic validation can only be specified for number types, not {kind} types"
            ));
        }
    }
    if kind != "string" && !text("regex").is_empty() {
        return Err(format!("a regex cannot be specified for a {kind} type"));
    }
    match kind {
        "bool" if value != "true" && value != "false" => {
            Err(r#"boolean value can be either "true" or "false""#.to_owned())
        }
        "string" if !text("regex").is_empty() => check_regex(text("regex"), text("error"), value),
        "number" => check_number(rules, value, previous),
        "list(string)" if kind::list(value).is_none() => {
            Err(format!("value {value:?} is not valid list of strings: write it as a JSON array"))
        }
        _ => Ok(()),
    }
}

fn check_regex(regex: &str, error: &str, value: &str) -> Result<(), String> {
    let compiled =
        go_regex::compile(regex).map_err(|problem| format!("compile regex {regex:?}: {problem}"))?;
    if error.is_empty() {
        return Err("an error must be specified with a regex validation".to_owned());
    }
    if compiled.is_match(value) {
        return Ok(());
    }
    Err(format!("{error} (value {value:?} does not match {regex:?})"))
}

fn check_number(rules: &Value, value: &str, previous: Option<&str>) -> Result<(), String> {
    let (min, max) = (rules.field("min").as_int(), rules.field("max").as_int());
    let message = |standard: String| match rules.field("error").text_or_empty() {
        "" => standard,
        error => {
            let shown = |bound: Option<i64>| bound.unwrap_or_default().to_string();
            error.replace("{min}", &shown(min)).replace("{max}", &shown(max)).replace("{value}", value)
        }
    };
    let number: i64 = value
        .parse()
        .map_err(|_| message(format!("value {value:?} is not a number: a whole one is needed")))?;
    if let Some(min) = min.filter(|min| number < *min) {
        return Err(message(format!("value {number} is less than the minimum {min}")));
    }
    if let Some(max) = max.filter(|max| number > *max) {
        return Err(message(format!("value {number} is more than the maximum {max}")));
    }
    let monotonic = rules.field("monotonic").text_or_empty();
    if !matches!(monotonic, "" | "increasing" | "decreasing") {
        return Err(format!(
            r#"number monotonicity can be either "increasing" or "decreasing", not {monotonic:?}"#
        ));
    }
    let Some(previous) = previous.and_then(|previous| previous.parse::<i64>().ok()) else { return Ok(()) };
    match monotonic {
        "increasing" if number < previous => Err(format!(
            "parameter value '{number}' must be equal or greater than previous value: {previous}"
        )),
        "decreasing" if number > previous => {
            Err(format!("parameter value '{number}' must be equal or lower than previous value: {previous}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(fields: &[(&'static str, Value)]) -> Value {
        Value::object(fields.iter().cloned())
    }

    fn fails(fields: &[(&'static str, Value)], kind: &str, value: &str, previous: Option<&str>, text: &str) {
        let error = check(&rules(fields), kind, value, previous).expect_err(text);
        assert!(error.contains(text), "{error:?} should contain {text:?}");
    }

    #[test]
    fn bounds_count_when_they_are_zero() {
        let bounds = [("min", Value::Int(0)), ("max", Value::Int(0))];
        assert_eq!(check(&rules(&bounds), "number", "0", None), Ok(()));
        fails(&bounds, "number", "1", None, "more than the maximum 0");
        fails(&bounds, "number", "-1", None, "less than the minimum 0");
        fails(&bounds, "number", "0.5", None, "is not a number");
        let error = [("max", Value::Int(5)), ("error", Value::text("{value} is over {max} or under {min}"))];
        fails(&error, "number", "+9", None, "+9 is over 5 or under 0");
        fails(&error, "number", "many", None, "many is over 5 or under 0");
    }

    #[test]
    fn rules_of_another_type_are_refused() {
        fails(&[("min", Value::Int(0))], "string", "a", None, "a min cannot be specified for a string type");
        fails(&[("max", Value::Int(0))], "bool", "true", None, "a max cannot be specified for a bool type");
        fails(
            &[("regex", Value::text("a"))],
            "number",
            "1",
            None,
            "a regex cannot be specified for a number type",
        );
        fails(
            &[("monotonic", Value::text("increasing"))],
            "string",
            "a",
            None,
            "only be specified for number types",
        );
    }

    #[test]
    fn monotonic_numbers_compare_with_a_whole_previous_value() {
        let rising = [("monotonic", Value::text("increasing"))];
        let falling = [("monotonic", Value::text("decreasing"))];
        for (rules_of, value, previous) in [
            (&rising, "2", Some("2")),
            (&rising, "3", Some("2")),
            (&falling, "1", Some("2")),
            (&rising, "1", Some("x")),
        ] {
            assert_eq!(check(&rules(rules_of), "number", value, previous), Ok(()));
        }
        fails(&rising, "number", "1", Some("2"), "equal or greater than previous value: 2");
        fails(&falling, "number", "3", Some("2"), "equal or lower than previous value: 2");
        fails(&[("monotonic", Value::text("sideways"))], "number", "3", None, "either");
    }

    #[test]
    fn expressions_need_an_error_text() {
        let with = [("regex", Value::text("^a+$")), ("error", Value::text("only a"))];
        assert_eq!(check(&rules(&with), "string", "aa", None), Ok(()));
        fails(&with, "string", "b", None, "only a (value \"b\" does not match \"^a+$\")");
        fails(&with[..1], "string", "aa", None, "an error must be specified");
        fails(
            &[("regex", Value::text("(")), ("error", Value::text("e"))],
            "string",
            "a",
            None,
            "compile regex",
        );
    }

    #[test]
    fn bools_and_lists() {
        assert_eq!(check(&rules(&[]), "bool", "true", None), Ok(()));
        fails(&[], "bool", "T", None, "either \"true\" or \"false\"");
        assert_eq!(check(&rules(&[]), "list(string)", "[]", None), Ok(()));
        fails(&[], "list(string)", "a", None, "not valid list of strings");
    }
}
