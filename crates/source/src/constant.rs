//! Values of expressions that refer to nothing, such as the defaults of variables.

use hcl_edit::expr::Expression;
use serde_json::Value as Json;

use crate::budget::{Budget, EvalError, Result};
use crate::eval::{AllowedReferences, Evaluator, Scope};
use crate::inputs::Inputs;
use crate::json;
use crate::module::Module;
use crate::value::Value;

/// The value of an expression without references: a string as it is, anything else as JSON, `None` for null.
///
/// # Errors
/// Why it has no value, such as a reference in it.
pub fn constant(expression: &Expression) -> std::result::Result<Option<String>, String> {
    let (module, inputs) = (Module::default(), Inputs::default());
    let evaluator = Evaluator::new(&module, &inputs);
    let value = evaluator.evaluate(expression, Scope::new(AllowedReferences::None));
    value.and_then(|value| text(&value, &evaluator.budget)).map_err(reason)
}

/// The same of a value in a file of JSON, where such strings are not templates.
///
/// # Errors
/// As [`constant`].
pub fn json_constant(json: &Json) -> std::result::Result<Option<String>, String> {
    let budget = Budget::new();
    json::convert(json, &budget).and_then(|value| text(&value, &budget)).map_err(reason)
}

fn text(value: &Value, budget: &Budget) -> Result<Option<String>> {
    match value {
        Value::Null(_) => Ok(None),
        Value::Text(text) => Ok(Some(text.as_ref().to_owned())),
        other => json::encode(other, budget).map(Some),
    }
}

fn reason(error: EvalError) -> String {
    match error {
        EvalError::Unknown(reason) => reason.as_ref().to_owned(),
        EvalError::Failed(reason) | EvalError::Unavailable(reason) => reason,
        EvalError::Exhausted => "the expression takes too long to evaluate or is nested too deep".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_evaluated_and_references_refused() {
        let value = |text: &str| constant(&text.parse().unwrap());
        for (text, expected) in [
            ("60 * 60", Some("3600")),
            ("-1.50", Some("-1.5")),
            ("1e3", Some("1000")),
            ("12345678901234567890", Some("12345678901234567890")),
            (r#""x${1 + 1}y""#, Some("x2y")),
            (r#""${true}""#, Some("true")),
            (r#""$${x} %%{y} $$$ %% $$${1}""#, Some("${x} %{y} $$$ %% $${1}")),
            (r#""$${x} ${1} $$ %%{y}""#, Some("${x} 1 $$ %{y}")),
            (r#"["$${x}", "%%{y}", "$$${1}"]"#, Some(r#"["${x}","%{y}","$${1}"]"#)),
            (r#"{ "$${k}" = "%%{v} ${1}" }"#, Some(r#"{"${k}":"%{v} 1"}"#)),
            (r#""$$$${1} %%%{if true}t $$$ %%%""#, Some("$$${1} %%{if true}t $$$ %%%")),
            ("<<-E\n  $${x}\n  %%{y} ${1}\nE", Some("${x}\n%{y} 1\n")),
            (r#"true ? "a" : "b""#, Some("a")),
            ("true ? null : null", None),
            ("1 < 2 && !false", Some("true")),
            (r#"["a", "b"][1]"#, Some("b")),
            (r#"[for i in [1, 2] : "n${i}<&>"]"#, Some(r#"["n1\u003c\u0026\u003e","n2\u003c\u0026\u003e"]"#)),
            (r#"{ b = "1", "a c" = [1.0, null] }"#, Some(r#"{"a c":[1,null],"b":"1"}"#)),
        ] {
            assert_eq!(value(text), Ok(expected.map(str::to_owned)), "{text}");
        }
        for (text, part) in [
            ("var.x", "var.x cannot be used here"),
            ("1 / 0", "infinity"),
            ("uuid()", "not available here"),
            ("[for a in range(999) : [for b in range(999) : [for c in range(999) : c]]]", "takes too long"),
        ] {
            assert!(value(text).is_err_and(|why| why.contains(part)), "{text}: {:?}", value(text));
        }
    }

    #[test]
    fn json_is_taken_as_it_is() {
        let value = |json: Json| json_constant(&json);
        assert_eq!(value(serde_json::json!("${1}")), Ok(Some("${1}".to_owned())));
        assert_eq!(value(serde_json::json!([1.0, "<"])), Ok(Some(r#"[1,"\u003c"]"#.to_owned())));
        assert_eq!(value(Json::Null), Ok(None));
    }
}
