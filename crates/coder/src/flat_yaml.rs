//! The part of YAML that value files use: one map of names to scalars or lists of scalars.
//!
//! Lists become JSON text, as the server expects list parameters. Anything deeper is refused with its line number.

use anyhow::{Context as _, bail};

/// Reads `name: value` pairs in file order.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let number = index + 1;
        let line = without_comment(raw);
        let content = line.trim();
        if content.is_empty() || content == "---" {
            continue;
        }
        if let Some(item) = content.strip_prefix("- ").or_else(|| (content == "-").then_some("")) {
            let Some((_, Value::List(items))) = pairs.last_mut() else {
                bail!("line {number}: a list item without a name above it");
            };
            items.push(scalar(item.trim()).with_context(|| format!("line {number}"))?);
            continue;
        }
        if line.starts_with([' ', '\t']) {
            bail!("line {number}: nested values are not understood, write them as JSON text in quotes");
        }
        let (name, value) =
            split(content).with_context(|| format!("line {number}: expected `name: value`"))?;
        let name = scalar(name).with_context(|| format!("line {number}"))?;
        let value = match value {
            "" => Value::List(Vec::new()),
            list if list.starts_with('[') && list.ends_with(']') => {
                let inner = &list[1..list.len() - 1];
                let items = split_items(inner).into_iter().map(scalar).collect::<Result<_, _>>();
                Value::List(items.with_context(|| format!("line {number}"))?)
            }
            other => Value::Text(scalar(other).with_context(|| format!("line {number}"))?),
        };
        pairs.push((name, value));
    }
    pairs.into_iter().map(|(name, value)| Ok((name, value.into_text()?))).collect()
}

enum Value {
    Text(String),
    List(Vec<String>),
}

impl Value {
    fn into_text(self) -> anyhow::Result<String> {
        match self {
            Self::Text(text) => Ok(text),
            // `name:` with nothing below it is an empty text.
            Self::List(items) if items.is_empty() => Ok(String::new()),
            Self::List(items) => Ok(serde_json::to_string(&items)?),
        }
    }
}

/// Cuts at ` #` outside quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open && before != '\\' => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if matches!(before, ' ' | ':' | '[' | ',' | '\t') => quote = Some(c),
            (None, '#') if before.is_whitespace() => return &line[..at],
            _ => {}
        }
        before = c;
    }
    line
}

fn split(content: &str) -> Option<(&str, &str)> {
    let quoted = content.starts_with(['"', '\'']);
    let from = if quoted { content[1..].find(&content[..1])? + 2 } else { 0 };
    let colon = content[from..].char_indices().find(|(at, c)| {
        *c == ':' && content[from + at + 1..].chars().next().is_none_or(char::is_whitespace)
    })?;
    let at = from + colon.0;
    Some((content[..at].trim(), content[at + 1..].trim()))
}

fn split_items(inner: &str) -> Vec<&str> {
    let (mut items, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, c) in inner.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ',') => {
                items.push(inner[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        items.push(inner[start..].trim());
    }
    items
}

fn scalar(text: &str) -> anyhow::Result<String> {
    let closed = |quote| text.len() >= 2 && text.starts_with(quote) && text.ends_with(quote);
    if closed('"') {
        // A YAML double-quoted scalar on one line is, but for rare escapes, a JSON string.
        return serde_json::from_str(text).with_context(|| format!("{text} is not a valid quoted text"));
    }
    if closed('\'') {
        return Ok(text[1..text.len() - 1].replace("''", "'"));
    }
    if text.starts_with(['{', '|', '>', '&', '*', '!', '"', '\'']) {
        bail!("{text} is not understood, put the value in quotes on one line");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_files() {
        let pairs = parse(
            "---\n# sizes\ncpu: 4\nname: \"a: \\\"b\\\" # c\"  # comment\nquote: 'it''s'\nempty:\nurl: http://x:1/#a\n\
             zones:\n  - eu\n  - \"us\"\ninline: [a, 'b, c']\n",
        )
        .unwrap();
        let expected = [
            ("cpu", "4"),
            ("name", "a: \"b\" # c"),
            ("quote", "it's"),
            ("empty", ""),
            ("url", "http://x:1/#a"),
            ("zones", "[\"eu\",\"us\"]"),
            ("inline", "[\"a\",\"b, c\"]"),
        ];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for (text, line) in [("a: 1\n  b: 2", 2), ("- x", 1), ("a", 1), ("a: {b: 1}", 1), ("a: |", 1)] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(&format!("line {line}")), "{text}: {error}");
        }
    }
}
