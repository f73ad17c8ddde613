//! Search strings of lists: `key:value` terms and bare words (http-api 1.11).

use super::error::Error;

/// The terms of one `q`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Search {
    terms: Vec<(String, String)>,
}

impl Search {
    /// Splits `q`. Bare words belong to `default`; a key outside `known` is refused.
    pub fn parse(q: &str, default: &str, known: &[&str]) -> Result<Self, Error> {
        let mut terms = Vec::new();
        for term in split(&q.to_lowercase(), ' ') {
            let parts = split(&term, ':');
            let colons = parts.len() - 1;
            let (key, value) = match (parts.as_slice(), colons) {
                ([word], 0) => (default.replace('_', "-"), unquote(word)),
                ([key, value], 1) if !key.is_empty() && !value.is_empty() => {
                    (key.replace('_', "-"), unquote(value))
                }
                _ => return Err(refuse(format!("query element {term:?} can only contain 1 ':'"))),
            };
            let matches = |candidate: &&&str| candidate.replace('_', "-") == key;
            let Some(name) = known.iter().chain([&default]).find(matches) else {
                return Err(refuse(format!(
                    "{key:?} is not a valid query param, use one of {}",
                    known.join(", ")
                )));
            };
            terms.push(((*name).to_owned(), value));
        }
        Ok(Self { terms })
    }

    /// The last value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.terms.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The value of `key` read as `T`.
    pub fn read<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, Error> {
        self.get(key)
            .map(|value| {
                value.parse().map_err(|_| refuse(format!("{key:?} has the invalid value {value:?}")))
            })
            .transpose()
    }

    /// The comma-separated values of `key` read as `T`.
    pub fn words<T: std::str::FromStr>(&self, key: &str) -> Result<Option<Vec<T>>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let read =
            |word: &str| word.parse().map_err(|_| refuse(format!("{key:?} has the invalid value {word:?}")));
        value.split(',').map(read).collect::<Result<_, _>>().map(Some)
    }
}

fn refuse(detail: String) -> Error {
    Error::bad_request("Invalid search query.").field("q", detail)
}

/// Splits outside double quotes. Several spaces in a row count as one.
fn split(text: &str, at: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        if c == '"' {
            quoted = !quoted;
        }
        if c == at && !quoted {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    if at == ' ' {
        parts.retain(|part| !part.is_empty());
    }
    parts
}

fn unquote(text: &str) -> String {
    text.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["owner", "name", "exact_name", "has-agent"];

    #[test]
    fn searches_of_the_official_client_are_parsed() {
        let check = |q: &str, want: &[(&str, &str)]| {
            let search = Search::parse(q, "name", KNOWN).unwrap();
            let want: Vec<_> = want.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            assert_eq!(search.terms, want, "{q}");
        };
        check("", &[]);
        check("owner:me", &[("owner", "me")]);
        check("owner:me  name:Dev", &[("owner", "me"), ("name", "dev")]);
        check("exact_name:\"hello\"", &[("exact_name", "hello")]);
        check("word", &[("name", "word")]);
        check("name:\"a b:c\"", &[("name", "a b:c")]);
        check("has_agent:connected", &[("has-agent", "connected")]);
    }

    #[test]
    fn a_bare_word_belongs_to_the_default_key() {
        let search = Search::parse("word", "display_name", &["display_name"]).unwrap();
        assert_eq!(search.get("display_name"), Some("word"));
    }

    #[test]
    fn malformed_terms_and_unknown_keys_are_400() {
        for q in [":x", "x:", "a:b:c", "unknown:1", "owner:"] {
            assert_eq!(Search::parse(q, "name", KNOWN).unwrap_err().status(), 400, "{q}");
        }
    }
}
