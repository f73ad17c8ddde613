//! Functions on texts.

use super::{Args, format};
use crate::budget::{Result, failed};
use crate::value::Value;

pub(super) fn call(name: &str, args: &Args<'_>) -> Option<Result<Value>> {
    Some(match name {
        "lower" => one(args, |text| text.to_lowercase()),
        "upper" => one(args, upper),
        "title" => one(args, title),
        "chomp" => one(args, |text| text.trim_end_matches(['\n', '\r']).to_owned()),
        "trimspace" => one(args, |text| text.trim().to_owned()),
        "strrev" => one(args, |text| text.chars().rev().collect()),
        "basename" => one(args, basename),
        "dirname" => one(args, dirname),
        "trim" => two(args, |text, set| text.trim_matches(|c| set.contains(c)).to_owned()),
        "trimprefix" => two(args, |text, prefix| text.strip_prefix(prefix).unwrap_or(text).to_owned()),
        "trimsuffix" => two(args, |text, suffix| text.strip_suffix(suffix).unwrap_or(text).to_owned()),
        "startswith" => two_bool(args, |text, prefix| text.starts_with(prefix)),
        "endswith" => two_bool(args, |text, suffix| text.ends_with(suffix)),
        "strcontains" => two_bool(args, |text, part| text.contains(part)),
        "substr" => substr(args),
        "split" => split(args),
        "join" => join(args),
        "indent" => indent(args),
        "format" => format::format(args),
        "formatlist" => format::format_list(args),
        "tostring" => convert(args, |value| value.to_text(args.budget).map(Value::Text)),
        "tonumber" => convert(args, |value| value.to_number().map(Value::Number)),
        "tobool" => convert(args, |value| value.to_bool().map(Value::Bool)),
        _ => return None,
    })
}

/// Letter by letter: one that has no single upper-case letter stays.
fn upper(text: &str) -> String {
    let letter = |char: char| {
        let mut letters = char.to_uppercase();
        letters.next().filter(|_| letters.len() == 0).unwrap_or(char)
    };
    text.chars().map(letter).collect()
}

fn one(args: &Args<'_>, run: impl Fn(&str) -> String) -> Result<Value> {
    args.count(1, 1)?;
    args.made(run(&args.text(0)?))
}

fn two(args: &Args<'_>, run: impl Fn(&str, &str) -> String) -> Result<Value> {
    args.count(2, 2)?;
    let (text, other) = (args.text(0)?, args.text(1)?);
    // Trimming may look through the second text for each character of the first.
    args.budget.spend(text.len().saturating_mul(other.len().min(64)))?;
    args.made(run(&text, &other))
}

fn two_bool(args: &Args<'_>, run: impl Fn(&str, &str) -> bool) -> Result<Value> {
    args.count(2, 2)?;
    Ok(Value::Bool(run(&args.text(0)?, &args.text(1)?)))
}

fn convert(args: &Args<'_>, run: impl Fn(&Value) -> Result<Value>) -> Result<Value> {
    args.count(1, 1)?;
    let value = args.value(0)?;
    if value.is_null() { Ok(Value::Null) } else { run(value) }
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for char in text.chars() {
        if inside {
            out.push(char);
        } else {
            out.extend(char.to_uppercase());
        }
        inside = char.is_alphanumeric() || matches!(char, '_' | '\'');
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
    let mut parts: Vec<&str> = Vec::new();
    for part in before.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if before.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (before.starts_with('/') || (before.is_empty() && text.starts_with('/')), joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

fn substr(args: &Args<'_>) -> Result<Value> {
    args.count(3, 3)?;
    let text: Vec<char> = args.text(0)?.chars().collect();
    let (offset, length) = (args.whole(1)?, args.whole(2)?);
    let count = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let start = if offset < 0 { (count + offset.max(-count)).max(0) } else { offset.min(count) };
    let end = if length < 0 { count } else { start.saturating_add(length).min(count) };
    let skip = usize::try_from(start).unwrap_or(0);
    let take = usize::try_from(end - start).unwrap_or(0);
    args.made(text.iter().skip(skip).take(take).collect::<String>())
}

fn split(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let (separator, text) = (args.text(0)?, args.text(1)?);
    args.budget.spend(text.len() * 64)?;
    if separator.is_empty() {
        return Ok(Value::texts(text.chars().map(String::from)));
    }
    if text.is_empty() {
        return Ok(Value::texts([""]));
    }
    Ok(Value::texts(text.split(&*separator)))
}

fn join(args: &Args<'_>) -> Result<Value> {
    args.count(2, usize::MAX)?;
    let separator = args.text(0)?;
    let mut all = Vec::new();
    for at in 1..args.values.len() {
        all.extend(args.texts(at)?);
    }
    args.budget.spend(separator.len().saturating_mul(all.len()))?;
    args.made(all.join(&*separator))
}

fn indent(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let (count, text) = (args.whole(0)?, args.text(1)?);
    let Ok(count) = usize::try_from(count) else {
        return failed("the number of spaces must not be negative");
    };
    let lines = text.matches('\n').count();
    args.budget.spend(count.saturating_mul(lines + 1))?;
    args.made(text.replace('\n', &format!("\n{}", " ".repeat(count))))
}
