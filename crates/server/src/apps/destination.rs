//! Tells requests for apps from requests for the server's own pages, before any other layer sees them.

use axum::extract::Request;
use coder_domain::apps::PathAddress;
use http::header;

use crate::config::Config;
use crate::http::AccessUrl;

/// The host that ends a visit: it redirects to the server's own pages.
const LOGOUT: &str = "coder-logout";

/// Where a request goes that is not for the server's own pages. It stays in the extensions of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A host name under the wildcard host; what takes the place of `*`.
    Host(String),
    /// The host that redirects to the access URL.
    Logout,
    /// `/@user/…`
    Path,
}

impl Destination {
    /// The destination of a request; none for the server's own pages.
    #[must_use]
    pub fn of(config: &Config, request: &Request) -> Option<Self> {
        if let Some(label) = label(config, request) {
            return Some(if label == LOGOUT { Self::Logout } else { Self::Host(label) });
        }
        PathAddress::is_one(request.uri().path()).then_some(Self::Path)
    }

    /// A name for metrics.
    #[must_use]
    pub const fn route(&self) -> &'static str {
        match self {
            Self::Host(_) | Self::Logout => "(app host)",
            Self::Path => "/@{user}/{workspace}",
        }
    }
}

fn label(config: &Config, request: &Request) -> Option<String> {
    let wildcard = config.apps.wildcard.as_ref()?;
    let host = host(request)?;
    let own = config.access_url.as_ref().and_then(|url| url.host_str());
    let bare = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if own.is_some_and(|own| own.eq_ignore_ascii_case(bare)) {
        return None;
    }
    wildcard.label(host).map(str::to_ascii_lowercase)
}

/// The host that a request was sent to: of HTTP/2 in the URI, else in the header.
pub(super) fn host<B>(request: &http::Request<B>) -> Option<&str> {
    let in_uri = request.uri().authority().map(http::uri::Authority::as_str);
    in_uri.or_else(|| request.headers().get(header::HOST)?.to_str().ok())
}

/// The port of the access URL, for links to apps.
pub fn access_port(url: &AccessUrl) -> Option<u16> {
    url::Url::parse(&url.0).ok().and_then(|url| url.port())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use coder_domain::apps::WildcardHost;

    use super::*;

    #[test]
    fn hosts_come_before_paths_and_the_access_url_before_both() {
        let mut config =
            Config { access_url: Some("https://www.example.com".parse().unwrap()), ..Config::default() };
        config.apps.wildcard = Some(WildcardHost::parse("*.example.com").unwrap());
        let of = |host: &str, path: &str| {
            let request = Request::builder().uri(path).header("host", host).body(Body::empty()).unwrap();
            Destination::of(&config, &request)
        };
        assert_eq!(of("www.example.com", "/"), None);
        assert_eq!(of("WWW.example.com:443", "/api/v2/users/me"), None);
        assert_eq!(of("www.example.com", "/@ann/dev/apps/x/"), Some(Destination::Path));
        assert_eq!(
            of("App--dev--ann.example.com", "/@x"),
            Some(Destination::Host("app--dev--ann".to_owned()))
        );
        assert_eq!(of("coder-logout.example.com", "/"), Some(Destination::Logout));
        assert_eq!(of("example.com", "/"), None);
        assert_eq!(of("127.0.0.1:3000", "/"), None);
        assert_eq!(of(&format!("{}.example.org", "a".repeat(10_000)), "/"), None);
    }
}
