//! Checks of single values, and of a configuration against its schema.

use crate::diagnostics::{Diagnostics, Path};
use crate::schema::{Attribute, Block, Mode, Nested, Nesting, Type};
use crate::url_reference::UrlReference;
use crate::value::Value;

/// A check of a known value.
pub(crate) enum Check {
    OneOf(&'static [&'static str]),
    AtLeast(i64),
    Between(i64, i64),
    MaxBytes(usize),
    NotEmpty,
    /// A URL or a URL reference; the empty string is one.
    Url,
    /// Any other check of strings.
    Text(fn(&str) -> CheckResult),
    /// Any other check of numbers.
    Number(fn(i64) -> CheckResult),
}

pub(crate) enum CheckResult {
    Passed,
    Warning { summary: String, detail: String },
    Error { summary: String, detail: String },
}

impl CheckResult {
    pub(crate) fn error(summary: impl Into<String>) -> Self {
        Self::Error { summary: summary.into(), detail: String::new() }
    }
}

impl Check {
    fn run(&self, name: &str, value: &Value) -> CheckResult {
        let refused = match (self, value) {
            (Self::OneOf(allowed), Value::Text(text)) if !allowed.contains(&text.as_str()) => {
                format!("expected {name} to be one of [{}], got {text:?}", quoted(allowed))
            }
            (Self::AtLeast(least), Value::Int(number)) if number < least => {
                format!("expected {name} to be at least ({least}), got {number}")
            }
            (Self::Between(least, most), Value::Int(number)) if !(least..=most).contains(&number) => {
                format!("expected {name} to be in the range ({least} - {most}), got {number}")
            }
            (Self::MaxBytes(most), Value::Text(text)) if text.len() > *most => {
                format!("expected {name} to have at most {most} characters, got {}", text.len())
            }
            (Self::NotEmpty, Value::Text(text)) if text.is_empty() => {
                format!("expected {name} to not be an empty string")
            }
            (Self::Url, Value::Text(text)) => match UrlReference::parse(text) {
                Ok(_) => return CheckResult::Passed,
                Err(error) => format!("invalid URL in {name}: {error}"),
            },
            (Self::Text(rule), Value::Text(text)) => return rule(text),
            (Self::Number(rule), Value::Int(number)) => return rule(*number),
            _ => return CheckResult::Passed,
        };
        CheckResult::error(refused)
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ")
}

/// Runs all checks of `block` on a configuration.
///
/// An attribute or block with an unknown part is skipped: Terraform validates again when everything is known.
pub(crate) fn config(block: &Block, config: &Value, diagnostics: &mut Diagnostics) {
    walk(block, config, &Path::default(), diagnostics);
}

fn walk(block: &Block, config: &Value, path: &Path, diagnostics: &mut Diagnostics) {
    for attribute in &block.attributes {
        let value = config.field(attribute.name);
        let path = path.attribute(attribute.name);
        if !value.is_null() {
            walk_attribute(attribute, value, config, &path, diagnostics);
        } else if attribute.mode == Mode::Required {
            // Terraform itself checks only that the argument exists.
            let detail = format!("The argument {:?} is required, but its value is null.", attribute.name);
            diagnostics.error(path, "Missing required argument", detail);
        }
    }
    for nested in &block.blocks {
        let value = config.field(nested.name);
        if value.is_known() {
            walk_nested(nested, value.items(), config, &path.attribute(nested.name), diagnostics);
        }
    }
}

fn walk_attribute(
    attribute: &Attribute,
    value: &Value,
    config: &Value,
    path: &Path,
    diagnostics: &mut Diagnostics,
) {
    if attribute.reserved {
        let detail = format!("{:?} is set by the provider and cannot be configured", attribute.name);
        diagnostics.error(path.clone(), "Invalid or unknown key", detail);
    } else if !attribute.is_configurable() {
        let detail = format!(
            "Can't configure a value for {:?}: its value will be decided automatically based on the result of applying \
             this configuration.",
            attribute.name
        );
        diagnostics.error(path.clone(), "Value for unconfigurable attribute", detail);
    } else if value.is_known() && !conflicts(attribute.name, attribute.conflicts, config, path, diagnostics) {
        value_of(attribute, value, path, diagnostics);
    }
}

fn walk_nested(nested: &Nested, items: &[Value], config: &Value, path: &Path, diagnostics: &mut Diagnostics) {
    if !items.is_empty() && conflicts(nested.name, nested.conflicts, config, path, diagnostics) {
        return;
    }
    if count(nested, items.len(), path, diagnostics) {
        for (index, item) in items.iter().enumerate() {
            let path = match nested.nesting {
                Nesting::List => path.index(index),
                Nesting::Set => path.element(),
            };
            walk(&nested.block, item, &path, diagnostics);
        }
    }
    if let Some(reason) = nested.deprecated.filter(|_| !items.is_empty()) {
        diagnostics.warning(path.clone(), "Argument is deprecated", reason);
    }
}

/// Reports the first conflicting argument that is set, too.
fn conflicts(
    name: &str,
    others: &[&str],
    config: &Value,
    path: &Path,
    diagnostics: &mut Diagnostics,
) -> bool {
    let is_set = |other: &&&str| match config.field(other) {
        Value::Null | Value::Unknown => false,
        Value::List(items) => !items.is_empty(),
        _ => true,
    };
    let Some(other) = others.iter().find(is_set) else { return false };
    let detail = format!("{name:?}: conflicts with {other}");
    diagnostics.error(path.clone(), "Conflicting configuration arguments", detail);
    true
}

/// Whether the number of blocks is allowed.
fn count(nested: &Nested, found: usize, path: &Path, diagnostics: &mut Diagnostics) -> bool {
    if nested.max > 0 && found > nested.max {
        let detail =
            format!("No more than {} {:?} blocks are allowed, {found} are given", nested.max, nested.name);
        diagnostics.error(path.clone(), "Too many list items", detail);
        return false;
    }
    if found < nested.min {
        let detail = format!("At least {} {:?} blocks are required", nested.min, nested.name);
        diagnostics.error(path.clone(), "Not enough list items", detail);
        return false;
    }
    true
}

fn value_of(attribute: &Attribute, value: &Value, path: &Path, diagnostics: &mut Diagnostics) {
    if attribute.kind == Type::Number && value.as_int().is_none() {
        let found = match value {
            Value::Float(number) => number.to_string(),
            value => value.text_or_empty().to_owned(),
        };
        let detail = "it must fit into 64 bits";
        diagnostics.error(path.clone(), format!("Attribute must be a whole number, got {found}"), detail);
        return;
    }
    for check in &attribute.checks {
        match check.run(attribute.name, value) {
            CheckResult::Passed => {}
            CheckResult::Warning { summary, detail } => diagnostics.warning(path.clone(), summary, detail),
            CheckResult::Error { summary, detail } => diagnostics.error(path.clone(), summary, detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::{Severity, Step};

    fn block() -> Block {
        Block::new(vec![
            Attribute::id(),
            Attribute::optional("size", Type::Number, "").check(Check::Between(1, 5)),
            Attribute::optional("mode", Type::Text, "").check(Check::OneOf(&["a", "b"])).conflicts(&["part"]),
            Attribute::computed("token", Type::Text, ""),
        ])
        .with(
            Nested::list(
                "part",
                "",
                Block::new(vec![Attribute::required("key", Type::Text, "").check(Check::NotEmpty)]),
            )
            .max(2)
            .deprecated("use size"),
        )
        .with(Nested::set(
            "bag",
            "",
            Block::new(vec![Attribute::required("n", Type::Number, "").check(Check::AtLeast(0))]),
        ))
    }

    fn diagnostics_of(value: Value) -> Vec<(Severity, String, Vec<Step>)> {
        let mut diagnostics = Diagnostics::default();
        config(&block(), &value, &mut diagnostics);
        diagnostics
            .items
            .into_iter()
            .map(|diagnostic| {
                (
                    diagnostic.severity,
                    format!("{} {}", diagnostic.summary, diagnostic.detail),
                    diagnostic.path.steps,
                )
            })
            .collect()
    }

    fn only(value: Value, text: &str, steps: &[Step]) {
        let found = diagnostics_of(value);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.contains(text), "{found:?}");
        assert_eq!(found[0].2, steps);
    }

    #[test]
    fn unknown_and_null_values_are_never_refused() {
        let bag = |fields: &[(&'static str, Value)]| Value::List(vec![Value::object(fields.iter().cloned())]);
        let value = |bag: Value| {
            Value::object([
                ("size", Value::Unknown),
                ("mode", Value::Null),
                ("token", Value::Null),
                ("part", Value::Unknown),
                ("bag", bag),
            ])
        };
        assert_eq!(diagnostics_of(value(bag(&[("n", Value::Unknown)]))), vec![]);
        let rest = [("n", Value::Int(-1)), ("m", Value::Unknown)];
        assert_eq!(diagnostics_of(value(bag(&rest))), vec![], "a block is looked at when all of it is known");
    }

    #[test]
    fn computed_attributes_are_refused_even_with_an_unknown_value() {
        only(Value::object([("token", Value::Unknown)]), "unconfigurable", &[Step::Attribute("token")]);
        only(Value::object([("id", Value::Unknown)]), "unknown key", &[Step::Attribute("id")]);
    }

    #[test]
    fn each_check_points_at_its_attribute() {
        only(Value::object([("size", Value::Int(6))]), "range (1 - 5)", &[Step::Attribute("size")]);
        only(Value::object([("size", Value::Float(1.5))]), "whole number", &[Step::Attribute("size")]);
        only(Value::object([("size", Value::text("1e30"))]), "whole number", &[Step::Attribute("size")]);
        only(Value::object([("mode", Value::text("c"))]), r#"one of ["a" "b"]"#, &[Step::Attribute("mode")]);
        only(Value::object([("token", Value::text("c"))]), "unconfigurable", &[Step::Attribute("token")]);
        only(Value::object([("id", Value::text("c"))]), "Invalid or unknown key", &[Step::Attribute("id")]);
        let bag = Value::List(vec![Value::object([("n", Value::Int(-1))])]);
        only(Value::object([("bag", bag)]), "at least (0)", &[Step::Attribute("bag")]);
    }

    #[test]
    fn required_arguments_are_not_null() {
        let part = Value::List(vec![Value::object([("key", Value::Null)])]);
        let steps = [Step::Attribute("part"), Step::Index(0), Step::Attribute("key")];
        let found = diagnostics_of(Value::object([("part", part)]));
        assert_eq!((found[0].0, &found[0].2[..]), (Severity::Error, &steps[..]), "{found:?}");
        assert!(found[0].1.contains("Missing required argument"), "{found:?}");
    }

    #[test]
    fn blocks_are_counted_and_checked() {
        let part = |key: &str| Value::object([("key", Value::text(key))]);
        let found = diagnostics_of(Value::object([
            ("mode", Value::text("c")),
            ("part", Value::List(vec![part("a"), part("")])),
        ]));
        let texts: Vec<_> = found.iter().map(|(_, text, _)| text.as_str()).collect();
        assert!(texts[0].contains("conflicts with part"), "{texts:?}");
        assert_eq!(found[1].2, [Step::Attribute("part"), Step::Index(1), Step::Attribute("key")]);
        assert_eq!((found[2].0, texts[2].contains("use size")), (Severity::Warning, true));
        assert_eq!(found.len(), 3, "what conflicts is not looked at further: {texts:?}");
        let found =
            diagnostics_of(Value::object([("part", Value::List(vec![part(""), part(""), part("")]))]));
        assert!(found[0].1.contains("No more than 2") && found.len() == 2, "{found:?}");
    }
}
