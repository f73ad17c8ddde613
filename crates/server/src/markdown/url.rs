//! Addresses of links as the official renderer writes them: relative ones are resolved against nothing.

/// Whether the address is written behind the link's text. Invalid addresses and anchors in the same text are not.
pub(super) fn is_shown(url: &str) -> bool {
    let is_anchor = url.strip_prefix('#').is_some_and(|anchor| !anchor.is_empty() && !anchor.contains('%'));
    !is_anchor && is_valid(url)
}

/// The address to write.
pub(super) fn resolved(url: &str) -> String {
    if scheme(url).is_some() || url.starts_with("//") || !is_valid(url) {
        return url.to_owned();
    }
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (path, rest) = url.split_at(end);
    if path.is_empty() {
        return rest.to_owned();
    }
    format!("/{}{rest}", escaped(&without_dots(path)))
}

/// The scheme of an absolute address.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_plain)).then_some(scheme)
}

fn is_valid(url: &str) -> bool {
    if url.chars().any(|c| c.is_ascii_control()) {
        return false;
    }
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let path = before.split_once('?').map_or(before, |(path, _)| path);
    if !has_valid_escapes(path) || !has_valid_escapes(fragment) {
        return false;
    }
    let behind = match scheme(path) {
        Some(scheme) => &path[scheme.len() + 1..],
        // A colon in the first segment would look like a scheme.
        None if path.split('/').next().is_some_and(|first| first.contains(':')) => return false,
        None => path,
    };
    let Some(authority) = behind.strip_prefix("//") else { return true };
    let authority = authority.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match host.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((_, port)) => port,
            None => return false,
        },
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    is_port && !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '}', '|'])
}

fn has_valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes();
        digits.len() >= 2 && digits[..2].iter().all(u8::is_ascii_hexdigit)
    })
}

/// Without `.` and `..` segments, and without a slash at the start.
fn without_dots(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let last = path.rsplit('/').next().unwrap_or_default();
    for segment in path.trim_start_matches('/').split('/') {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    if matches!(last, "." | "..") {
        segments.push("");
    }
    segments.join("/")
}

fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for c in path.chars() {
        if c.is_ascii() && !" \"<>\\^`{|}".contains(c) {
            text.push(c);
        } else {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_and_invalid_addresses_are_not_shown() {
        for shown in [
            "",
            "#",
            "#a%20b",
            "a#b",
            "a%41",
            "a?%zz",
            "mailto:x",
            "a/b:c",
            "//host:80/",
            "//u:p@host:80/x",
            "//[::1]:80/",
            "//[::1]",
            "https://host:/",
            "https://a b@host/",
            "x+y-z.1:b",
            "a?b:c",
        ] {
            assert!(is_shown(shown), "{shown}");
        }
        for hidden in [
            "#a",
            "a\u{7}b",
            "a%",
            "a%2",
            "a%zz",
            "a%4g",
            "a#%zz",
            "1a:b",
            "x y:z",
            ":b",
            "//host:8a/",
            "//[::1",
            "//[::1]80",
            "//[::1]:8a",
            "https://h st/",
            "https://h<t/",
            "https://h|t",
        ] {
            assert!(!is_shown(hidden), "{hidden}");
        }
    }

    #[test]
    fn relative_addresses_are_resolved_against_nothing() {
        for (url, want) in [
            ("https://x/../y", "https://x/../y"),
            ("//x/../y", "//x/../y"),
            ("a%2/..", "a%2/.."),
            ("", ""),
            ("?a=/../b", "?a=/../b"),
            ("#x", "#x"),
            ("a", "/a"),
            ("/a/b", "/a/b"),
            ("//", "//"),
            ("a/./b/../c", "/a/c"),
            ("a/b/..", "/a/"),
            ("a/.", "/a/"),
            ("..", "/"),
            ("../x?a/../b#c", "/x?a/../b#c"),
            ("x#a?b", "/x#a?b"),
            ("a b\"<>\\^`{|}~", "/a%20b%22%3C%3E%5C%5E%60%7B%7C%7D~"),
            ("ä?ö", "/%C3%A4?ö"),
        ] {
            assert_eq!(resolved(url), want, "{url}");
        }
    }
}
