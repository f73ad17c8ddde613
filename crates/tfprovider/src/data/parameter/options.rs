//! The options of a parameter: what they must be, and what a value must be when there are some.

use std::collections::BTreeSet;

use super::{ParameterError, kind};
use crate::diagnostics::Path;
use crate::value::Value;

/// Name and value of one option.
pub(super) struct Choice<'a> {
    name: &'a str,
    value: &'a str,
}

pub(super) fn read(config: &Value) -> Vec<Choice<'_>> {
    let choice = |item| Choice { name: text(item, "name"), value: text(item, "value") };
    config.field("option").items().iter().map(choice).collect()
}

fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item.field(name).text_or_empty()
}

/// Names and values are unique, and values have the right type.
pub(super) fn check(options: &[Choice<'_>], option_kind: &str) -> Result<(), Vec<ParameterError>> {
    let (mut names, mut values) = (BTreeSet::new(), BTreeSet::new());
    let mut misfits = Vec::new();
    for (index, Choice { name, value }) in options.iter().enumerate() {
        let at = |attribute| Path::of("option").index(index).attribute(attribute);
        if names.contains(name) {
            let detail = format!("multiple options found with the same name {name:?}");
            return Err(vec![ParameterError::new("Option names must be unique", detail).at(at("name"))]);
        }
        if values.contains(value) {
            let detail = format!("multiple options found with the same value {value:?}");
            return Err(vec![ParameterError::new("Option values must be unique", detail).at(at("value"))]);
        }
        if kind::fits(option_kind, value) {
            names.insert(*name);
            values.insert(*value);
        } else {
            let summary = format!("Option {name:?} with value={value:?} is not of type {option_kind:?}");
            misfits
                .push(ParameterError::new(summary, kind::type_mismatch(option_kind, value)).at(at("value")));
        }
    }
    if misfits.is_empty() { Ok(()) } else { Err(misfits) }
}

/// The value is an option; with several to be chosen, each element of it is.
pub(super) fn check_value(
    options: &[Choice<'_>],
    kind: &str,
    form_type: &str,
    value: &str,
    title: &str,
) -> Result<(), ParameterError> {
    let known = |value: &str| options.iter().any(|option| option.value == value);
    let all: Vec<_> = options.iter().map(|option| option.value).collect();
    let all = all.join(", ");
    if kind == "list(string)" && form_type == "multi-select" {
        let summary =
            format!("With type list(string), {} must be a JSON list of strings", title.to_lowercase());
        let elements = kind::list(value)
            .ok_or_else(|| ParameterError::new(summary, kind::type_mismatch(kind, value)))?;
        let missing: Vec<_> = elements.iter().filter(|element| !known(element)).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        let detail = format!("values {missing:?} of {value:?} are missing from the options: {all}");
        return Err(ParameterError::new(format!("{title}s must be a valid option"), detail));
    }
    if known(value) {
        return Ok(());
    }
    let hint = if value.is_empty() { ". The value is empty, did you forget to set it?" } else { "" };
    let detail = format!("the value {value:?} must be defined as one of options: {all}");
    Err(ParameterError::new(format!("{title} must be a valid option{hint}"), detail))
}
