//! Functions on texts.

use unicode_segmentation::UnicodeSegmentation as _;

use super::Param::{Any, Nullable, Number as N, Text, Texts};
use super::{Args, Function, function, variadic};
use crate::budget::{Result, failed};
use crate::value::Value;
use crate::value_type::Type;

pub(super) const FUNCTIONS: &[Function] = &[
    function("lower", &[Text], |args| one(args, lower)),
    function("upper", &[Text], |args| one(args, |text| text.chars().map(upper).collect())),
    function("title", &[Text], |args| one(args, title)),
    function("chomp", &[Text], |args| one(args, |text| text.trim_end_matches(['\n', '\r']).to_owned())),
    function("trimspace", &[Text], |args| one(args, |text| text.trim().to_owned())),
    function("strrev", &[Text], |args| one(args, |text| text.graphemes(true).rev().collect())),
    function("basename", &[Text], |args| one(args, basename)),
    function("dirname", &[Text], |args| one(args, dirname)),
    function("trim", &[Text, Text], |args| {
        two(args, |text, set| text.trim_matches(|c| set.contains(c)).to_owned())
    }),
    function("trimprefix", &[Text, Text], |args| {
        two(args, |text, prefix| text.strip_prefix(prefix).unwrap_or(text).to_owned())
    }),
    function("trimsuffix", &[Text, Text], |args| {
        two(args, |text, suffix| text.strip_suffix(suffix).unwrap_or(text).to_owned())
    }),
    function("startswith", &[Text, Text], |args| test(args, |text, prefix| text.starts_with(prefix))),
    function("endswith", &[Text, Text], |args| test(args, |text, suffix| text.ends_with(suffix))),
    function("strcontains", &[Text, Text], |args| test(args, |text, part| text.contains(part))),
    function("substr", &[Text, N, N], substr),
    function("split", &[Text, Text], split),
    variadic("join", &[Text], Texts, join),
    function("indent", &[N, Text], indent),
    function("templatestring", &[Text, Any], |args| {
        args.evaluator.rendered(&args.text(0)?, &args.map(1)?.items)
    }),
    function("tostring", &[Nullable], |args| Type::Text.convert(&args.values[0], args.budget)),
    function("tonumber", &[Nullable], |args| Type::Number.convert(&args.values[0], args.budget)),
    function("tobool", &[Nullable], |args| Type::Bool.convert(&args.values[0], args.budget)),
];

/// Letter by letter, independent of the neighbors.
fn lower(text: &str) -> String {
    text.chars().map(|char| char.to_lowercase().next().unwrap_or(char)).collect()
}

/// One letter for one: a letter whose capital is written with several stays, unless there is a single one for titles.
fn upper(char: char) -> char {
    let mut letters = char.to_uppercase();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => letter,
        _ => match char {
            '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
                char::from_u32(u32::from(char) + 8).unwrap_or(char)
            }
            '\u{1fb3}' => '\u{1fbc}',
            '\u{1fc3}' => '\u{1fcc}',
            '\u{1ff3}' => '\u{1ffc}',
            other => other,
        },
    }
}

/// The title case of a letter, which differs from upper case for some.
fn title_letter(char: char) -> char {
    match char {
        '\u{1c4}'..='\u{1c6}' => '\u{1c5}',
        '\u{1c7}'..='\u{1c9}' => '\u{1c8}',
        '\u{1ca}'..='\u{1cc}' => '\u{1cb}',
        '\u{1f1}'..='\u{1f3}' => '\u{1f2}',
        // Georgian has no capitals in titles.
        '\u{10d0}'..='\u{10fa}' | '\u{10fd}'..='\u{10ff}' => char,
        '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}' | '\u{1fa8}'..='\u{1faf}' => char,
        '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}' => char,
        other => upper(other),
    }
}

fn one(args: &Args<'_>, run: impl Fn(&str) -> String) -> Result<Value> {
    let text = args.text(0)?;
    args.budget.spend(text.len() * 4)?;
    args.text_result(run(&text))
}

fn two(args: &Args<'_>, run: impl Fn(&str, &str) -> String) -> Result<Value> {
    let (text, other) = (args.text(0)?, args.text(1)?);
    // Trimming may look through the second text for each character of the first.
    args.budget.spend(text.len().saturating_mul(other.len().min(64)))?;
    args.text_result(run(&text, &other))
}

fn test(args: &Args<'_>, run: impl Fn(&str, &str) -> bool) -> Result<Value> {
    Ok(Value::Bool(run(&args.text(0)?, &args.text(1)?)))
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for char in text.chars() {
        out.push(if inside { char } else { title_letter(char) });
        inside = match char.is_ascii() {
            true => char.is_ascii_alphanumeric() || char == '_',
            false => !char.is_whitespace(),
        };
    }
    out
}

fn basename(text: &str) -> String {
    let trimmed = text.trim_end_matches('/');
    match (text.is_empty(), trimmed.rsplit('/').next()) {
        (true, _) => ".".to_owned(),
        (false, Some("") | None) => "/".to_owned(),
        (false, Some(last)) => last.to_owned(),
    }
}

fn dirname(text: &str) -> String {
    let Some((before, _)) = text.rsplit_once('/') else { return ".".to_owned() };
    let is_absolute = text.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in before.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

fn substr(args: &Args<'_>) -> Result<Value> {
    let (text, offset, length) = (args.text(0)?, args.whole(1)?, args.whole(2)?);
    args.budget.spend(text.len() * 16)?;
    let parts: Vec<_> = text.graphemes(true).collect();
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    let start = if offset < 0 { count.saturating_add(offset).max(0) } else { offset.min(count) };
    // From the end, no length means the rest.
    let end = if length < 0 || (length == 0 && offset < 0) {
        count
    } else {
        start.saturating_add(length).min(count)
    };
    let bound = |at: i64| usize::try_from(at).unwrap_or(0);
    args.text_result(parts[bound(start)..bound(end)].concat())
}

fn split(args: &Args<'_>) -> Result<Value> {
    let (separator, text) = (args.text(0)?, args.text(1)?);
    args.budget.spend(text.len() * 64)?;
    if separator.is_empty() {
        return Ok(Value::texts(text.chars().map(String::from)));
    }
    Ok(Value::texts(text.split(&*separator)))
}

fn join(args: &Args<'_>) -> Result<Value> {
    let separator = args.text(0)?;
    if args.values.len() < 2 {
        return failed("at least one list is required");
    }
    let mut all = Vec::new();
    for at in 1..args.values.len() {
        all.extend(args.texts(at)?);
    }
    args.budget.spend(separator.len().saturating_mul(all.len()))?;
    args.text_result(all.join(&*separator))
}

fn indent(args: &Args<'_>) -> Result<Value> {
    let (count, text) = (args.whole(0)?, args.text(1)?);
    let Ok(count) = usize::try_from(count) else {
        return failed("the number of spaces must not be negative");
    };
    let lines = text.matches('\n').count();
    args.budget.spend(count.saturating_mul(lines))?;
    args.text_result(match lines {
        0 => text.to_string(),
        _ => text.replace('\n', &format!("\n{}", " ".repeat(count))),
    })
}
