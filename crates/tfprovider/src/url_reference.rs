//! URLs and URL references, by the rules of Go's parser (terraform 3.7).

use std::fmt;

/// Why a string is not a URL reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("it contains a control character")]
    Control,
    #[error("the part before the first colon is not a scheme")]
    NoScheme,
    #[error("the first part of a path may not contain a colon")]
    ColonInPath,
    #[error("a percent sign is not followed by two hexadecimal digits")]
    Escape,
    #[error("the host contains a character that is not allowed there")]
    Host,
    #[error("the port is not a number")]
    Port,
    #[error("the part before @ contains a character that is not allowed there")]
    User,
}

/// The parts of a URL reference, as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlReference<'a> {
    pub(crate) scheme: &'a str,
    /// User, host and port; none without two slashes.
    authority: Option<&'a str>,
    path: &'a str,
    /// Question mark, query, hash and fragment.
    tail: &'a str,
}

impl<'a> UrlReference<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, Error> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(Error::Control);
        }
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        escapes(fragment)?;
        let (scheme, rest) = scheme(rest)?;
        let hierarchical = &rest[..rest.find('?').unwrap_or(rest.len())];
        let tail = &text[scheme_length(scheme) + hierarchical.len()..];
        if !hierarchical.starts_with('/') {
            if !scheme.is_empty() {
                return Ok(Self { scheme, authority: None, path: hierarchical, tail });
            }
            if hierarchical.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err(Error::ColonInPath);
            }
        }
        let (authority, path) = match hierarchical.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() || !rest.starts_with('/') => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                check_authority(authority)?;
                (Some(authority), path)
            }
            _ => (None, hierarchical),
        };
        escapes(path)?;
        Ok(Self { scheme, authority, path, tail })
    }

    /// The port in the reference, if any.
    pub(crate) fn port(&self) -> Option<u16> {
        let host = self.authority?.rsplit('@').next()?;
        let after_brackets = host.rsplit(']').next()?;
        after_brackets.rsplit_once(':')?.1.parse().ok()
    }

    /// The same host at another path, without a query.
    pub(crate) fn with_path(&self, path: &'a str) -> Self {
        Self { path, tail: "", ..self.clone() }
    }
}

impl fmt::Display for UrlReference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if let Some(authority) = self.authority {
            write!(f, "//{authority}")?;
        }
        write!(f, "{}{}", self.path, self.tail)
    }
}

fn scheme_length(scheme: &str) -> usize {
    if scheme.is_empty() { 0 } else { scheme.len() + 1 }
}

fn scheme(text: &str) -> Result<(&str, &str), Error> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(Error::NoScheme),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn escapes(text: &str) -> Result<(), Error> {
    let bad = |after: &str| {
        let bytes = after.as_bytes();
        bytes.len() < 2 || !bytes[..2].iter().all(u8::is_ascii_hexdigit)
    };
    if text.split('%').skip(1).any(bad) { Err(Error::Escape) } else { Ok(()) }
}

fn check_authority(authority: &str) -> Result<(), Error> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            if !user.chars().all(allowed) {
                return Err(Error::User);
            }
            escapes(user)?;
            host
        }
        None => authority,
    };
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => rest.rsplit_once(']').ok_or(Error::Host)?,
        None => host.split_at(host.rfind(':').unwrap_or(host.len())),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if (!port.is_empty() && !port.starts_with(':')) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Port);
    }
    escapes(host)?;
    // An escaped percent sign begins the zone of an address, in which more escapes are allowed.
    let (name, _zone) = host.split_once("%25").unwrap_or((host, ""));
    if name.split('%').skip(1).any(|after| after.starts_with(|c: char| c.is_ascii_digit() && c < '8')) {
        return Err(Error::Escape);
    }
    let allowed =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    if host.chars().all(allowed) { Ok(()) } else { Err(Error::Host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_everything_is_a_reference() {
        for text in [
            "",
            "/icon/code.svg",
            "icon name.svg",
            "https://example.com",
            "HTTP://user:pw@example.com:8080/a?b=c&%#f",
            "http://[::1]:80/",
            "mailto:someone",
            "vscode://coder.coder-remote/open?x=y",
            "//host/path",
            "https://bücher.example/ü",
            "emoji/🙂",
            "a/b:c",
            "http://host:/",
            "http://b%C3%BCcher.example/",
            "http://[fe80::1%25en0]/",
        ] {
            let url = UrlReference::parse(text);
            assert_eq!(url.map(|url| url.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn malformed_hosts_and_escapes_are_refused() {
        let check =
            |text: &str, error: Error| assert_eq!(UrlReference::parse(text).err(), Some(error), "{text}");
        check("/a%zz", Error::Escape);
        check("/a%2", Error::Escape);
        check("#%", Error::Escape);
        check("https://%41/", Error::Escape);
        check("http://a b/", Error::Host);
        check("http://[::1/", Error::Host);
        check("http://host:port/", Error::Port);
        check("http://us er@host/", Error::User);
        check(":foo", Error::NoScheme);
        check("1a:b", Error::ColonInPath);
        check("a\nb", Error::Control);
    }

    #[test]
    fn ports_and_paths() {
        let port = |text| UrlReference::parse(text).expect("a URL").port();
        assert_eq!(port("https://coder.example:3000/x"), Some(3000));
        assert_eq!(port("https://user:9@coder.example"), None);
        assert_eq!(port("http://[::1]:81"), Some(81));
        assert_eq!(port("http://[::1]"), None);
        let url = UrlReference::parse("https://coder.example:3000/a/b?q=1").expect("a URL");
        assert_eq!(url.with_path("/").to_string(), "https://coder.example:3000/");
    }
}
