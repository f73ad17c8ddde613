//! The wildcard host (`--wildcard-access-url`): apps get host names of their own under it (agent 6.1).

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

/// A host name with a `*` at its start, such as `*.apps.example.com` or `*--apps.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WildcardHost {
    /// What follows the `*`, in lower case and without the port.
    suffix: String,
    port: Option<u16>,
}

/// The text is not a wildcard host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWildcard {
    #[error("give a host name without a scheme, such as *.apps.example.com")]
    Scheme,
    #[error("the host name must begin with its only *, such as *.apps.example.com")]
    Star,
    #[error("the host name needs a dot, such as *.apps.example.com")]
    Dot,
    #[error("the host name has a character that host names do not have")]
    Character,
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

impl WildcardHost {
    /// Reads the setting.
    ///
    /// # Errors
    /// [`InvalidWildcard`].
    pub fn parse(text: &str) -> Result<Self, InvalidWildcard> {
        let text = text.trim().to_ascii_lowercase();
        if text.contains("://") {
            return Err(InvalidWildcard::Scheme);
        }
        let (host, port) = text.split_once(':').map_or((&*text, None), |(host, port)| (host, Some(port)));
        let suffix =
            host.strip_prefix('*').filter(|suffix| !suffix.contains('*')).ok_or(InvalidWildcard::Star)?;
        if !suffix.contains('.') {
            return Err(InvalidWildcard::Dot);
        }
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        if !suffix.bytes().all(is_host) || suffix.ends_with('.') || suffix.contains("..") {
            return Err(InvalidWildcard::Character);
        }
        let read = |port: &str| port.parse().ok().filter(|port| *port != 0).ok_or(InvalidWildcard::Port);
        Ok(Self { suffix: suffix.to_owned(), port: port.map(read).transpose()? })
    }

    /// What stands in the place of `*` in a `Host` header; none when it is another host.
    #[must_use]
    pub fn label<'a>(&self, host: &'a str) -> Option<&'a str> {
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let host = host.strip_suffix('.').unwrap_or(host);
        let at = host.len().checked_sub(self.suffix.len()).filter(|at| host.is_char_boundary(*at))?;
        let (label, suffix) = host.split_at(at);
        (suffix.eq_ignore_ascii_case(&self.suffix) && !label.is_empty() && !label.contains('.'))
            .then_some(label)
    }

    /// The port of links to apps: its own, else that of the access URL.
    #[must_use]
    pub fn port(&self, access_url: Option<u16>) -> Option<u16> {
        self.port.or(access_url)
    }

    /// The host with `label` in the place of `*`, and the port of links.
    #[must_use]
    pub fn with_label(&self, label: &str, access_url_port: Option<u16>) -> String {
        let port = self.port(access_url_port).map(|port| format!(":{port}")).unwrap_or_default();
        format!("{label}{}{port}", self.suffix)
    }

    /// The domain for which the cookie of apps is set: all apps then share one sign-in. None when that domain may have other
    /// hosts than apps, or when browsers refuse it; each app has a cookie of its own then.
    #[must_use]
    pub fn cookie_domain(&self) -> Option<&str> {
        let parent = self.suffix.strip_prefix('.')?;
        (parent.contains('.') && parent.parse::<IpAddr>().is_err()).then_some(parent)
    }

    /// A name for cookies of this host alone: 32 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(self.with_label("*", None).as_bytes());
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> WildcardHost {
        WildcardHost::parse(text).unwrap()
    }

    #[test]
    fn settings_are_checked() {
        for (text, error) in [
            ("https://*.apps.test", InvalidWildcard::Scheme),
            ("apps.test", InvalidWildcard::Star),
            ("a.*.test", InvalidWildcard::Star),
            ("*.*.test", InvalidWildcard::Star),
            ("", InvalidWildcard::Star),
            ("*", InvalidWildcard::Dot),
            ("*apps", InvalidWildcard::Dot),
            ("*.apps/x.test", InvalidWildcard::Character),
            ("*.apps.test.", InvalidWildcard::Character),
            ("*..test", InvalidWildcard::Character),
            ("*.apps.test:0", InvalidWildcard::Port),
            ("*.apps.test:x", InvalidWildcard::Port),
        ] {
            assert_eq!(WildcardHost::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn hosts_match_without_regard_to_case_port_and_last_dot() {
        let dotted = host("*.Apps.Example.com");
        for (given, label) in [
            ("x.apps.example.com", Some("x")),
            ("x--y--z.APPS.example.COM:8443", Some("x--y--z")),
            ("x.apps.example.com.", Some("x")),
            ("apps.example.com", None),
            (".apps.example.com", None),
            ("a.b.apps.example.com", None),
            ("xapps.example.com", None),
            ("x.apps.example.com.evil.test", None),
            ("", None),
            ("ä", None),
        ] {
            assert_eq!(dotted.label(given), label, "{given}");
        }
        let suffix = host("*--apps.example.com:8443");
        assert_eq!(suffix.label("x--y--z--apps.example.com"), Some("x--y--z"));
        assert_eq!(suffix.label("apps.example.com"), None);
        let long = format!("{}.apps.example.com", "a".repeat(10_000));
        assert_eq!(dotted.label(&long).map(str::len), Some(10_000));
    }

    #[test]
    fn links_have_a_port() {
        assert_eq!(host("*.apps.test").with_label("x", Some(3000)), "x.apps.test:3000");
        assert_eq!(host("*.apps.test:8443").with_label("x", Some(3000)), "x.apps.test:8443");
        assert_eq!(host("*.apps.test").with_label("*", None), "*.apps.test");
    }

    #[test]
    fn cookies_are_only_for_hosts_of_apps() {
        for (text, domain) in [
            ("*.apps.example.com", Some("apps.example.com")),
            ("*--apps.example.com", None),
            ("*.localhost", None),
            ("*.127.0.0.1", None),
        ] {
            assert_eq!(host(text).cookie_domain(), domain, "{text}");
        }
        assert_eq!(host("*.apps.test").hash().len(), 32);
        assert_ne!(host("*.apps.test").hash(), host("*.apps2.test").hash());
    }
}
