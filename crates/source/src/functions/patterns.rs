//! Regular expressions and `replace`. The engine takes time linear in the text, whatever the pattern.

use std::collections::BTreeMap;
use std::rc::Rc;

use coder_domain::go_regex;
use regex::{Captures, Regex};

use super::Param::Text;
use super::{Args, Function, function};
use crate::budget::{NODE_COST, Result, failed, unavailable};
use crate::value::Value;
use crate::value_type::Type;

/// Largest compiled pattern, in bytes.
const MAX_PATTERN_SIZE: usize = 1 << 17;
/// The cost of compiling a pattern, which is much more than its length.
const COMPILE_COST: usize = 1 << 15;

pub(super) const FUNCTIONS: &[Function] = &[
    function("regex", &[Text, Text], first),
    function("regexall", &[Text, Text], every),
    function("replace", &[Text, Text, Text], replace),
];

fn compile(pattern: &str, args: &Args<'_>) -> Result<Regex> {
    args.budget.spend(COMPILE_COST + pattern.len())?;
    go_regex::compile_within(pattern, MAX_PATTERN_SIZE).or_else(|error| match error.is_too_large() {
        true => unavailable("the pattern is too large to be used here"),
        false => failed("the pattern is not a valid regular expression"),
    })
}

fn searched(args: &Args<'_>) -> Result<(Regex, Rc<str>)> {
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
        args.budget.spend(NODE_COST * regex.captures_len())?;
        all.push(result(&regex, &found)?);
    }
    Ok(Value::list(kind(&regex)?, all))
}

/// The type of each match.
fn kind(regex: &Regex) -> Result<Type> {
    let groups = regex.captures_len() - 1;
    if groups == 0 {
        return Ok(Type::Text);
    }
    let names: Vec<_> = regex.capture_names().flatten().map(str::to_owned).collect();
    match names.len() {
        0 => Ok(Type::Tuple(Rc::new(vec![Type::Text; groups]))),
        named if named == groups => Ok(Type::object(names.iter().map(|name| (name, Type::Text)))),
        _ => failed("named and unnamed groups cannot be mixed"),
    }
}

/// The whole match, a list of the groups, or a map of the named groups.
fn result(regex: &Regex, found: &Captures<'_>) -> Result<Value> {
    let group = |at: usize| found.get(at).map_or(Value::Null(Type::Text), |text| Value::text(text.as_str()));
    if regex.captures_len() == 1 {
        return Ok(group(0));
    }
    let names: Vec<_> = regex.capture_names().skip(1).collect();
    if names.iter().all(Option::is_none) {
        return Ok(Value::tuple((1..regex.captures_len()).map(group).collect()));
    }
    let mut map = BTreeMap::new();
    for (at, name) in names.into_iter().enumerate() {
        match name {
            Some(name) => map.insert(name.to_owned(), group(at + 1)),
            None => return failed("named and unnamed groups cannot be mixed"),
        };
    }
    Ok(Value::object(map))
}

/// A pattern between slashes is a regular expression.
fn replace(args: &Args<'_>) -> Result<Value> {
    let (text, from, to) = (args.text(0)?, args.text(1)?, args.text(2)?);
    let pattern = from.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    let Some(pattern) = pattern.filter(|_| from.len() > 1) else {
        let count = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&*from).count() };
        args.budget.spend(count.saturating_mul(to.len()))?;
        return args.text_result(text.replace(&*from, &to));
    };
    let regex = compile(pattern, args)?;
    args.budget.spend(text.len().saturating_mul(pattern.len().clamp(1, 64)))?;
    let mut out = String::new();
    let mut last = 0;
    for found in regex.captures_iter(&text) {
        let whole = found.get(0).map_or(0..0, |whole| whole.range());
        out.push_str(&text[last..whole.start]);
        let before = out.len();
        args.budget.spend(NODE_COST + to.len())?;
        found.expand(&to, &mut out);
        args.budget.spend(out.len() - before)?;
        last = whole.end;
    }
    out.push_str(&text[last..]);
    args.text_result(out)
}
