//! What is removed from and added to requests to apps and their responses (agent 6.4). Credentials of this deployment never reach
//! an app, and an app never sets them.

use std::fmt::Write as _;

use coder_api::headers::{SESSION_COOKIE, SESSION_TOKEN};
use coder_domain::key::ApiToken;
use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};

use super::grant::{self, Method};
use super::sign_in::{COOKIE_PREFIX, PARAMETER};
use super::visitor::PATH_COOKIE;
use crate::authn::{cookies, csrf};

/// Headers that concern one connection only.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// By these an app under a path could change the server's own pages.
const HOST_WIDE: [HeaderName; 3] = [
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("clear-site-data"),
    header::STRICT_TRANSPORT_SECURITY,
];
const ALT_SVC: HeaderName = HeaderName::from_static("alt-svc");

/// Where a request came from, as its headers tell the app.
pub(super) struct Forwarded<'a> {
    /// The client, as far as trusted proxies are believed.
    pub(super) client: String,
    /// Whether a trusted proxy sent the request: what it says is kept.
    pub(super) by_proxy: bool,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    /// The headers in which trusted proxies name clients.
    pub(super) proxy_headers: &'a [String],
}

/// Whether a cookie is one of this deployment's own credentials.
fn is_credential(name: &str) -> bool {
    let own = [
        SESSION_COOKIE,
        cookies::OAUTH_STATE,
        cookies::OAUTH_REDIRECT,
        cookies::OAUTH_VERIFIER,
        PATH_COOKIE,
        grant::COOKIE,
    ];
    own.into_iter().any(|own| own.eq_ignore_ascii_case(name))
        || name.get(..COOKIE_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(COOKIE_PREFIX))
}

/// Whether a connection would go on with HTTP: its further requests would pass unchecked.
fn is_http(protocol: &HeaderValue) -> bool {
    let names = protocol.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut names = names.map(<[u8]>::to_ascii_lowercase);
    names.any(|name| [&b"h2c"[..], b"http", b"tls"].iter().any(|http| name.starts_with(http)))
}

/// Removes the headers of one connection. The protocol that the connection is to change to, if it is.
fn remove_hop_by_hop(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let options = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let options: Vec<_> =
        options.flat_map(|line| line.split(',')).map(|name| name.trim().to_owned()).collect();
    let upgrades = options.iter().any(|option| option.eq_ignore_ascii_case("upgrade"));
    let protocol = headers.get(header::UPGRADE).filter(|protocol| upgrades && !is_http(protocol)).cloned();
    for name in options.iter().filter_map(|option| HeaderName::from_bytes(option.as_bytes()).ok()) {
        // A client must not make its own request lose these.
        if ![header::HOST, header::COOKIE, FORWARDED_FOR, FORWARDED_PROTO].contains(&name) {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP.into_iter().chain([KEEP_ALIVE, PROXY_CONNECTION, HTTP2_SETTINGS]) {
        headers.remove(name);
    }
    protocol
}

/// Prepares the headers of a request for the app. The protocol that the connection is to change to, if it is.
pub(super) fn prepare_request(headers: &mut HeaderMap, from: &Forwarded<'_>) -> Option<HeaderValue> {
    let protocol = remove_hop_by_hop(headers);
    headers.remove(header::EXPECT);
    headers.remove(SESSION_TOKEN);
    let bears_token = headers.get_all(header::AUTHORIZATION).iter().any(is_api_token);
    if bears_token {
        headers.remove(header::AUTHORIZATION);
    }
    remove_credentials(headers);
    if !from.by_proxy {
        headers.remove(FORWARDED_FOR);
        headers.remove(FORWARDED_PROTO);
        for name in from.proxy_headers.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        {
            headers.remove(name);
        }
    }
    let earlier = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let chain: Vec<_> = earlier.chain([&*from.client]).collect();
    if let Ok(chain) = HeaderValue::from_str(&chain.join(", ")) {
        headers.insert(FORWARDED_FOR, chain);
    }
    if let Entry::Vacant(entry) = headers.entry(FORWARDED_PROTO) {
        entry.insert(HeaderValue::from_static(from.scheme));
    }
    if let Some(protocol) = &protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    protocol
}

/// Whether a value of `Authorization` is a token of this deployment and not one of the app's.
fn is_api_token(value: &HeaderValue) -> bool {
    let Some((scheme, token)) = value.to_str().ok().and_then(|text| text.split_once(' ')) else {
        return false;
    };
    scheme.eq_ignore_ascii_case("bearer") && ApiToken::parse(token.trim()).is_some()
}

/// Removes our cookies and keeps the app's, byte for byte.
fn remove_credentials(headers: &mut HeaderMap) {
    let lines: Vec<_> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    for line in lines {
        let name = |pair: &[u8]| {
            let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
            String::from_utf8_lossy(name).trim().to_owned()
        };
        let pairs = line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let kept: Vec<_> = pairs.filter(|pair| !pair.is_empty() && !is_credential(&name(pair))).collect();
        if kept.is_empty() {
            continue;
        }
        if let Ok(line) = HeaderValue::from_bytes(&kept.join(&b"; "[..])) {
            headers.append(header::COOKIE, line);
        }
    }
}

/// The query without parameters that carry credentials of this deployment; the rest byte for byte.
pub(super) fn query_without_credentials(query: &str) -> String {
    let mut kept = String::new();
    for pair in query.split('&') {
        let mut parsed = url::form_urlencoded::parse(pair.as_bytes());
        let is_ours = parsed.next().is_some_and(|(name, value)| {
            name == SESSION_COOKIE
                || name == PARAMETER
                || (name == "access_token" && ApiToken::parse(&value).is_some())
        });
        if !is_ours {
            let separator = if kept.is_empty() { "" } else { "&" };
            write!(kept, "{separator}{pair}").expect("writing to a String cannot fail");
        }
    }
    kept
}

/// The name under which browsers return a cookie. They return one without a name, `=a=1`, as `a=1`.
fn returned_name(cookie: &HeaderValue) -> String {
    let text = cookie.as_bytes();
    let begin = text.iter().position(|byte| !(*byte == b'=' || byte.is_ascii_whitespace()));
    let name = text[begin.unwrap_or(text.len())..].split(|byte| *byte == b'=').next().unwrap_or_default();
    String::from_utf8_lossy(name).trim().to_owned()
}

/// Prepares the headers of an app's response. The protocol that the connection has changed to, if it has.
pub(super) fn prepare_response(headers: &mut HeaderMap, method: Method) -> Option<HeaderValue> {
    let protocol = remove_hop_by_hop(headers);
    // It would lead browsers to another server for this host.
    headers.remove(ALT_SVC);
    if method == Method::Path {
        for name in HOST_WIDE {
            headers.remove(name);
        }
    }
    let set: Vec<_> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for cookie in set {
        let name = returned_name(&cookie);
        let is_ours = is_credential(&name) || (method == Method::Path && name == csrf::COOKIE);
        if !is_ours {
            headers.append(header::SET_COOKIE, cookie);
        }
    }
    protocol
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        map
    }

    fn from(by_proxy: bool) -> Forwarded<'static> {
        Forwarded { client: "192.0.2.1".to_owned(), by_proxy, scheme: "https", proxy_headers: &[] }
    }

    fn lines(headers: &HeaderMap, name: &str) -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn credentials_do_not_reach_the_app() {
        let mut headers = map(&[
            ("cookie", "a=1; coder_session_token=x-y;b=\"2\" ; coder_signed_app_token=t; oauth_state=s"),
            ("cookie", "coder_subdomain_app_session_token_0123=k; Coder_Session_Token=u"),
            ("cookie", "coder_path_app_session_token=p; c"),
            ("coder-session-token", "x-y"),
            ("authorization", "Bearer 0123456789-0123456789012345678901"),
        ]);
        prepare_request(&mut headers, &from(false));
        assert_eq!(lines(&headers, "cookie"), ["a=1; b=\"2\"", "c"]);
        assert!(!headers.contains_key("coder-session-token") && !headers.contains_key("authorization"));
        let mut headers = map(&[("authorization", "Bearer eyJhbGciOi.app.token")]);
        prepare_request(&mut headers, &from(false));
        assert_eq!(lines(&headers, "authorization"), ["Bearer eyJhbGciOi.app.token"]);
    }

    #[test]
    fn queries_lose_only_credentials() {
        for (given, want) in [
            ("a=1&coder_session_token=x&b=%20+", "a=1&b=%20+"),
            ("coder%5Fsession_token=x", ""),
            ("coder_application_connect_api_key_35e783=x&a", "a"),
            ("access_token=0123456789-0123456789012345678901", ""),
            ("access_token=of-the-app&&x", "access_token=of-the-app&&x"),
            ("", ""),
        ] {
            assert_eq!(query_without_credentials(given), want, "{given}");
        }
    }

    #[test]
    fn headers_of_one_connection_end_with_it() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Private"),
            ("connection", "cookie, Host"),
            ("keep-alive", "timeout=5"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "Basic x"),
            ("host", "app.test"),
            ("cookie", "a=1"),
        ]);
        assert_eq!(prepare_request(&mut headers, &from(false)), None);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["cookie", "host", "x-forwarded-for", "x-forwarded-proto"]);
    }

    #[test]
    fn upgrades_are_passed_on() {
        let mut headers = map(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
        ]);
        assert_eq!(prepare_request(&mut headers, &from(false)).unwrap(), "websocket");
        assert_eq!(lines(&headers, "connection"), ["Upgrade"]);
        assert_eq!(lines(&headers, "upgrade"), ["websocket"]);
        assert_eq!(lines(&headers, "sec-websocket-key"), ["k"]);
    }

    #[test]
    fn connections_do_not_go_on_with_http() {
        for http in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0"] {
            let mut headers = map(&[
                ("connection", "Upgrade, HTTP2-Settings"),
                ("upgrade", http),
                ("http2-settings", "AAMAAABkAAQAAP__"),
            ]);
            assert_eq!(prepare_request(&mut headers, &from(false)), None, "{http}");
            for gone in ["connection", "upgrade", "http2-settings"] {
                assert!(!headers.contains_key(gone), "{http}: {gone}");
            }
        }
    }

    #[test]
    fn only_trusted_proxies_name_earlier_clients() {
        let given =
            [("x-forwarded-for", "10.9.9.9"), ("x-forwarded-proto", "http"), ("x-real-ip", "10.9.9.9")];
        let forwarded = |by_proxy| {
            let mut headers = map(&given);
            let names = ["X-Real-Ip".to_owned()];
            prepare_request(&mut headers, &Forwarded { proxy_headers: &names, ..from(by_proxy) });
            ["x-forwarded-for", "x-forwarded-proto", "x-real-ip"].map(|name| lines(&headers, name).join("|"))
        };
        assert_eq!(forwarded(false), ["192.0.2.1", "https", ""]);
        assert_eq!(forwarded(true), ["10.9.9.9, 192.0.2.1", "http", "10.9.9.9"]);
    }

    #[test]
    fn apps_set_no_credentials_and_change_nothing_outside_their_path() {
        let given = [
            ("set-cookie", "a=1; Path=/"),
            ("set-cookie", "coder_session_token=evil"),
            ("set-cookie", " coder_signed_app_token =evil"),
            ("set-cookie", "=coder_session_token=evil; Path=/"),
            ("set-cookie", " = coder_signed_app_token=evil"),
            ("set-cookie", "csrf_token=evil"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"cookies\""),
            ("alt-svc", "h2=\":9\""),
            ("connection", "close"),
        ];
        let prepared = |method| {
            let mut headers = map(&given);
            prepare_response(&mut headers, method);
            let has = ["service-worker-allowed", "clear-site-data", "alt-svc", "connection"];
            (lines(&headers, "set-cookie"), has.map(|name| headers.contains_key(name)))
        };
        assert_eq!(prepared(Method::Path), (vec!["a=1; Path=/".to_owned()], [false; 4]));
        let (cookies, kept) = prepared(Method::Subdomain);
        assert_eq!(cookies, ["a=1; Path=/", "csrf_token=evil"]);
        assert_eq!(kept, [true, true, false, false]);
    }
}
