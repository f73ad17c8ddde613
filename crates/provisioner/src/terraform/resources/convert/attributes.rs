//! Typed access to the attributes of a resource as Terraform prints them.

use serde_json::{Map, Value};

use crate::terraform::resources::state::Resource;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("decode {address} attributes: {attribute} is not {wanted}")]
pub(crate) struct DecodeError {
    address: String,
    attribute: String,
    wanted: &'static str,
}

/// The attributes of a resource, or of a block in it.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    address: &'a str,
    values: Option<&'a Map<String, Value>>,
}

impl<'a> Attributes<'a> {
    pub(crate) fn of(resource: &'a Resource) -> Self {
        Self { address: &resource.address, values: resource.values() }
    }

    fn error(&self, attribute: &str, wanted: &'static str) -> DecodeError {
        DecodeError { address: self.address.to_owned(), attribute: attribute.to_owned(), wanted }
    }

    /// The value by case-insensitive name; null counts as missing (terraform 4.2).
    pub(crate) fn value(&self, name: &str) -> Option<&'a Value> {
        let values = self.values?;
        let found = values.get(name).or_else(|| {
            values.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        })?;
        (!found.is_null()).then_some(found)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.is_some_and(|values| values.keys().any(|key| key.eq_ignore_ascii_case(name)))
    }

    pub(crate) fn string(&self, name: &str) -> Result<String, DecodeError> {
        match self.value(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(self.error(name, "a string")),
        }
    }

    /// The value when it is a string; anything else counts as missing.
    pub(crate) fn string_if_any(&self, name: &str) -> Option<&'a str> {
        self.value(name).and_then(Value::as_str)
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<bool, DecodeError> {
        match self.value(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.error(name, "a bool")),
        }
    }

    /// A number truncated to an integer.
    pub(crate) fn integer(&self, name: &str) -> Result<i64, DecodeError> {
        match self.value(name) {
            None => Ok(0),
            Some(Value::Number(number)) => Ok(whole(number)),
            Some(_) => Err(self.error(name, "a number")),
        }
    }

    /// A number truncated to an integer and clamped to 32 bits.
    pub(crate) fn small_integer(&self, name: &str) -> Result<i32, DecodeError> {
        let value = self.integer(name)?;
        Ok(i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX }))
    }

    pub(crate) fn string_map(&self, name: &str) -> Result<Vec<(String, String)>, DecodeError> {
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(key, value)| match value {
                    Value::Null => Ok((key.clone(), String::new())),
                    Value::String(text) => Ok((key.clone(), text.clone())),
                    _ => Err(self.error(name, "a map of strings")),
                })
                .collect(),
            Some(_) => Err(self.error(name, "a map of strings")),
        }
    }

    /// The nested blocks of that name, in order.
    pub(crate) fn blocks(&self, name: &str) -> Result<Vec<Attributes<'a>>, DecodeError> {
        let block = |value: &'a Value| match value {
            Value::Object(map) => Ok(Attributes { address: self.address, values: Some(map) }),
            Value::Null => Ok(Attributes { address: self.address, values: None }),
            _ => Err(self.error(name, "a block")),
        };
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(block).collect(),
            Some(_) => Err(self.error(name, "a list of blocks")),
        }
    }
}

fn whole(number: &serde_json::Number) -> i64 {
    number.as_i64().unwrap_or_else(|| {
        // Truncation is the documented rule; values out of range saturate.
        #[expect(clippy::cast_possible_truncation, reason = "saturating cast is wanted")]
        let value = number.as_f64().unwrap_or(0.0) as i64;
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(values: &str) -> Resource {
        serde_json::from_str(&format!(
            r#"{{"address":"coder_agent.a","mode":"managed","type":"coder_agent","name":"a","values":{values}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn missing_null_case_and_truncation() {
        let resource = resource(r#"{"OS":"linux","n":3.9,"x":null}"#);
        let attributes = Attributes::of(&resource);
        assert_eq!(attributes.string("os").unwrap(), "linux");
        assert_eq!(attributes.string("x").unwrap(), "");
        assert_eq!(attributes.string("y").unwrap(), "");
        assert_eq!(attributes.integer("n").unwrap(), 3);
        assert!(attributes.has("x") && !attributes.has("y"));
    }

    #[test]
    fn wrong_kind_names_resource_and_attribute() {
        let resource = resource(r#"{"order":"first"}"#);
        let error = Attributes::of(&resource).integer("order").unwrap_err();
        assert_eq!(error.to_string(), "decode coder_agent.a attributes: order is not a number");
    }
}
