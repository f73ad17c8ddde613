//! Which proxy applies to which address, by the environment variables that curl and Go understand.
//!
//! The matcher of `hyper_util` is not used because it differs from Go, and so from the official client. In `NO_PROXY` it
//! ignores ports, does not know `*.example.com`, lets `.example.com` match `example.com` itself, and lets `*` match names
//! only. It uses the proxy for loopback addresses and none for `ws` and `wss` URLs.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

/// The proxies of this process. `Debug` does not show them, since they may contain passwords.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    exceptions: Vec<Exception>,
}

#[derive(Clone)]
struct Exception {
    host: Pattern,
    port: Option<u16>,
}

#[derive(Clone)]
enum Pattern {
    Everything,
    Network(IpNet),
    /// A domain, and whether only its subdomains match.
    Domain(String, bool),
}

impl Proxies {
    /// No proxy for anything.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals or small letters.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// The same with another source of variables.
    #[must_use]
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let value = lookup(name).filter(|value| !value.trim().is_empty());
            value.or_else(|| lookup(&name.to_lowercase())).filter(|value| !value.trim().is_empty())
        };
        let all = either("ALL_PROXY");
        let proxy = |name| either(name).or_else(|| all.clone()).and_then(|text| parse_proxy(&text));
        // In a CGI program HTTP_PROXY is a request header of the client's choice.
        let http = if lookup("REQUEST_METHOD").is_some() { None } else { proxy("HTTP_PROXY") };
        let exceptions = either("NO_PROXY").unwrap_or_default();
        let exceptions = exceptions.split(',').filter_map(Exception::parse).collect();
        Self { http, https: proxy("HTTPS_PROXY"), exceptions }
    }

    /// The proxy for an `http`, `https`, `ws` or `wss` URL. Loopback addresses and `localhost` have none.
    #[must_use]
    pub fn for_url(&self, url: &Url) -> Option<&Url> {
        let proxy = match url.scheme() {
            "https" | "wss" => self.https.as_ref(),
            _ => self.http.as_ref(),
        }?;
        let host = url.host()?;
        let port = url.port_or_known_default();
        let excepted = is_loopback(&host) || self.exceptions.iter().any(|rule| rule.covers(&host, port));
        (!excepted).then_some(proxy)
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (http, https) = (self.http.is_some(), self.https.is_some());
        f.debug_struct("Proxies").field("http", &http).field("https", &https).finish_non_exhaustive()
    }
}

/// Reads a proxy's address; one without a scheme is an HTTP proxy.
fn parse_proxy(text: &str) -> Option<Url> {
    let text = text.trim();
    let url = Url::parse(text).ok().filter(Url::has_host);
    url.or_else(|| Url::parse(&format!("http://{text}")).ok().filter(Url::has_host))
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => name.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

impl Exception {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_lowercase();
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Self { host: Pattern::Everything, port: None });
        }
        if let Ok(network) = entry.parse() {
            return Some(Self { host: Pattern::Network(network), port: None });
        }
        let with_port = entry.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = with_port.map_or((entry.as_str(), None), |(host, port)| (host, Some(port)));
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self { host: Pattern::Network(address.into()), port });
        }
        let below_only = host.starts_with('.') || host.starts_with("*.");
        let domain = host.trim_start_matches('*').trim_matches('.');
        (!domain.is_empty()).then(|| Self { host: Pattern::Domain(domain.to_owned(), below_only), port })
    }

    fn covers(&self, host: &Host<&str>, port: Option<u16>) -> bool {
        if self.port.is_some() && self.port != port {
            return false;
        }
        match (&self.host, host) {
            (Pattern::Everything, _) => true,
            (Pattern::Network(network), Host::Ipv4(address)) => network.contains(&IpAddr::V4(*address)),
            (Pattern::Network(network), Host::Ipv6(address)) => network.contains(&IpAddr::V6(*address)),
            (Pattern::Domain(domain, below_only), Host::Domain(name)) => {
                let name = name.trim_end_matches('.').to_lowercase();
                let above = name.strip_suffix(domain.as_str());
                above.is_some_and(|above| if above.is_empty() { !below_only } else { above.ends_with('.') })
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        let find =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Proxies::from_lookup(find)
    }

    fn choose(variables: &[(&str, &str)], url: &str) -> Option<String> {
        let url = Url::parse(url).expect("a test URL");
        proxies(variables).for_url(&url).map(|proxy| proxy.host_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn the_scheme_chooses_and_all_is_the_last_resort() {
        let both = [("HTTPS_PROXY", "http://s:1"), ("http_proxy", "p:2"), ("ALL_PROXY", "http://a:3")];
        assert_eq!(choose(&both, "https://x.test").as_deref(), Some("s"));
        assert_eq!(choose(&both, "http://x.test").as_deref(), Some("p"));
        assert_eq!(choose(&both[2..], "http://x.test").as_deref(), Some("a"));
        assert_eq!(choose(&[], "http://x.test"), None);
        assert_eq!(choose(&[("HTTP_PROXY", "p:2"), ("REQUEST_METHOD", "GET")], "http://x.test"), None);
    }

    #[test]
    fn no_proxy_rules() {
        let covered = |rules: &str, url: &str| {
            choose(&[("ALL_PROXY", "http://p:1"), ("NO_PROXY", rules)], url).is_none()
        };
        assert!(covered("*", "http://x.test") && covered("*", "http://10.1.2.3"));
        assert!(covered("a.test, x.test", "http://x.test") && covered("x.test", "https://b.x.test:8443"));
        assert!(!covered("x.test", "http://yx.test") && !covered(".x.test", "http://x.test"));
        assert!(covered(".x.test", "http://b.x.test") && covered("*.x.test", "http://b.x.test"));
        assert!(covered("x.test:81", "http://x.test:81") && !covered("x.test:81", "http://x.test"));
        assert!(covered("10.0.0.0/8", "http://10.1.2.3") && !covered("10.0.0.0/8", "http://11.1.2.3"));
        assert!(covered("10.9.9.9/8", "http://10.1.2.3"), "bits behind the prefix are ignored, as in Go");
        assert!(covered("0.0.0.0/0", "http://11.1.2.3") && !covered("0.0.0.0/0", "http://[fd12::1]"));
        assert!(covered("10.1.2.3", "http://10.1.2.3") && !covered("10.1.2.3", "http://10.1.2.4"));
        assert!(!covered("10.0.0.0/33", "http://10.1.2.3") && !covered("10.0.0.0/8", "http://x.test"));
        assert!(covered("fd00::/8", "http://[fd12::1]") && covered("[fd12::1]:81", "http://[fd12::1]:81"));
    }

    #[test]
    fn loopback_addresses_have_no_proxy() {
        for url in ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:1"] {
            assert_eq!(choose(&[("ALL_PROXY", "http://p:1")], url), None, "{url}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let text = format!("{:?}", proxies(&[("ALL_PROXY", "http://me:hunter2@p:1")]));
        assert!(!text.contains("hunter2"), "{text}");
    }
}
