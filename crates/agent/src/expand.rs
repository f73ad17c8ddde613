//! Variables and the home directory in paths and values of the manifest.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Replaces `$NAME` and `${NAME}` by `value`; names without a value are replaced by nothing.
pub(crate) fn variables(text: &str, value: impl Fn(&str) -> Option<OsString>) -> OsString {
    let mut expanded = OsString::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, tail) = if let Some(braced) = after.strip_prefix('{') {
            braced.split_once('}').unwrap_or(("", ""))
        } else {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
            after.split_at(end)
        };
        if name.is_empty() {
            // A lone dollar sign stays what it is.
            expanded.push("$");
            rest = after;
            continue;
        }
        expanded.push(value(name).unwrap_or_default());
        rest = tail;
    }
    expanded.push(rest);
    expanded
}

/// The absolute path that a text of the manifest names: `~` and variables are expanded, relative paths are below `base`.
/// Nothing for an empty text.
pub(crate) fn path(
    text: &str,
    home: &Path,
    base: &Path,
    value: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let expanded = match text.strip_prefix('~') {
        Some("") => return Some(home.to_owned()),
        Some(rest) if rest.starts_with('/') => home.join(as_path(&variables(&rest[1..], value))),
        _ => as_path(&variables(text, value)).to_owned(),
    };
    Some(if expanded.is_absolute() { expanded } else { base.join(expanded) })
}

fn as_path(text: &OsStr) -> &Path {
    Path::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str) -> Option<OsString> {
        match name {
            "A" => Some("one".into()),
            "DIR" => Some("/srv".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced() {
        let check = |text: &str, want: &str| assert_eq!(variables(text, value), want, "{text}");
        check("", "");
        check("no variables", "no variables");
        check("$A-${A}_$A_", "one-one_");
        check("$missing.${missing}.", "..");
        check("5$ and $", "5$ and $");
        check("$A$DIR", "one/srv");
        check("${A", "${A");
    }

    /// agent 2.4.
    #[test]
    fn directories_are_absolute() {
        let check = |text: &str, want: Option<&str>| {
            let home = Path::new("/home/ann");
            assert_eq!(path(text, home, home, value).as_deref(), want.map(Path::new), "{text}");
        };
        check("", None);
        check("~", Some("/home/ann"));
        check("~/src/$A", Some("/home/ann/src/one"));
        check("src", Some("/home/ann/src"));
        check("$DIR/x", Some("/srv/x"));
        check("/abs", Some("/abs"));
        check("~other", Some("/home/ann/~other"));
    }
}
