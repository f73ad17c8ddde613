//! Regular expressions and `replace`. The engine takes time linear in the text, whatever the pattern.

use std::collections::BTreeMap;

use regex::{Captures, Regex, RegexBuilder};

use super::Args;
use crate::budget::{NODE, Result, failed};
use crate::value::Value;

/// Largest compiled pattern, in bytes.
const LARGEST: usize = 1 << 17;
/// What compiling a pattern costs: far more than it is long.
const COMPILING: usize = 1 << 15;

pub(super) fn call(name: &str, args: &Args<'_>) -> Option<Result<Value>> {
    Some(match name {
        "regex" => first(args),
        "regexall" => every(args),
        "replace" => replace(args),
        _ => return None,
    })
}

fn compile(pattern: &str, args: &Args<'_>) -> Result<Regex> {
    args.budget.spend(COMPILING + pattern.len())?;
    let mut builder = RegexBuilder::new(&ascii_classes(pattern));
    match builder.size_limit(LARGEST).dfa_size_limit(LARGEST).nest_limit(50).build() {
        Ok(regex) => Ok(regex),
        Err(_) => failed("the pattern is not a valid regular expression, or too large"),
    }
}

/// Terraform's `\d`, `\w`, `\s` and `\b` know ASCII only.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
            Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
            Some('b') => out.push_str("(?-u:\\b)"),
            other => {
                out.push('\\');
                out.extend(other);
            }
        }
    }
    out
}

fn searched(args: &Args<'_>) -> Result<(Regex, std::rc::Rc<str>)> {
    args.count(2, 2)?;
    let (pattern, text) = (args.text(0)?, args.text(1)?);
    let regex = compile(&pattern, args)?;
    args.budget.spend(text.len().saturating_mul(pattern.len().clamp(1, 64)))?;
    Ok((regex, text))
}

fn first(args: &Args<'_>) -> Result<Value> {
    let (regex, text) = searched(args)?;
    match regex.captures(&text) {
        Some(found) => result(&regex, &found),
        None => failed("the pattern does not match the text"),
    }
}

fn every(args: &Args<'_>) -> Result<Value> {
    let (regex, text) = searched(args)?;
    let mut all = Vec::new();
    for found in regex.captures_iter(&text) {
        args.budget.spend(NODE * regex.captures_len())?;
        all.push(result(&regex, &found)?);
    }
    Ok(Value::list(all))
}

/// The whole match, a list of the groups, or a map of the named groups.
fn result(regex: &Regex, found: &Captures<'_>) -> Result<Value> {
    let group = |at: usize| found.get(at).map_or(Value::Null, |text| Value::text(text.as_str()));
    if regex.captures_len() == 1 {
        return Ok(group(0));
    }
    let names: Vec<_> = regex.capture_names().skip(1).collect();
    if names.iter().all(Option::is_none) {
        return Ok(Value::list((1..regex.captures_len()).map(group).collect()));
    }
    let mut map = BTreeMap::new();
    for (at, name) in names.into_iter().enumerate() {
        match name {
            Some(name) => map.insert(name.to_owned(), group(at + 1)),
            None => return failed("named and unnamed groups cannot be mixed"),
        };
    }
    Ok(Value::map(map))
}

/// A pattern between slashes is a regular expression.
fn replace(args: &Args<'_>) -> Result<Value> {
    args.count(3, 3)?;
    let (text, from, to) = (args.text(0)?, args.text(1)?, args.text(2)?);
    let pattern = from.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    let Some(pattern) = pattern.filter(|_| from.len() > 1) else {
        let count = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&*from).count() };
        args.budget.spend(count.saturating_mul(to.len()))?;
        return args.made(text.replace(&*from, &to));
    };
    let regex = compile(pattern, args)?;
    args.budget.spend(text.len().saturating_mul(pattern.len().clamp(1, 64)))?;
    let mut out = String::new();
    let mut last = 0;
    for found in regex.captures_iter(&text) {
        let whole = found.get(0).map_or(0..0, |whole| whole.range());
        out.push_str(&text[last..whole.start]);
        let before = out.len();
        args.budget.spend(NODE + to.len())?;
        found.expand(&to, &mut out);
        args.budget.spend(out.len() - before)?;
        last = whole.end;
    }
    out.push_str(&text[last..]);
    args.made(out)
}
