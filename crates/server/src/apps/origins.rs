//! Which pages may call an app from a script. On host names of their own, the apps of one user may call each other; the server
//! answers for them (agent 6.4). Pages of other origins may not change anything in an app that is not public.

use axum::body::Body;
use axum::response::Response;
use coder_domain::apps::SubdomainName;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method as HttpMethod, StatusCode};
use url::Url;

use super::grant::{Grant, Method};
use super::{Head, destination};
use crate::authn::csrf;
use crate::config::Config;
use crate::http::Error;
use crate::http::origin::Encrypted;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
/// Values of `Vary` that belong to the answers about origins.
const VARYING: [&str; 3] = ["origin", "access-control-request-method", "access-control-request-headers"];

/// 403 for a request that changes something, or becomes a WebSocket, and was made by a page of another origin. Public apps, and
/// those whose template leaves such questions to them, decide for themselves.
pub(super) fn refuse_foreign(config: &Config, grant: &Grant, request: &Head) -> Result<(), Error> {
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let changes = !csrf::is_safe(request.method());
    if grant.public || !(changes || upgrades) {
        return Ok(());
    }
    let is_foreign = match grant.request.access_method {
        Method::Path => csrf::is_foreign(config, request.headers(), request.extensions()),
        Method::Subdomain => {
            let mut origins = request.headers().get_all(header::ORIGIN).iter();
            !leaves_to_app(grant) && !origins.all(|origin| is_of_same_user(config, grant, request, origin))
        }
    };
    if !is_foreign {
        return Ok(());
    }
    Err(Error::new(StatusCode::FORBIDDEN, "This request was made by a page of another origin.").detail(
        "Share the app with everybody, or let the template pass such requests on (cors_behavior passthru).",
    ))
}

fn leaves_to_app(grant: &Grant) -> bool {
    grant.cors_behavior == "passthru"
}

/// Whether an origin is the app itself, or another app of the same user.
fn is_of_same_user(config: &Config, grant: &Grant, request: &Head, origin: &HeaderValue) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok());
    let Some(origin) = origin.filter(|origin| matches!(origin.scheme(), "http" | "https")) else {
        return false;
    };
    let Some(wildcard) = &config.apps.wildcard else { return false };
    let name = origin.host_str().and_then(|host| wildcard.label(host));
    let name = name.and_then(|label| SubdomainName::parse(label).ok());
    let own_port = destination::host(request).and_then(port_of);
    // An attacker between a browser and a host of apps could replace a page that is loaded without TLS.
    let is_secure = config.has_secure_cookies() || request.extensions().get::<Encrypted>().is_some();
    if is_secure && origin.scheme() == "http" {
        return false;
    }
    name.is_some_and(|name| name.user == grant.request.username_or_id) && origin.port() == own_port
}

/// The port of a host, if it names one that is not the usual one.
fn port_of(host: &str) -> Option<u16> {
    let port = host.rsplit_once(':')?.1.parse().ok()?;
    (!matches!(port, 80 | 443)).then_some(port)
}

/// What the server says about origins in the place of an app.
pub(super) struct Answers {
    /// The origin that may read responses.
    allowed: Option<HeaderValue>,
}

impl Answers {
    /// None when the app answers for itself.
    pub(super) fn of(config: &Config, grant: &Grant, request: &Head) -> Option<Self> {
        if grant.request.access_method == Method::Path || leaves_to_app(grant) {
            return None;
        }
        let origin = request.headers().get(header::ORIGIN);
        let allowed = origin.filter(|origin| is_of_same_user(config, grant, request, origin)).cloned();
        Some(Self { allowed })
    }

    /// The answer to a preflight request; none when `request` is another one.
    pub(super) fn preflight(&self, request: &Head) -> Option<Response> {
        let headers = request.headers();
        let is_preflight = *request.method() == HttpMethod::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight {
            return None;
        }
        let mut response = Response::new(Body::empty());
        let answer = response.headers_mut();
        if self.allowed.is_some() {
            answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            if let Some(names) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
                answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
            }
        }
        self.add(answer);
        Some(response)
    }

    /// Replaces what an app says.
    pub(super) fn replace(&self, headers: &mut HeaderMap) {
        let own: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with("access-control-")).cloned().collect();
        for name in own {
            headers.remove(name);
        }
        let varying = headers.get_all(header::VARY).iter().filter_map(|value| value.to_str().ok());
        let varying: Vec<_> =
            varying.flat_map(|line| line.split(',')).map(str::trim).map(str::to_owned).collect();
        let kept = |name: &&String| !VARYING.iter().any(|one| one.eq_ignore_ascii_case(name));
        let kept: Vec<_> = varying.iter().filter(kept).map(String::as_str).collect();
        headers.remove(header::VARY);
        if let Ok(kept) = HeaderValue::from_str(&kept.join(", "))
            && !kept.is_empty()
        {
            headers.insert(header::VARY, kept);
        }
        self.add(headers);
    }

    fn add(&self, headers: &mut HeaderMap) {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = &self.allowed {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

#[cfg(test)]
mod tests {
    use coder_domain::apps::WildcardHost;
    use coder_domain::ids::{AgentId, UserId, WorkspaceId};

    use super::*;
    use crate::apps::grant::tests::request;

    fn is_same(access_url: &str, host: &str, origin: &str) -> bool {
        let mut config = Config { access_url: Some(access_url.parse().unwrap()), ..Config::default() };
        config.apps.wildcard = Some(WildcardHost::parse("*.apps.test").unwrap());
        let grant = Grant::new(request("web"), UserId::NIL, WorkspaceId::random(), AgentId::random());
        let head = http::Request::get("/").header("host", host).body(()).unwrap();
        is_of_same_user(&config, &grant, &head, &HeaderValue::from_str(origin).unwrap())
    }

    #[test]
    fn apps_of_one_user_are_of_the_same_user() {
        let plain = |origin| is_same("http://coder.test:3000", "web--dev--ann.apps.test:3000", origin);
        assert!(plain("http://other--prod--ann.apps.test:3000"));
        for foreign in [
            "http://web--dev--eve.apps.test:3000",
            "http://web--dev--ann.apps.test",
            "http://web--dev--ann.evil.test:3000",
            "null",
        ] {
            assert!(!plain(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_page_without_tls_is_no_page_of_the_same_user_over_tls() {
        let secure = |origin| is_same("https://coder.test", "web--dev--ann.apps.test", origin);
        assert!(secure("https://other--prod--ann.apps.test"));
        assert!(!secure("http://other--prod--ann.apps.test"));
    }
}
