//! JSON encoding and decoding of values.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::budget::{Budget, EvalError, NODE_COST, Result, failed, unavailable};
use crate::number::Number;
use crate::value::{Value, normalized};

/// Deepest nesting; deeper JSON is left to Terraform.
const MAX_DEPTH: u32 = 40;

/// Encodes a value as Terraform's `jsonencode` does: sorted keys, no spaces, `<`, `>` and `&` escaped.
pub(crate) fn encode(value: &Value, budget: &Budget) -> Result<String> {
    let mut out = String::new();
    write(value, &mut out, budget)?;
    Ok(out)
}

fn write(value: &Value, out: &mut String, budget: &Budget) -> Result<()> {
    budget.spend(NODE_COST)?;
    match value {
        Value::Null(_) => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) if number.is_infinite() => {
            return failed("infinity cannot be written as JSON");
        }
        Value::Number(number) => {
            let text = number.text(budget)?;
            budget.spend(text.len())?;
            out.push_str(&text);
        }
        Value::Text(text) => write_text(text, out, budget)?,
        Value::List(list) => {
            out.push('[');
            for (index, item) in list.items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out, budget)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, item)) in map.items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(key, out, budget)?;
                out.push(':');
                write(item, out, budget)?;
            }
            out.push('}');
        }
        Value::Unknown(reason) => return Err(EvalError::Unknown(reason.clone())),
    }
    Ok(())
}

fn write_text(text: &str, out: &mut String, budget: &Budget) -> Result<()> {
    budget.spend(text.len() * 2)?;
    let quoted = Json::from(text).to_string();
    for char in quoted.chars() {
        match char {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    Ok(())
}

/// Decodes JSON.
pub(crate) fn decode(text: &str, budget: &Budget) -> Result<Value> {
    budget.spend(text.len() * 8)?;
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let raw = match values.next() {
        Some(Ok(raw)) => raw,
        Some(Err(error)) => return failed(format!("the text is not valid JSON: {error}")),
        None => return failed("the text is not valid JSON: it is empty"),
    };
    // What follows a closing bracket too many is not looked at, as in Terraform.
    let rest = text[values.byte_offset()..].trim_start_matches([' ', '\t', '\n', '\r']);
    if !rest.is_empty() && !rest.starts_with([']', '}']) {
        return failed("the text is not valid JSON: something follows the value");
    }
    read(raw, MAX_DEPTH, budget)
}

/// Decodes one level at a time, so that numbers keep all their digits.
fn read(raw: &RawValue, deeper: u32, budget: &Budget) -> Result<Value> {
    let text = raw.get();
    budget.spend(NODE_COST + text.len())?;
    let wrong = |error: serde_json::Error| EvalError::Failed(format!("the text is not valid JSON: {error}"));
    let Some(left) = deeper.checked_sub(1) else {
        return unavailable(format!("JSON nested deeper than {MAX_DEPTH} is not read here"));
    };
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let items: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(wrong)?;
            let item = |(key, item): (String, &RawValue)| Ok((normalized(&key), read(item, left, budget)?));
            Value::object(items.into_iter().map(item).collect::<Result<_>>()?)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
            Value::tuple(items.into_iter().map(|item| read(item, left, budget)).collect::<Result<_>>()?)
        }
        Some(b'"') => Value::text(serde_json::from_str::<String>(text).map_err(wrong)?),
        Some(b'n') => Value::NULL,
        Some(b't') => Value::Bool(true),
        Some(b'f') => Value::Bool(false),
        _ => Value::Number(Number::parse(text, budget)?),
    })
}

/// The value of parsed JSON.
pub(crate) fn convert(json: &Json, budget: &Budget) -> Result<Value> {
    budget.spend(NODE_COST)?;
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => Value::Number(Number::parse(&number.to_string(), budget)?),
        Json::String(text) => Value::text(text),
        Json::Array(items) => {
            Value::tuple(items.iter().map(|item| convert(item, budget)).collect::<Result<_>>()?)
        }
        Json::Object(items) => Value::object(
            items
                .iter()
                .map(|(key, item)| Ok((normalized(key), convert(item, budget)?)))
                .collect::<Result<_>>()?,
        ),
    })
}
