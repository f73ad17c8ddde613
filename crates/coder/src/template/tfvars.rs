//! Reads the values in `terraform.tfvars` and `*.auto.tfvars` files: `name = literal`, and the JSON form.
//!
//! Only literals are understood (texts, numbers, booleans, lists and maps of them); templates such as `${…}` are not
//! legal in these files anyway. Lists and maps become JSON text.

use anyhow::{Context as _, bail};
use serde_json::{Map, Number, Value};

/// Reads the JSON form.
pub(crate) fn parse_json(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let values: Map<String, Value> = serde_json::from_str(text).context("not a JSON object")?;
    Ok(values.into_iter().map(|(name, value)| (name, as_text(value))).collect())
}

/// Reads the native form.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut reader = Reader { text, at: 0 };
    let mut pairs = Vec::new();
    loop {
        reader.skip(true);
        if reader.peek().is_none() {
            return Ok(pairs);
        }
        let pair = reader.pair().with_context(|| format!("line {}", reader.line()))?;
        pairs.push(pair);
    }
}

fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// How deep lists and maps may nest.
const MAX_NESTING: usize = 32;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn line(&self) -> usize {
        self.text[..self.at].matches('\n').count() + 1
    }

    fn consume(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(end).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Skips blanks and comments; line ends only if `lines`.
    fn skip(&mut self, lines: bool) {
        loop {
            let before = self.at;
            self.until(|c| !(c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')));
            if self.rest().starts_with('#') || self.rest().starts_with("//") {
                self.until(|c| c == '\n');
            } else if self.consume("/*") {
                let rest = self.rest();
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            }
            if self.at == before {
                return;
            }
        }
    }

    fn pair(&mut self) -> anyhow::Result<(String, String)> {
        let name = self.name()?;
        self.skip(false);
        if !self.consume("=") {
            bail!("expected `=` after {name:?}");
        }
        self.skip(false);
        let value = self.value(0)?;
        self.skip(false);
        if !matches!(self.peek(), None | Some('\n')) {
            bail!("expected the end of the line after the value of {name:?}");
        }
        Ok((name, as_text(value)))
    }

    fn name(&mut self) -> anyhow::Result<String> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let name = self.until(|c| !(c.is_alphanumeric() || c == '_' || c == '-'));
        if name.is_empty() {
            bail!("expected a name");
        }
        Ok(name.to_owned())
    }

    fn value(&mut self, depth: usize) -> anyhow::Result<Value> {
        if depth > MAX_NESTING {
            bail!("nested more than {MAX_NESTING} deep");
        }
        match self.peek() {
            Some('"') => Ok(Value::String(self.quoted()?)),
            Some('[') => self.list(depth),
            Some('{') => self.map(depth),
            Some('<') => Ok(Value::String(self.here_document()?)),
            _ => {
                let word = self.until(|c| c.is_whitespace() || matches!(c, ',' | ']' | '}' | '#'));
                match word {
                    "true" => Ok(Value::Bool(true)),
                    "false" => Ok(Value::Bool(false)),
                    "null" => Ok(Value::Null),
                    number => {
                        let number: Number = serde_json::from_str(number).map_err(|_| {
                            anyhow::anyhow!("{number:?} is neither text, number, boolean, list nor map")
                        })?;
                        Ok(Value::Number(number))
                    }
                }
            }
        }
    }

    fn list(&mut self, depth: usize) -> anyhow::Result<Value> {
        self.consume("[");
        let mut items = Vec::new();
        loop {
            self.skip(true);
            if self.consume("]") {
                return Ok(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            self.skip(true);
            if !self.consume(",") && self.peek() != Some(']') {
                bail!("expected `,` or `]` in a list");
            }
        }
    }

    fn map(&mut self, depth: usize) -> anyhow::Result<Value> {
        self.consume("{");
        let mut entries = Map::new();
        loop {
            self.skip(true);
            if self.consume("}") {
                return Ok(Value::Object(entries));
            }
            let name = self.name()?;
            self.skip(false);
            if !self.consume("=") && !self.consume(":") {
                bail!("expected `=` after {name:?}");
            }
            self.skip(false);
            let value = self.value(depth + 1)?;
            entries.insert(name, value);
            self.skip(true);
            self.consume(",");
            if self.peek().is_none() {
                bail!("a map is not closed");
            }
        }
    }

    fn quoted(&mut self) -> anyhow::Result<String> {
        self.consume("\"");
        let mut text = String::new();
        loop {
            let Some(c) = self.peek() else { bail!("a text is not closed") };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(text),
                '\n' => bail!("a text is not closed on its line"),
                '\\' => text.push(self.escape()?),
                '$' | '%' if self.rest().starts_with('{') => {
                    bail!("templates are not allowed in variable files")
                }
                // `$${` and `%%{` stand for themselves without the first character.
                '$' if self.consume("${") => text.push_str("${"),
                '%' if self.consume("%{") => text.push_str("%{"),
                other => text.push(other),
            }
        }
    }

    fn escape(&mut self) -> anyhow::Result<char> {
        let Some(c) = self.peek() else { bail!("a text is not closed") };
        self.at += c.len_utf8();
        let digits = match c {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '"' | '\\' => return Ok(c),
            'u' => 4,
            'U' => 8,
            other => bail!("unknown escape \\{other}"),
        };
        let hex = self.rest().get(..digits).context("a text is not closed")?;
        self.at += digits;
        let code = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
        code.with_context(|| format!("\\{c}{hex} is not a character"))
    }

    fn here_document(&mut self) -> anyhow::Result<String> {
        if !self.consume("<<") {
            bail!("expected a value");
        }
        let indented = self.consume("-");
        let marker = self.until(|c| c == '\n').trim();
        let mut lines = Vec::new();
        while self.consume("\n") {
            let line = self.until(|c| c == '\n');
            if line.trim() == marker && !marker.is_empty() {
                let margin = |line: &&str| line.len() - line.trim_start().len();
                let cut = if indented { lines.iter().map(margin).min().unwrap_or(0) } else { 0 };
                return Ok(lines.iter().map(|line: &&str| format!("{}\n", &line[cut..])).collect());
            }
            lines.push(line);
        }
        bail!("the text up to {marker:?} is not closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals() {
        let pairs = parse(
            "# comment\nregion = \"eu \\\"1\\\"\" // end\ncount=3\nratio = 1.5\nflag = true\n/* x\n*/ list = [\n  \"a\", # one\n  2,\n]\nmap = { a = \"b\", c : [1] }\ntext = <<-EOT\n  one\n    two\n  EOT\nlast = \"$${x}\"",
        )
        .unwrap();
        let expected = [
            ("region", "eu \"1\""),
            ("count", "3"),
            ("ratio", "1.5"),
            ("flag", "true"),
            ("list", "[\"a\",2]"),
            ("map", "{\"a\":\"b\",\"c\":[1]}"),
            ("text", "one\n  two\n"),
            ("last", "${x}"),
        ];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(parse_json("{\"a\":\"b\",\"n\":1}").unwrap()[1], ("n".to_owned(), "1".to_owned()));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("a = 1\nb", 2),
            ("a = var.x", 1),
            ("a = \"${x}\"", 1),
            ("a = [1", 1),
            ("a = {", 1),
            ("\n\na = 1 2", 3),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.starts_with(&format!("line {line}")), "{text}: {error}");
        }
        assert!(parse(&"[".repeat(9)).is_err());
        assert!(parse(&format!("a = {}", "[".repeat(5000))).is_err());
    }
}
