//! Rich parameters: which value a build uses, and whether it is allowed (http-api 7.1).

use std::collections::BTreeMap;

use crate::go_regex;
use serde::{Deserialize, Serialize};

use crate::build::Transition;

/// One parameter of a template version, as the import job reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Its name; unique in a version.
    pub name: String,
    /// `string`, `number`, `bool` or `list(string)`.
    pub kind: String,
    /// Whether a later build may change it.
    pub mutable: bool,
    /// Used if no value is given; the empty text is a value like any other.
    pub default_value: String,
    /// Whether a value must be given because the template has no default.
    pub required: bool,
    /// Whether the value is used for one build only and never carried over.
    pub ephemeral: bool,
    /// The allowed values; empty means any.
    pub options: Vec<String>,
    /// Go regular expression that a string must match; empty means none.
    pub validation_regex: String,
    /// The error if the expression does not match.
    pub validation_error: String,
    /// Least number.
    pub validation_min: Option<i32>,
    /// Largest number.
    pub validation_max: Option<i32>,
    /// `increasing`, `decreasing` or empty.
    pub validation_monotonic: String,
}

/// A refused value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// The parameter.
    pub field: String,
    /// What is wrong and what to do.
    pub detail: String,
}

/// Where values come from, by precedence: preset, request, last build, default.
#[derive(Clone, Debug, Default)]
pub struct Sources<'a> {
    /// From the chosen preset.
    pub preset: BTreeMap<&'a str, &'a str>,
    pub request: BTreeMap<&'a str, &'a str>,
    /// From the workspace's last build; none for the first build.
    pub last: Option<BTreeMap<&'a str, &'a str>>,
}

/// The official error for a required parameter without a value.
pub const MISSING_VALUE_ERROR: &str = "Required parameter not provided; parameter value is null";

impl Definition {
    /// Whether the parameter stays without a value if none is given: its default is null. It is stored as the empty text,
    /// which is not a valid value of such a parameter.
    #[must_use]
    pub fn may_stay_unset(&self) -> bool {
        let may_be_empty =
            self.kind == "string" && (self.options.is_empty() || self.options.contains(&String::new()));
        !self.required && self.default_value.is_empty() && !may_be_empty
    }
}

/// Returns the values of the parameters in the order of `definitions`, or all errors. A parameter that stays without a
/// value is omitted.
///
/// Stop and delete builds reuse the workspace's values: they are never refused for a value that was accepted before.
pub fn resolve(
    definitions: &[Definition],
    transition: Transition,
    sources: &Sources<'_>,
) -> Result<Vec<(String, String)>, Vec<InvalidValue>> {
    let mut values = Vec::with_capacity(definitions.len());
    let mut invalid = Vec::new();
    let known = |name: &str| definitions.iter().any(|definition| definition.name == name);
    for name in sources.request.keys().filter(|name| !known(name)) {
        invalid.push(InvalidValue {
            field: (*name).to_owned(),
            detail: format!("parameter {name:?} is not part of this template version"),
        });
    }
    for definition in definitions {
        match resolve_one(definition, transition, sources) {
            Ok(value) => values.extend(value.map(|value| (definition.name.clone(), value))),
            Err(detail) => invalid.push(InvalidValue { field: definition.name.clone(), detail }),
        }
    }
    if invalid.is_empty() { Ok(values) } else { Err(invalid) }
}

fn resolve_one(
    definition: &Definition,
    transition: Transition,
    sources: &Sources<'_>,
) -> Result<Option<String>, String> {
    let name = definition.name.as_str();
    let given = sources.preset.get(name).or_else(|| sources.request.get(name)).copied();
    let last = sources.last.as_ref().and_then(|last| last.get(name)).copied();
    // Builds before a parameter could stay unset stored the empty text for it.
    let last = last.filter(|last| !(last.is_empty() && definition.may_stay_unset()));
    let carried = if definition.ephemeral { None } else { last };
    let default = Some(definition.default_value.as_str()).filter(|_| !definition.may_stay_unset());
    if given.is_none() && transition != Transition::Start {
        return Ok(carried.or(default).map(str::to_owned));
    }
    if let (Some(given), Some(last)) = (given, last)
        && !definition.mutable
        && !definition.ephemeral
        && given != last
    {
        return Err(format!("parameter {name:?} is not mutable: it keeps the value of the first build"));
    }
    let value = match given.or(carried) {
        Some(value) => value,
        None if definition.required => return Err(MISSING_VALUE_ERROR.to_owned()),
        None => match default {
            Some(default) => default,
            None => return Ok(None),
        },
    };
    validate(definition, value, last)?;
    Ok(Some(value.to_owned()))
}

/// Checks one value against a definition; `last` is the value of the previous build, for monotonic numbers.
///
/// Accepts what the provider accepts at a plan (terraform 3.5); otherwise a template's own default could be refused.
pub fn validate(definition: &Definition, value: &str, last: Option<&str>) -> Result<(), String> {
    match definition.kind.as_str() {
        "number" => number(definition, value, last)?,
        "bool" if !BOOLS.contains(&value) => {
            return Err(format!("{value:?} is not a bool: use \"true\" or \"false\""));
        }
        "list(string)" => return list(definition, value),
        "string" if !definition.validation_regex.is_empty() => matches_regex(definition, value)?,
        _ => {}
    }
    one_of(definition, value)
}

/// The texts that Terraform's provider accepts as booleans.
const BOOLS: [&str; 12] = ["true", "false", "1", "t", "T", "TRUE", "True", "0", "f", "F", "FALSE", "False"];

fn is_option(definition: &Definition, value: &str) -> bool {
    definition.options.is_empty() || definition.options.iter().any(|option| option == value)
}

fn one_of(definition: &Definition, value: &str) -> Result<(), String> {
    if is_option(definition, value) {
        return Ok(());
    }
    Err(format!("{value:?} is not an option: choose one of {}", definition.options.join(", ")))
}

/// Any number is valid, but only whole numbers can be compared with bounds and with the previous value.
fn number(definition: &Definition, value: &str, last: Option<&str>) -> Result<(), String> {
    let (min, max) = (definition.validation_min, definition.validation_max);
    if min.is_none() && max.is_none() && definition.validation_monotonic.is_empty() {
        return value.parse::<f64>().map(drop).map_err(|_| format!("{value:?} is not a number"));
    }
    let message = |standard: String| {
        if definition.validation_error.is_empty() {
            return standard;
        }
        let bound = |bound: Option<i32>| bound.map(|bound| bound.to_string()).unwrap_or_default();
        definition
            .validation_error
            .replace("{min}", &bound(min))
            .replace("{max}", &bound(max))
            .replace("{value}", value)
    };
    let parse = |text: &str| text.parse::<i64>();
    let number = parse(value).map_err(|_| message(format!("{value:?} is not a whole number")))?;
    if let Some(min) = min.filter(|min| number < i64::from(*min)) {
        return Err(message(format!("value {number} is less than the minimum {min}")));
    }
    if let Some(max) = max.filter(|max| number > i64::from(*max)) {
        return Err(message(format!("value {number} is more than the maximum {max}")));
    }
    let Some(Ok(last)) = last.map(parse) else { return Ok(()) };
    match definition.validation_monotonic.as_str() {
        "increasing" if number < last => {
            Err(format!("value {number} must be equal to or greater than the previous value {last}"))
        }
        "decreasing" if number > last => {
            Err(format!("value {number} must be equal to or lower than the previous value {last}"))
        }
        _ => Ok(()),
    }
}

fn matches_regex(definition: &Definition, value: &str) -> Result<(), String> {
    let pattern = &definition.validation_regex;
    let regex = go_regex::compile(pattern)
        .map_err(|error| format!("the template's regular expression cannot be used: {error}"))?;
    if regex.is_match(value) {
        return Ok(());
    }
    if definition.validation_error.is_empty() {
        Err(format!("{value:?} does not match the expression {pattern:?}"))
    } else {
        Err(format!("{} (value {value:?} does not match {pattern:?})", definition.validation_error))
    }
}

/// A list is written as a JSON array of strings; with options, either the whole of it or each element must be one.
fn list(definition: &Definition, value: &str) -> Result<(), String> {
    let elements: Vec<String> =
        serde_json::from_str(value).map_err(|_| format!("{value:?} is not a JSON array of strings"))?;
    if is_option(definition, value) {
        return Ok(());
    }
    elements.iter().try_for_each(|element| one_of(definition, element))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(kind: &str) -> Definition {
        Definition { name: "p".to_owned(), kind: kind.to_owned(), mutable: true, ..Definition::default() }
    }

    fn sources<'a>(request: &[(&'a str, &'a str)], last: Option<&[(&'a str, &'a str)]>) -> Sources<'a> {
        Sources {
            preset: BTreeMap::new(),
            request: request.iter().copied().collect(),
            last: last.map(|last| last.iter().copied().collect()),
        }
    }

    fn start(definition: &Definition, sources: &Sources<'_>) -> Result<String, String> {
        resolve(std::slice::from_ref(definition), Transition::Start, sources)
            .map(|values| values.into_iter().next().map_or_else(|| "(unset)".to_owned(), |(_, value)| value))
            .map_err(|mut invalid| invalid.remove(0).detail)
    }

    #[test]
    fn values_come_from_preset_request_last_build_and_default_in_this_order() {
        let mut parameter = definition("string");
        parameter.default_value = "default".to_owned();
        let mut from = sources(&[("p", "request")], Some(&[("p", "last")]));
        from.preset.insert("p", "preset");
        assert_eq!(start(&parameter, &from), Ok("preset".to_owned()));
        from.preset.clear();
        assert_eq!(start(&parameter, &from), Ok("request".to_owned()));
        from.request.clear();
        assert_eq!(start(&parameter, &from), Ok("last".to_owned()));
        assert_eq!(start(&parameter, &sources(&[], None)), Ok("default".to_owned()));
        let emptied = sources(&[], Some(&[("p", "")]));
        assert_eq!(start(&parameter, &emptied), Ok(String::new()), "an empty text that was chosen stays");
        parameter.ephemeral = true;
        assert_eq!(
            start(&parameter, &from),
            Ok("default".to_owned()),
            "ephemeral values are not carried over"
        );
    }

    #[test]
    fn required_immutable_and_unknown_parameters() {
        let mut parameter = definition("string");
        parameter.required = true;
        assert!(start(&parameter, &sources(&[], None)).is_err());
        parameter.mutable = false;
        assert!(start(&parameter, &sources(&[("p", "b")], Some(&[("p", "a")]))).is_err());
        assert_eq!(start(&parameter, &sources(&[("p", "a")], Some(&[("p", "a")]))), Ok("a".to_owned()));
        assert_eq!(start(&parameter, &sources(&[("p", "a")], None)), Ok("a".to_owned()));
        let unknown = resolve(&[parameter], Transition::Start, &sources(&[("p", "a"), ("q", "b")], None));
        assert_eq!(unknown.map_err(|invalid| invalid[0].field.clone()), Err("q".to_owned()));
    }

    #[test]
    fn a_required_value_that_is_missing_is_refused_in_the_official_words() {
        for kind in ["string", "number", "bool", "list(string)"] {
            let parameter = Definition { required: true, ..definition(kind) };
            assert_eq!(start(&parameter, &sources(&[], None)), Err(MISSING_VALUE_ERROR.to_owned()), "{kind}");
            assert_eq!(
                start(&parameter, &sources(&[], Some(&[]))),
                Err(MISSING_VALUE_ERROR.to_owned()),
                "{kind}"
            );
        }
        let text = Definition { required: true, ..definition("string") };
        assert_eq!(
            start(&text, &sources(&[("p", "")], None)),
            Ok(String::new()),
            "the empty text is a value"
        );
    }

    #[test]
    fn an_empty_default_is_a_value_where_the_parameter_can_have_it() {
        assert_eq!(start(&definition("string"), &sources(&[], None)), Ok(String::new()));
        let options = |all: &[&str]| all.iter().map(|option| (*option).to_owned()).collect();
        let with_empty = Definition { options: options(&["", "b"]), ..definition("string") };
        assert_eq!(start(&with_empty, &sources(&[], None)), Ok(String::new()));
        let mut pattern = definition("string");
        pattern.validation_regex = "^a*$".to_owned();
        assert_eq!(start(&pattern, &sources(&[], None)), Ok(String::new()));
    }

    #[test]
    fn a_null_default_leaves_a_parameter_unset_rather_than_empty() {
        let options = vec!["eu".to_owned(), "us".to_owned()];
        let region = Definition { options: options.clone(), ..definition("string") };
        let many = Definition { options, ..definition("list(string)") };
        for parameter in [region, many, definition("number"), definition("bool"), definition("list(string)")]
        {
            let unset = Ok("(unset)".to_owned());
            let kind = &parameter.kind;
            assert_eq!(start(&parameter, &sources(&[], None)), unset, "{kind}");
            assert!(start(&parameter, &sources(&[("p", "")], None)).is_err(), "{kind} given as empty");
            let chosen = sources(&[], Some(&[("p", "eu")]));
            let carried = resolve(std::slice::from_ref(&parameter), Transition::Stop, &chosen);
            assert_eq!(carried, Ok(vec![("p".to_owned(), "eu".to_owned())]), "{kind} chosen before");
            let was_empty = sources(&[], Some(&[("p", "")]));
            assert_eq!(start(&parameter, &was_empty), unset, "{kind} stored as empty before");
            for transition in [Transition::Stop, Transition::Delete] {
                let values = resolve(std::slice::from_ref(&parameter), transition, &was_empty);
                assert_eq!(values, Ok(Vec::new()), "{kind}");
            }
            let fixed = Definition { mutable: false, ..parameter.clone() };
            assert_eq!(start(&fixed, &was_empty), unset, "{kind}");
            let ephemeral = Definition { ephemeral: true, ..parameter };
            assert_eq!(start(&ephemeral, &was_empty), unset);
        }
        let region = Definition { options: vec!["eu".to_owned()], mutable: false, ..definition("string") };
        let chosen = sources(&[("p", "eu")], Some(&[]));
        assert_eq!(start(&region, &chosen), Ok("eu".to_owned()), "an unset value can still be chosen");
        let mut preset = sources(&[], None);
        preset.preset.insert("p", "eu");
        assert_eq!(start(&region, &preset), Ok("eu".to_owned()));
    }

    #[test]
    fn lists_and_numbers_start_from_their_defaults() {
        let chosen = Definition {
            options: vec!["a".to_owned(), "b".to_owned()],
            default_value: "[]".to_owned(),
            ..definition("list(string)")
        };
        assert_eq!(start(&chosen, &sources(&[], None)), Ok("[]".to_owned()), "nothing of a multi-select");
        assert_eq!(start(&chosen, &sources(&[("p", "[]")], Some(&[("p", r#"["a"]"#)]))), Ok("[]".to_owned()));
        let rising = Definition {
            validation_monotonic: "increasing".to_owned(),
            default_value: "3".to_owned(),
            ..definition("number")
        };
        assert_eq!(start(&rising, &sources(&[], None)), Ok("3".to_owned()));
        assert!(start(&rising, &sources(&[("p", "2")], Some(&[("p", "3")]))).is_err());
        assert_eq!(start(&rising, &sources(&[("p", "4")], Some(&[("p", "")]))), Ok("4".to_owned()));
    }

    #[test]
    fn stop_and_delete_keep_what_is_there() {
        let mut parameter = definition("number");
        parameter.validation_min = Some(10);
        parameter.required = true;
        for transition in [Transition::Stop, Transition::Delete] {
            let values =
                resolve(std::slice::from_ref(&parameter), transition, &sources(&[], Some(&[("p", "1")])));
            assert_eq!(values, Ok(vec![("p".to_owned(), "1".to_owned())]));
        }
    }

    #[test]
    fn numbers() {
        let mut parameter = definition("number");
        parameter.validation_min = Some(0);
        parameter.validation_max = Some(5);
        let check = |value: &str, last: Option<&str>| validate(&parameter, value, last).is_ok();
        assert!(check("0", None) && check("5", None));
        assert!(!check("-1", None) && !check("6", None) && !check("x", None) && !check("1.5", None));
        let one_bound = |min, max, monotonic: &str| {
            let (validation_min, validation_max) = (min, max);
            let validation_monotonic = monotonic.to_owned();
            let definition =
                Definition { validation_min, validation_max, validation_monotonic, ..definition("number") };
            ["-1", "6", "1.5"].map(|value| validate(&definition, value, Some("6")).is_ok())
        };
        assert_eq!(one_bound(Some(0), None, ""), [false, true, false]);
        assert_eq!(one_bound(None, Some(5), ""), [true, false, false]);
        assert_eq!(one_bound(None, None, "increasing"), [false, true, false]);
        assert_eq!(one_bound(None, None, "decreasing"), [true, true, false]);
        let mut rising = parameter.clone();
        rising.validation_monotonic = "increasing".to_owned();
        assert!(validate(&rising, "3", Some("3")).is_ok() && validate(&rising, "2", Some("3")).is_err());
        rising.validation_error = "between {min} and {max}, not {value}".to_owned();
        assert_eq!(validate(&rising, "9", None), Err("between 0 and 5, not 9".to_owned()));
        assert_eq!(validate(&rising, "x", None), Err("between 0 and 5, not x".to_owned()));
        let error = validate(&rising, "2", Some("3")).map_err(|error| error.contains("previous value 3"));
        assert_eq!(error, Err(true), "the template's text is about the bounds");
        let free = definition("number");
        for (value, wanted) in [("0.5", true), ("1e3", true), ("-2", true), ("x", false), ("0,5", false)] {
            assert_eq!(validate(&free, value, Some("9")).is_ok(), wanted, "{value}");
        }
    }

    #[test]
    fn strings_bools_options_and_lists() {
        let mut parameter = definition("string");
        parameter.validation_regex = "^a+$".to_owned();
        assert!(validate(&parameter, "aa", None).is_ok() && validate(&parameter, "b", None).is_err());
        assert!(validate(&definition("bool"), "yes", None).is_err());
        let mut choice = definition("string");
        choice.options = vec!["a".to_owned(), "b".to_owned()];
        assert!(validate(&choice, "a", None).is_ok() && validate(&choice, "c", None).is_err());
        choice.kind = "list(string)".to_owned();
        assert!(validate(&choice, r#"["a", "b"]"#, None).is_ok());
        assert!(validate(&choice, r#"["c"]"#, None).is_err() && validate(&choice, "a", None).is_err());
        choice.options = vec![r#"["a","b"]"#.to_owned(), "[]".to_owned()];
        assert!(validate(&choice, r#"["a","b"]"#, None).is_ok(), "a list as one option");
        assert!(validate(&choice, r#"["a"]"#, None).is_err());
        assert!(validate(&definition("bool"), "1", None).is_ok());
    }
}
