//! Protection of browser sessions: a cookie alone does not change anything (http-api 2.1).
//!
//! Browsers name the page that made a request in `Sec-Fetch-Site` and `Origin`, and no page can forge either. Requests of
//! other origins are refused. Sibling domains are other origins, too: they share our site and can set cookies for us. The
//! token is derived from the session, so a cookie that another origin has set does not reveal it.

use axum::extract::Request;
use coder_domain::secret::Secret;
use http::{Extensions, HeaderMap, Method, StatusCode, header};
use url::Url;

use super::session::{Carrier, Presented};
use super::token;
use crate::config::Config;
use crate::http::error::Error;
use crate::http::origin::Encrypted;

/// Carries the token that proves a request came from one of our own pages.
pub const HEADER: &str = "x-csrf-token";
/// Holds the same token.
pub const COOKIE: &str = "csrf_token";

#[must_use]
pub fn token(session: &Secret) -> String {
    token::bound(session, "csrf", "")
}

/// Refuses a request that changes something, or becomes a WebSocket, when its only credential is the cookie and a page of
/// another origin made it. A request that changes something must also carry the token of the session.
pub fn check(config: &Config, request: &Request, presented: &Presented) -> Result<(), Error> {
    let changes = !is_safe(request.method());
    let upgrades = request.headers().contains_key(header::UPGRADE);
    if presented.carrier != Carrier::Cookie || presented.repeated || !(changes || upgrades) {
        return Ok(());
    }
    if !changes {
        return refuse_foreign(config, request.headers(), request.extensions());
    }
    let header = request.headers().get(HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_own = is_token_of(&presented.token, header);
    if is_own && !is_foreign(config, request.headers(), request.extensions()) {
        return Ok(());
    }
    Err(Error::bad_request(
        "Something is wrong with your CSRF token. Please refresh the page. If this error persists, try clearing your cookies.",
    ))
}

/// Whether a text is the token of this session.
#[must_use]
pub fn is_token_of(session: &Secret, text: &str) -> bool {
    coder_domain::key::same_secret(&token(session), text)
}

/// Whether requests of this method change nothing.
#[must_use]
pub const fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// 403 when a browser says that a page of another origin made the request.
pub fn refuse_foreign(config: &Config, headers: &HeaderMap, extensions: &Extensions) -> Result<(), Error> {
    if !is_foreign(config, headers, extensions) {
        return Ok(());
    }
    Err(Error::new(StatusCode::FORBIDDEN, "This request was made by a page of another origin.")
        .detail("If it was not, set --access-url of the server to the address that people use."))
}

/// Whether a browser says that a page of another origin made the request. Other clients send neither header.
#[must_use]
pub fn is_foreign(config: &Config, headers: &HeaderMap, extensions: &Extensions) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter().peekable();
    let says_site = sites.peek().is_some();
    if sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none")) {
        return true;
    }
    // Behind a proxy that changes Host, Origin may look foreign, but Sec-Fetch-Site is right.
    if says_site && headers.get_all("sec-fetch-site").iter().all(|site| site.as_bytes() == b"same-origin") {
        return false;
    }
    let encrypted = extensions.get::<Encrypted>().is_some();
    !headers.get_all(header::ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok());
        origin.is_some_and(|origin| is_ours(config, &origin, headers, encrypted))
    })
}

/// Whether pages of this origin are ours: that of the access URL, or where the request was sent. `null` is not a URL.
fn is_ours(config: &Config, origin: &Url, headers: &HeaderMap, encrypted: bool) -> bool {
    if !matches!(origin.scheme(), "http" | "https") {
        return false;
    }
    if config.access_url.as_ref().is_some_and(|url| url.origin() == origin.origin()) {
        return true;
    }
    // Without TLS here, a proxy may terminate it. Over HTTPS, a page that was loaded without it is not ours.
    if origin.scheme() == "http" && (encrypted || config.has_secure_cookies()) {
        return false;
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let sent_to = host.and_then(|host| Url::parse(&format!("{}://{host}/", origin.scheme())).ok());
    sent_to.is_some_and(|url| url.origin() == origin.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_foreign_with(access_url: Option<&str>, encrypted: bool, headers: &[(&str, &str)]) -> bool {
        let config = Config { access_url: access_url.map(|url| url.parse().unwrap()), ..Config::default() };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let mut extensions = Extensions::new();
        if encrypted {
            extensions.insert(Encrypted);
        }
        is_foreign(&config, &map, &extensions)
    }

    #[test]
    fn origins() {
        let from =
            |origin: &str| is_foreign_with(None, false, &[("host", "coder.example.com"), ("origin", origin)]);
        for ours in ["https://coder.example.com", "http://coder.example.com", "https://CODER.example.com:443"]
        {
            assert!(!from(ours), "{ours}");
        }
        for foreign in [
            "null",
            "",
            "https://evil.example.com",
            "https://example.com",
            "https://coder.example.com.evil.com",
            "https://coder.example.com:8443",
            "https://coder.example.com@evil.com",
            "file://coder.example.com",
            "coder.example.com",
        ] {
            assert!(from(foreign), "{foreign:?}");
        }
        assert!(!is_foreign_with(None, false, &[("host", "coder.example.com")]), "no browser");
        let two = [("host", "a.test"), ("origin", "https://a.test"), ("origin", "https://evil.test")];
        assert!(is_foreign_with(None, false, &two));
        assert!(is_foreign_with(None, false, &[("origin", "https://a.test")]), "no Host");
        let port = [("host", "127.0.0.1:3000"), ("origin", "http://127.0.0.1:3000")];
        assert!(!is_foreign_with(None, false, &port));
    }

    #[test]
    fn the_access_url_counts_whatever_host_a_proxy_writes() {
        let access = Some("https://coder.example.com/");
        let behind =
            |origin: &str| is_foreign_with(access, false, &[("host", "10.0.0.1"), ("origin", origin)]);
        assert!(!behind("https://coder.example.com"));
        assert!(behind("http://coder.example.com"), "a page that came without TLS");
        assert!(behind("https://evil.example.com"));
    }

    #[test]
    fn a_page_without_tls_is_not_ours_over_tls() {
        let headers = [("host", "a.test"), ("origin", "http://a.test")];
        assert!(is_foreign_with(None, true, &headers));
        assert!(!is_foreign_with(None, false, &headers));
    }

    #[test]
    fn sec_fetch_site_counts_before_origin() {
        let site = |site: &str, origin: &str| {
            is_foreign_with(None, false, &[("host", "a.test"), ("sec-fetch-site", site), ("origin", origin)])
        };
        assert!(!site("same-origin", "https://behind-a-proxy.test"));
        assert!(site("none", "https://evil.test") && site("none", "null"));
        assert!(!site("none", "https://a.test"));
        for foreign in ["same-site", "cross-site", "", "x"] {
            assert!(site(foreign, "https://a.test"), "{foreign}");
        }
        let two = [("host", "a.test"), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")];
        assert!(is_foreign_with(None, false, &two));
    }

    #[test]
    fn a_cookie_alone_changes_nothing() {
        let session = Secret::new("session");
        let proof = token(&session);
        let (proof, upgrade) = ((HEADER, &*proof), ("upgrade", "websocket"));
        let (own, foreign) = (("origin", "https://a.test"), ("origin", "https://evil.test"));
        let (cookie, both, explicit) =
            ((Carrier::Cookie, false), (Carrier::Cookie, true), (Carrier::Explicit, true));
        for ((carrier, repeated), method, headers, want) in [
            (cookie, Method::GET, &[foreign][..], None),
            (cookie, Method::HEAD, &[foreign], None),
            (cookie, Method::GET, &[foreign, upgrade], Some(403)),
            (cookie, Method::GET, &[own, upgrade], None),
            (cookie, Method::GET, &[upgrade], None),
            (cookie, Method::POST, &[], Some(400)),
            (cookie, Method::POST, &[own], Some(400)),
            (cookie, Method::DELETE, &[own, (HEADER, "x")], Some(400)),
            (cookie, Method::POST, &[proof], None),
            (cookie, Method::PUT, &[proof, own], None),
            (cookie, Method::POST, &[proof, foreign], Some(400)),
            (both, Method::POST, &[foreign], None),
            (both, Method::GET, &[foreign, upgrade], None),
            (explicit, Method::POST, &[foreign], None),
            (explicit, Method::GET, &[foreign, upgrade], None),
        ] {
            let mut request = Request::builder().method(method.clone()).header("host", "a.test");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(axum::body::Body::empty()).unwrap();
            let presented = Presented { token: session.clone(), carrier, repeated };
            let refused = check(&Config::default(), &request, &presented).err();
            let status = refused.map(|error| error.status().as_u16());
            assert_eq!(status, want, "{method} {carrier:?} {repeated} {headers:?}");
        }
    }

    #[test]
    fn tokens_belong_to_one_session() {
        let (one, two) = (Secret::new("one"), Secret::new("two"));
        assert!(is_token_of(&one, &token(&one)));
        assert!(!is_token_of(&two, &token(&one)) && !is_token_of(&one, ""));
    }
}
