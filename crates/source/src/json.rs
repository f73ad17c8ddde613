//! JSON texts of values, in both directions.

use serde_json::Value as Json;

use crate::budget::{Budget, NODE, Result, Stop, failed};
use crate::number::Number;
use crate::value::Value;

/// Writes a value the way Terraform's `jsonencode` does: keys sorted, no spaces, `<`, `>` and `&` escaped.
pub(crate) fn encode(value: &Value, budget: &Budget) -> Result<String> {
    let mut out = String::new();
    write(value, &mut out, budget)?;
    Ok(out)
}

fn write(value: &Value, out: &mut String, budget: &Budget) -> Result<()> {
    budget.spend(NODE)?;
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(&number.to_string()),
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
        Value::Unknown(reason) => return Err(Stop::Unknown(reason.clone())),
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

/// Reads a JSON text.
pub(crate) fn decode(text: &str, budget: &Budget) -> Result<Value> {
    budget.spend(text.len() * 8)?;
    match serde_json::from_str(text) {
        Ok(json) => convert(&json, budget),
        Err(error) => failed(format!("the text is not valid JSON: {error}")),
    }
}

/// The value of a JSON text that was read already.
pub(crate) fn convert(json: &Json, budget: &Budget) -> Result<Value> {
    budget.spend(NODE)?;
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match Number::parse(&number.to_string()) {
            Some(number) => Value::Number(number),
            None => return failed("the number is too large"),
        },
        Json::String(text) => Value::text(text),
        Json::Array(items) => {
            Value::list(items.iter().map(|item| convert(item, budget)).collect::<Result<_>>()?)
        }
        Json::Object(items) => Value::map(
            items
                .iter()
                .map(|(key, item)| Ok((key.clone(), convert(item, budget)?)))
                .collect::<Result<_>>()?,
        ),
    })
}
