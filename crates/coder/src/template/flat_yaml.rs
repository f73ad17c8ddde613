//! YAML files of values: one map of names to scalars or lists of scalars.
//!
//! Lists become JSON text, as the server expects list parameters. Anything deeper is refused with its line number.

use std::borrow::Cow;

use anyhow::{Context as _, bail, ensure};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

/// Reads `name: value` pairs in file order.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut events = Parser::new_from_str(text);
    let mut next = || match events.next() {
        None => Ok(None),
        Some(Ok((event, span))) => Ok(Some((event, span.start.line()))),
        Some(Err(error)) => Err(broken(&error)),
    };
    let mut pairs: Vec<(String, String)> = Vec::new();
    // An empty file has no map.
    while let Some((event, line)) = next()? {
        match event {
            Event::StreamStart | Event::DocumentStart(_) => {}
            Event::MappingStart(..) => break,
            Event::Scalar(text, ScalarStyle::Plain, ..) if is_nothing(&text) => return Ok(pairs),
            Event::StreamEnd | Event::DocumentEnd | Event::Nothing => return Ok(pairs),
            _ => bail!("line {line}: expected `name: value`"),
        }
    }
    while let Some((event, line)) = next()? {
        let name = match event {
            Event::Scalar(name, ..) => name.into_owned(),
            Event::MappingEnd => break,
            _ => bail!("line {line}: a name must be a scalar"),
        };
        ensure!(pairs.iter().all(|(known, _)| *known != name), "line {line}: {name} appears twice");
        let (event, line) = next()?.context("the file ends in the middle of a value")?;
        let value = match event {
            Event::Scalar(text, style, ..) => plain(text, style),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                while let Some((event, line)) = next()? {
                    match event {
                        Event::Scalar(text, style, ..) => items.push(plain(text, style)),
                        Event::SequenceEnd => break,
                        _ => return Err(nested(line)),
                    }
                }
                serde_json::to_string(&items)?
            }
            _ => return Err(nested(line)),
        };
        pairs.push((name, value));
    }
    Ok(pairs)
}

fn plain(text: Cow<'_, str>, style: ScalarStyle) -> String {
    if style == ScalarStyle::Plain && is_nothing(&text) { String::new() } else { text.into_owned() }
}

fn is_nothing(text: &str) -> bool {
    matches!(text, "" | "~" | "null")
}

fn nested(line: usize) -> anyhow::Error {
    anyhow::anyhow!("line {line}: nested values are not supported: write them as JSON text in quotes")
}

fn broken(error: &ScanError) -> anyhow::Error {
    anyhow::anyhow!("line {}: {}", error.marker().line(), error.info())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_files() {
        let pairs = parse(
            "---\n# sizes\ncpu: 4\nname: \"a: \\\"b\\\" # c\"  # comment\nquote: 'it''s'\nempty:\nurl: http://x:1/#a\n\
             zones:\n  - eu\n  - \"us\"\ninline: [a, 'b, c']\nnone: []\nquoted: '~'\nscript: |\n  one\n  two\nfolded: >-\n  a\n  b\n",
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
            ("none", "[]"),
            ("quoted", "~"),
            ("script", "one\ntwo\n"),
            ("folded", "a b"),
        ];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(parse("{\"a\": \"1\", b: 2}").unwrap().len(), 2);
        for nothing in ["", "---\n", "# none\n", "{}", "null\n"] {
            assert_eq!(parse(nothing).unwrap(), [], "{nothing:?}");
        }
    }

    #[test]
    fn unsupported_yaml_is_refused_with_its_line() {
        for (text, line) in [
            ("a: 1\n  b: 2", 2),
            ("- x", 1),
            ("a", 1),
            ("a: {b: 1}", 1),
            ("a:\n  b: 1", 2),
            ("a:\n- [1]", 2),
            ("a: 1\na: 2", 2),
            ("a: &x 1\nb: *x", 2),
            ("a: 'b", 1),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(&format!("line {line}")), "{text}: {error}");
        }
    }
}
