//! YAML texts of values. Reading takes the parser's events, so that anchors cannot make a small text a large value.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::budget::{Budget, NODE, Result, Stop, failed};
use crate::json;
use crate::number::Number;
use crate::value::Value;

pub(super) fn decode(text: &str, budget: &Budget) -> Result<Value> {
    budget.spend(text.len() * 32)?;
    let mut events = Vec::new();
    let mut open = 0usize;
    for event in Parser::new_from_str(text) {
        budget.spend(NODE)?;
        let Ok((event, _)) = event else { return failed("the text is not valid YAML") };
        match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => open += 1,
            Event::MappingEnd | Event::SequenceEnd => open = open.saturating_sub(1),
            Event::DocumentEnd if !events.is_empty() => break,
            _ => {}
        }
        if open > 40 {
            return failed("the YAML is nested too deep");
        }
        let simple = match event {
            Event::Scalar(text, style, _, tag) => {
                Node::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain && tag.is_none() }
            }
            Event::MappingStart(..) => Node::Map,
            Event::SequenceStart(..) => Node::List,
            Event::MappingEnd | Event::SequenceEnd => Node::End,
            Event::Alias(_) => return failed("aliases in YAML may not be used here"),
            _ => continue,
        };
        events.push(simple);
    }
    let mut nodes = events.into_iter();
    match nodes.next() {
        Some(node) => build(node, &mut nodes, budget),
        None => Ok(Value::Null),
    }
}

enum Node {
    Scalar { text: String, plain: bool },
    Map,
    List,
    End,
}

fn build(node: Node, nodes: &mut impl Iterator<Item = Node>, budget: &Budget) -> Result<Value> {
    let broken = || Stop::Failed("the text is not valid YAML".to_owned());
    budget.spend(NODE)?;
    match node {
        Node::Scalar { text, plain } => Ok(if plain { scalar(&text) } else { Value::text(text) }),
        Node::List => {
            let mut items = Vec::new();
            loop {
                match nodes.next().ok_or_else(broken)? {
                    Node::End => return Ok(Value::list(items)),
                    node => items.push(build(node, nodes, budget)?),
                }
            }
        }
        Node::Map => {
            let mut items = BTreeMap::new();
            loop {
                let key = match nodes.next().ok_or_else(broken)? {
                    Node::End => return Ok(Value::map(items)),
                    node => build(node, nodes, budget)?.to_text(budget)?,
                };
                let node = nodes.next().ok_or_else(broken)?;
                items.insert(key.to_string(), build(node, nodes, budget)?);
            }
        }
        Node::End => Err(broken()),
    }
}

fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => {
            let numeric =
                text.starts_with(|char: char| char.is_ascii_digit() || matches!(char, '-' | '+' | '.'));
            match Number::parse(text).filter(|_| numeric) {
                Some(number) => Value::Number(number),
                None => Value::text(text),
            }
        }
    }
}

/// Writes block style, with every text quoted, as Terraform does.
pub(super) fn encode(value: &Value, budget: &Budget) -> Result<String> {
    let mut out = String::new();
    write(value, 0, false, &mut out, budget)?;
    Ok(out)
}

/// `inline` tells that the line has already begun, with a dash.
fn write(value: &Value, depth: usize, inline: bool, out: &mut String, budget: &Budget) -> Result<()> {
    budget.spend(NODE + depth * 2)?;
    let indent = "  ".repeat(depth);
    match value {
        Value::List(list) if !list.items.is_empty() => {
            for (index, item) in list.items.iter().enumerate() {
                if index > 0 || !inline {
                    out.push_str(&indent);
                }
                out.push_str("- ");
                write(item, depth + 1, true, out, budget)?;
            }
        }
        Value::Map(map) if !map.items.is_empty() => {
            for (index, (key, item)) in map.items.iter().enumerate() {
                if index > 0 || !inline {
                    out.push_str(&indent);
                }
                out.push_str(&json::encode(&Value::text(key), budget)?);
                out.push(':');
                match item {
                    Value::Map(inner) if !inner.items.is_empty() => {
                        out.push('\n');
                        write(item, depth + 1, false, out, budget)?;
                    }
                    Value::List(inner) if !inner.items.is_empty() => {
                        out.push('\n');
                        write(item, depth, false, out, budget)?;
                    }
                    item => {
                        out.push(' ');
                        write(item, depth, true, out, budget)?;
                    }
                }
            }
        }
        other => {
            out.push_str(&json::encode(other, budget)?);
            out.push('\n');
        }
    }
    Ok(())
}
