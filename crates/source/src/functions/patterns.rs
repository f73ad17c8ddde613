//! Regular expressions and `replace`. The engine takes time linear in the text, whatever the pattern.

use std::collections::BTreeMap;
use std::rc::Rc;

use regex::{Captures, Regex, RegexBuilder};

use super::Param::Text;
use super::{Args, Function, function};
use crate::budget::{NODE, Result, failed, unavailable};
use crate::value::Value;
use crate::value_type::Type;

/// Longest pattern, in bytes. The parser needs some hundred bytes of memory for each, before any limit of the
/// compiled pattern applies.
const MAX_PATTERN_LEN: usize = 1 << 13;
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
    if pattern.len() > MAX_PATTERN_LEN {
        return unavailable("the pattern is too large to be used here");
    }
    args.budget.spend(COMPILE_COST + pattern.len())?;
    let mut builder = RegexBuilder::new(&translated(pattern)?);
    match builder.size_limit(MAX_PATTERN_SIZE).dfa_size_limit(MAX_PATTERN_SIZE).nest_limit(50).build() {
        Ok(regex) => Ok(regex),
        Err(regex::Error::CompiledTooBig(_)) => unavailable("the pattern is too large to be used here"),
        Err(_) => failed("the pattern is not a valid regular expression"),
    }
}

/// The pattern in the notation of the engine here. Terraform's is that of RE2: `\d`, `\w`, `\s` and `\b` know ASCII only, a
/// brace that repeats nothing is itself, `\Q…\E` quotes, and classes neither nest nor have operators.
fn translated(pattern: &str) -> Result<String> {
    let mut out = String::with_capacity(pattern.len() * 2);
    let mut rest = pattern;
    let mut repeated = Repetition::No;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        let before = std::mem::replace(&mut repeated, Repetition::No);
        rest = match char {
            '\\' => escape(after, false, &mut out)?,
            '[' => class(after, &mut out)?,
            '*' | '+' | '?' => {
                repeated = before.and(char)?;
                out.push(char);
                after
            }
            '{' => match repetition(after) {
                Some((counts, behind)) => {
                    repeated = before.and(char)?;
                    if counts
                        .split(',')
                        .any(|count| !count.is_empty() && count.parse().unwrap_or(u32::MAX) > 1000)
                    {
                        return failed("the pattern repeats something more than 1000 times");
                    }
                    out.push_str(&format!("{{{counts}}}"));
                    behind
                }
                None => {
                    out.push_str("\\{");
                    after
                }
            },
            '}' => {
                out.push_str("\\}");
                after
            }
            '(' if after.starts_with('?') => {
                flags(&after[1..])?;
                out.push_str("(?");
                &after[1..]
            }
            other => {
                out.push(other);
                after
            }
        };
    }
    Ok(out)
}

/// Whether what was just read repeats something.
#[derive(Clone, Copy)]
enum Repetition {
    No,
    Yes,
    /// As seldom as possible.
    Lazily,
}

impl Repetition {
    /// The state after a further repetition sign; a repetition cannot be repeated.
    fn and(self, sign: char) -> Result<Self> {
        match (self, sign) {
            (Self::No, _) => Ok(Self::Yes),
            (Self::Yes, '?') => Ok(Self::Lazily),
            _ => failed("the pattern repeats a repetition"),
        }
    }
}

/// A class behind its opening bracket.
fn class<'p>(pattern: &'p str, out: &mut String) -> Result<&'p str> {
    out.push('[');
    let mut rest = pattern;
    if let Some(inner) = rest.strip_prefix('^') {
        out.push('^');
        rest = inner;
    }
    let mut is_first = true;
    loop {
        if let Some(behind) = rest.strip_prefix(']').filter(|_| !is_first) {
            out.push(']');
            return Ok(behind);
        }
        is_first = false;
        // A class by name, such as [:alpha:].
        if let Some((name, behind)) = rest.strip_prefix("[:").and_then(|name| name.split_once(":]")) {
            out.push_str(&format!("[:{name}:]"));
            rest = behind;
            continue;
        }
        rest = member(rest, out)?;
        // A range, unless the dash is the last in the class.
        if let Some(behind) = rest.strip_prefix('-').filter(|behind| !behind.starts_with(']')) {
            out.push('-');
            rest = member(behind, out)?;
        }
    }
}

/// One character of a class.
fn member<'p>(rest: &'p str, out: &mut String) -> Result<&'p str> {
    match rest.chars().next() {
        None => failed("a class in the pattern does not end"),
        Some('\\') => escape(&rest[1..], true, out),
        Some(char) => {
            if char.is_ascii_punctuation() {
                out.push('\\');
            }
            out.push(char);
            Ok(&rest[char.len_utf8()..])
        }
    }
}

/// What follows a backslash.
fn escape<'p>(after: &'p str, in_class: bool, out: &mut String) -> Result<&'p str> {
    let Some(char) = after.chars().next() else { return failed("the pattern ends with a backslash") };
    let behind = &after[char.len_utf8()..];
    match char {
        'd' => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
        'w' => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
        's' => out.push_str(if in_class { "\\t\\n\\f\\r " } else { "[\\t\\n\\f\\r ]" }),
        'D' => out.push_str("[^0-9]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'S' => out.push_str("[^\\t\\n\\f\\r ]"),
        'b' if !in_class && !behind.starts_with('{') => out.push_str("(?-u:\\b)"),
        'B' if !in_class => {
            // The engine cannot match between the bytes of a character.
            out.push_str("\\B");
            return unavailable("\\B in a pattern is not available here");
        }
        'Q' if !in_class => {
            let (quoted, behind) = behind.split_once("\\E").unwrap_or((behind, ""));
            out.push_str(&regex::escape(quoted));
            return Ok(behind);
        }
        'A' | 'z' if !in_class => out.extend(['\\', char]),
        'p' | 'P' | 'x' | 'a' | 'f' | 't' | 'n' | 'r' | 'v' => out.extend(['\\', char]),
        '0'..='7' => return unavailable("octal escapes in a pattern are not available here"),
        punctuation if punctuation.is_ascii_punctuation() => out.push_str(&regex::escape(&char.to_string())),
        _ => {
            return failed(format!("the pattern has the escape \\{char}, which means nothing"));
        }
    }
    if matches!(char, 'p' | 'P' | 'x')
        && let Some((inner, end)) = behind.strip_prefix('{').and_then(|inner| inner.split_once('}'))
    {
        out.push_str(&format!("{{{inner}}}"));
        return Ok(end);
    }
    Ok(behind)
}

/// Parses `{2}`, `{2,}` or `{2,3}`. Returns the bounds and the rest.
fn repetition(after: &str) -> Option<(&str, &str)> {
    let (inner, behind) = after.split_once('}')?;
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!least.is_empty() && digits(least) && digits(most)).then_some((inner, behind))
}

/// Refuses groups that only the engine used here supports.
fn flags(after: &str) -> Result<()> {
    if after.starts_with("P<") || after.starts_with('<') {
        return Ok(());
    }
    let flags = after.find([':', ')']).map_or(after, |end| &after[..end]);
    match flags.chars().all(|char| matches!(char, 'i' | 'm' | 's' | 'U' | '-')) {
        true => Ok(()),
        false => failed("the pattern has a group that means nothing"),
    }
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
        args.budget.spend(NODE * regex.captures_len())?;
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
        args.budget.spend(NODE + to.len())?;
        found.expand(&to, &mut out);
        args.budget.spend(out.len() - before)?;
        last = whole.end;
    }
    out.push_str(&text[last..]);
    args.text_result(out)
}
