//! Upgrades stored state to the current schema.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::schema::{Block, Schema, Type};
use crate::value::Value;

/// Why a stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the state was written by a newer provider (schema version {found}, this one knows {known})")]
    Newer { found: i64, known: i64 },
    #[error("the state is in the format of Terraform 0.11 and older: run terraform 0.12 or newer on it once")]
    Flatmap,
    #[error("the state is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("the stored value of {0:?} does not have the type of the schema")]
    Kind(&'static str),
}

/// Reads the stored JSON of any version up to the current one. Fields that the schema does not know are dropped, and
/// missing ones get their default, so that a new attribute forces no replacement.
pub(crate) fn upgrade(schema: &Schema, version: i64, json: &[u8]) -> Result<Value, Error> {
    if version > schema.version {
        return Err(Error::Newer { found: version, known: schema.version });
    }
    if json.is_empty() {
        return Err(Error::Flatmap);
    }
    let json: Json = serde_json::from_slice(json).map_err(Error::NotJson)?;
    if json.is_null() { Ok(Value::Null) } else { read_block(&schema.block, &json) }
}

fn read_block(block: &Block, json: &Json) -> Result<Value, Error> {
    let mut fields = BTreeMap::new();
    for attribute in &block.attributes {
        let value = match (json.get(attribute.name), &attribute.default) {
            (None, Some(default)) => default.clone(),
            (found, _) => {
                read(attribute.kind, found.unwrap_or(&Json::Null)).ok_or(Error::Kind(attribute.name))?
            }
        };
        fields.insert(attribute.name.to_owned(), value);
    }
    for nested in &block.blocks {
        let items = match &json[nested.name] {
            Json::Null => &[],
            Json::Array(items) => items.as_slice(),
            _ => return Err(Error::Kind(nested.name)),
        };
        let items = items.iter().map(|item| read_block(&nested.block, item)).collect::<Result<_, _>>()?;
        fields.insert(nested.name.to_owned(), Value::List(items));
    }
    Ok(Value::Object(fields))
}

/// Converts scalars as Terraform does.
fn read(kind: Type, json: &Json) -> Option<Value> {
    Some(match (kind, json) {
        (_, Json::Null) => Value::Null,
        (Type::Text, Json::String(text)) => Value::text(text.as_str()),
        (Type::Text, Json::Bool(_) | Json::Number(_)) => Value::text(json.to_string()),
        (Type::Number, Json::Number(number)) => number_of(number.as_i64(), number.as_f64())?,
        (Type::Number, Json::String(text)) => number_of(text.parse().ok(), text.parse().ok())?,
        (Type::Bool, Json::Bool(yes)) => Value::Bool(*yes),
        (Type::Bool, Json::String(text)) => Value::Bool(text.parse().ok()?),
        (Type::TextMap, Json::Object(fields)) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| Some((name.clone(), read(Type::Text, value)?)))
                .collect::<Option<_>>()?,
        ),
        (Type::TextList, Json::Array(items)) => {
            Value::List(items.iter().map(|item| read(Type::Text, item)).collect::<Option<_>>()?)
        }
        (Type::ObjectList(names), Json::Array(items)) => {
            let object = |item: &Json| {
                let fields = names.iter().map(|name| Some((*name, read(Type::Text, &item[*name])?)));
                Some(Value::object(fields.collect::<Option<Vec<_>>>()?))
            };
            Value::List(items.iter().map(object).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

fn number_of(whole: Option<i64>, float: Option<f64>) -> Option<Value> {
    whole.map(Value::Int).or(float.map(Value::Float))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Attribute, Nested};

    fn schema() -> Schema {
        let part = Block::new(vec![Attribute::required("key", Type::Text, "")]);
        let block = Block::new(vec![
            Attribute::optional("name", Type::Text, ""),
            Attribute::optional("size", Type::Number, ""),
            Attribute::optional("on", Type::Bool, ""),
            Attribute::optional("env", Type::TextMap, ""),
            Attribute::optional("mode", Type::Text, "").default(Value::text("auto")),
        ])
        .with(Nested::list("part", "", part));
        Schema { version: 1, block }
    }

    #[test]
    fn unknown_fields_are_dropped_and_missing_ones_have_their_default() {
        let json = br#"{"size": "5", "on": true, "login_before_ready": false, "env": {"A": "b"}, "part": [{"key": "k", "x": 1}]}"#;
        let state = upgrade(&schema(), 0, json).expect("a state");
        let part = Value::List(vec![Value::object([("key", Value::text("k"))])]);
        assert!(
            state
                == Value::object([
                    ("name", Value::Null),
                    ("size", Value::Int(5)),
                    ("on", Value::Bool(true)),
                    ("env", Value::object([("A", Value::text("b"))])),
                    ("mode", Value::text("auto")),
                    ("part", part),
                ])
        );
    }

    #[test]
    fn newer_states_and_wrong_types_are_refused() {
        let refused =
            |version, json: &str| upgrade(&schema(), version, json.as_bytes()).expect_err("an error");
        assert!(matches!(refused(2, "{}"), Error::Newer { found: 2, known: 1 }));
        assert!(matches!(refused(1, ""), Error::Flatmap));
        assert!(matches!(refused(1, "{"), Error::NotJson(_)));
        assert!(matches!(refused(1, r#"{"env": 1}"#), Error::Kind("env")));
        assert!(matches!(refused(1, r#"{"part": {}}"#), Error::Kind("part")));
    }
}
