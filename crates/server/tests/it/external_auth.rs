//! External authentication: connecting an account in the browser, tokens of builds, refreshing, and misbehaving providers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use coder_domain::external_auth;
use coder_server::Config;
use coder_server::config::ExternalAuth;
use coder_store::templates::version_details;
use http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, settings};

/// The form fields of a request to a provider.
type FormFields = Vec<(String, String)>;

/// How a provider answers at its token endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behavior {
    Good,
    /// As a form instead of JSON.
    AsForm,
    Refuses,
    Slow,
    Endless,
    Broken,
}

struct Inner {
    behavior: Mutex<Behavior>,
    asked: Mutex<Vec<FormFields>>,
    tokens: AtomicUsize,
    revoked: AtomicBool,
    lifetime: AtomicUsize,
}

/// A small OAuth 2 server.
#[derive(Clone)]
pub(crate) struct Provider {
    base: String,
    state: Arc<Inner>,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Inner {
            behavior: Mutex::new(Behavior::Good),
            asked: Mutex::default(),
            tokens: AtomicUsize::new(0),
            revoked: AtomicBool::new(false),
            lifetime: AtomicUsize::new(3600),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/token", post(token))
            .route("/user", get(user))
            .route("/device", post(device))
            .with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base, state }
    }

    pub(crate) fn is(&self, behavior: Behavior) {
        *self.state.behavior.lock().unwrap() = behavior;
    }

    fn asked(&self) -> Vec<FormFields> {
        self.state.asked.lock().unwrap().clone()
    }

    pub(crate) fn config(&self, more: &[(&str, &str)]) -> Config {
        let base = &self.base;
        let mut variables = vec![
            ("0_ID".to_owned(), "corp".to_owned()),
            ("0_CLIENT_ID".to_owned(), "us".to_owned()),
            ("0_CLIENT_SECRET".to_owned(), "hunter2".to_owned()),
            ("0_AUTH_URL".to_owned(), format!("{base}/authorize?tenant=1")),
            ("0_TOKEN_URL".to_owned(), format!("{base}/token")),
            ("0_VALIDATE_URL".to_owned(), format!("{base}/user")),
            ("0_SCOPES".to_owned(), "read write".to_owned()),
            ("0_DISPLAY_NAME".to_owned(), "Corp".to_owned()),
        ];
        variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.replace("BASE", base))));
        let named =
            variables.into_iter().map(|(name, value)| (format!("{}{name}", external_auth::PREFIX), value));
        let providers = external_auth::from_env(named).unwrap();
        let access_url = Some("https://coder.test".parse().unwrap());
        let external_auth = ExternalAuth { providers, timeout: Duration::from_secs(2) };
        Config { access_url, external_auth, ..settings() }
    }
}

async fn token(State(state): State<Arc<Inner>>, body: String) -> axum::response::Response {
    let form = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    state.asked.lock().unwrap().push(form);
    let behavior = *state.behavior.lock().unwrap();
    let number = state.tokens.fetch_add(1, Ordering::SeqCst) + 1;
    let lifetime = state.lifetime.load(Ordering::SeqCst);
    let body = match behavior {
        Behavior::Good => Body::from(
            json!({ "access_token": format!("access-{number}"), "refresh_token": format!("refresh-{number}"),
                "expires_in": lifetime, "token_type": "bearer" })
            .to_string(),
        ),
        Behavior::AsForm => Body::from(format!("access_token=access-{number}&expires_in={lifetime}")),
        Behavior::Refuses => {
            Body::from(json!({ "error": "invalid_grant", "error_description": "hunter2" }).to_string())
        }
        Behavior::Slow => std::future::pending().await,
        Behavior::Endless => Body::from_stream(futures_util::stream::repeat_with(|| {
            Ok::<_, std::io::Error>(vec![b' '; 16 << 10])
        })),
        Behavior::Broken => Body::from("<html>"),
    };
    let status = if behavior == Behavior::Refuses { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    http::Response::builder().status(status).body(body).unwrap()
}

async fn user(State(state): State<Arc<Inner>>, headers: HeaderMap) -> StatusCode {
    let is_token = headers["authorization"].to_str().unwrap().starts_with("Bearer access-");
    let works = is_token && !state.revoked.load(Ordering::SeqCst);
    if works { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}

async fn device() -> axum::Json<Value> {
    axum::Json(
        json!({ "device_code": "d-1", "user_code": "ABCD", "verification_uri": "https://corp.test/device",
        "expires_in": 900, "interval": 5 }),
    )
}

/// The browser of a signed-in user.
pub(crate) struct Browser<'a> {
    server: &'a TestServer,
    cookies: Vec<(String, String)>,
}

impl<'a> Browser<'a> {
    pub(crate) fn new(server: &'a TestServer, session: &str) -> Self {
        Self { server, cookies: vec![("coder_session_token".to_owned(), session.to_owned())] }
    }

    async fn get(&mut self, path: &str) -> Answer {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = Request::get(path).header("cookie", cookies.join("; ")).body(Body::empty()).unwrap();
        let answer = self.server.send(request).await;
        for line in answer.headers.get_all("set-cookie") {
            let (name, value) = line.to_str().unwrap().split_once(';').unwrap().0.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        answer
    }

    /// Follows the redirect to the provider. Returns the query of its URL.
    async fn leave(&mut self) -> url::Url {
        let answer = self.get("/external-auth/corp/callback").await;
        assert_eq!(answer.status, 303);
        answer.headers["location"].to_str().unwrap().parse().unwrap()
    }

    /// Follows the redirect to the provider and back with a code.
    pub(crate) async fn connect(&mut self) -> Answer {
        let state = pair(&self.leave().await, "state");
        self.get(&format!("/external-auth/corp/callback?code=c-1&state={state}")).await
    }
}

fn pair(url: &url::Url, name: &str) -> String {
    url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned()
}

fn value<'a>(asked: &'a FormFields, name: &str) -> &'a str {
    asked.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

async fn authenticated(server: &TestServer, token: &str) -> bool {
    server.get(token, "/api/v2/external-auth/corp").await.expect(200)["authenticated"].as_bool().unwrap()
}

#[tokio::test]
async fn an_account_is_connected_in_the_browser_and_forgotten() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    let anonymous = server.get("", "/external-auth/corp").await;
    assert_eq!(anonymous.headers["location"], "/login?redirect=%2Fexternal-auth%2Fcorp");
    assert_eq!(server.get(&owner, "/api/v2/external-auth/other").await.status, 404);
    assert!(!authenticated(&server, &owner).await);

    let mut browser = Browser::new(&server, &owner);
    let there = browser.get("/external-auth/corp?redirect=/cli-auth").await;
    let there: url::Url = there.headers["location"].to_str().unwrap().parse().unwrap();
    assert!(there.as_str().starts_with(&format!("{}/authorize?tenant=1&", provider.base)));
    let callback = "https://coder.test/external-auth/corp/callback";
    assert_eq!(
        (pair(&there, "redirect_uri"), pair(&there, "scope")),
        (callback.to_owned(), "read write".to_owned())
    );
    let back = format!("/external-auth/corp/callback?code=c-1&state={}", pair(&there, "state"));
    let back = browser.get(&back).await;
    assert_eq!((back.status.as_u16(), back.headers["location"].to_str().unwrap()), (303, "/cli-auth"));
    let asked = provider.asked().remove(0);
    let secret =
        ["grant_type", "code", "redirect_uri", "client_id", "client_secret"].map(|name| value(&asked, name));
    assert_eq!(secret, ["authorization_code", "c-1", callback, "us", "hunter2"]);
    assert_eq!(value(&asked, "code_verifier").len(), 64);
    assert!(!browser.cookies.iter().any(|(name, _)| name.starts_with("oauth")), "used once");

    assert!(authenticated(&server, &owner).await);
    let page = browser.get("/external-auth/corp").await;
    assert!(page.status == 200 && page.text().contains("is connected"), "no second redirect to the provider");
    let all = server.get(&owner, "/api/v2/external-auth").await;
    assert!(!all.text().contains("access-") && !all.text().contains("refresh-1"));
    let all = all.expect(200);
    assert_eq!(all["providers"][0]["display_name"], "Corp");
    assert_eq!(
        (&all["links"][0]["provider_id"], &all["links"][0]["has_refresh_token"]),
        (&json!("corp"), &json!(true))
    );
    let member = server.user(&owner, "dev", &[]).await;
    assert!(!authenticated(&server, &member).await, "somebody else's");

    server.delete(&owner, "/api/v2/external-auth/corp").await.expect(200);
    assert_eq!(server.delete(&owner, "/api/v2/external-auth/corp").await.status, 404);
    assert!(!authenticated(&server, &owner).await);
}

#[tokio::test]
async fn an_answer_counts_for_the_session_that_asked_and_no_other() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    let member = server.user(&owner, "dev", &[]).await;
    let mut browser = Browser::new(&server, &owner);
    let back =
        format!("/external-auth/corp/callback?code=c-1&state={}", pair(&browser.leave().await, "state"));
    // Another user signs in with the same browser, or the same user signs in again.
    let again = server.post(&owner, "/api/v2/users/me/keys", Value::Null).await.expect(201);
    for other in [member.as_str(), again["key"].as_str().unwrap()] {
        let mut cookies = browser.cookies.clone();
        cookies.retain(|(name, _)| name != "coder_session_token");
        let mut theirs = Browser::new(&server, other);
        theirs.cookies.extend(cookies);
        assert_eq!(theirs.get(&back).await.status, 400);
        assert!(!authenticated(&server, other).await);
    }
    assert!(provider.asked().is_empty(), "the provider was not asked");
    assert_eq!(browser.get(&back).await.status, 303);
    assert!(authenticated(&server, &owner).await);
}

#[tokio::test]
async fn answers_to_another_attempt_and_refused_codes_connect_nothing() {
    let provider = Provider::start().await;
    let more =
        [("1_ID", "two"), ("1_CLIENT_ID", "us"), ("1_AUTH_URL", "BASE/a"), ("1_TOKEN_URL", "BASE/token")];
    let server = TestServer::sqlite_with(provider.config(&more)).await;
    let owner = server.owner().await;
    let mut browser = Browser::new(&server, &owner);
    for wrong in ["/external-auth/corp/callback?code=c-1", "/external-auth/corp/callback?code=c-1&state="] {
        assert_eq!(browser.get(wrong).await.status, 400, "no attempt");
    }
    browser.leave().await;
    assert_eq!(browser.get("/external-auth/corp/callback?code=c-1&state=corp.other").await.status, 400);
    let state = pair(&browser.leave().await, "state");
    let elsewhere = browser.get(&format!("/external-auth/two/callback?code=c-1&state={state}")).await;
    assert_eq!(elsewhere.status, 400, "the answer of another provider");
    let denied =
        browser.get(&format!("/external-auth/corp/callback?error=access_denied&state={state}")).await;
    assert_eq!(denied.status, 400);
    assert!(provider.asked().is_empty(), "the provider was not asked");
    for (behavior, status) in
        [(Behavior::Refuses, 400), (Behavior::Slow, 502), (Behavior::Endless, 502), (Behavior::Broken, 502)]
    {
        provider.is(behavior);
        let answer = browser.connect().await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        assert!(!answer.text().contains("hunter2"));
    }
    assert!(!authenticated(&server, &owner).await);
    provider.is(Behavior::AsForm);
    assert_eq!(browser.connect().await.status, 303);
    assert!(authenticated(&server, &owner).await);
}

#[tokio::test]
async fn a_state_that_another_origin_set_connects_nothing() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    let attacker = server.user(&owner, "eve", &[]).await;
    let mut attackers = Browser::new(&server, &attacker);
    let state = pair(&attackers.leave().await, "state");
    for state in [state, format!("corp.{}.", "x".repeat(32)), "corp.x".to_owned(), "corp..".to_owned()] {
        let mut browser = Browser::new(&server, &owner);
        browser.cookies.push(("oauth_state".to_owned(), state.clone()));
        browser.cookies.push(("oauth_pkce_verifier".to_owned(), "x".repeat(64)));
        let answer = browser.get(&format!("/external-auth/corp/callback?code=c-1&state={state}")).await;
        assert_eq!(answer.status, 400, "{state}");
    }
    assert!(provider.asked().is_empty() && !authenticated(&server, &owner).await);
}

#[tokio::test]
async fn redirects_after_connecting_an_account_stay_on_the_server() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    for outside in [
        "https://evil.example",
        "/%09/evil.example",
        "/%0A/evil.example",
        "/.//evil.example",
        "/%5Cevil.example",
    ] {
        server.delete(&owner, "/api/v2/external-auth/corp").await;
        let mut browser = Browser::new(&server, &owner);
        let there = browser.get(&format!("/external-auth/corp?redirect={outside}")).await;
        let there: url::Url = there.headers["location"].to_str().unwrap().parse().unwrap();
        let back = format!("/external-auth/corp/callback?code=c-1&state={}", pair(&there, "state"));
        let back = browser.get(&back).await;
        assert_eq!(back.headers["location"], "/external-auth/corp", "{outside}");
    }
}

#[tokio::test]
async fn tokens_are_refreshed_until_the_provider_refuses() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    let mut browser = Browser::new(&server, &owner);
    browser.connect().await;
    server.advance(3600 - 299);
    assert!(authenticated(&server, &owner).await && authenticated(&server, &owner).await);
    let asked = provider.asked();
    assert_eq!(asked.len(), 2, "refreshed once, shortly before its end");
    let refresh = ["grant_type", "refresh_token", "client_secret"].map(|name| value(&asked[1], name));
    assert_eq!(refresh, ["refresh_token", "refresh-1", "hunter2"]);

    provider.is(Behavior::Slow);
    server.advance(3600 - 299);
    assert!(
        authenticated(&server, &owner).await,
        "the provider is unavailable, but the token is still valid"
    );
    server.advance(300);
    assert!(!authenticated(&server, &owner).await, "now it has expired");
    provider.is(Behavior::Good);
    assert!(authenticated(&server, &owner).await, "an unavailable provider has not refused the token");

    provider.is(Behavior::Refuses);
    server.advance(3600);
    assert!(!authenticated(&server, &owner).await);
    let (count, links) =
        (provider.asked().len(), server.get(&owner, "/api/v2/external-auth").await.expect(200));
    assert_eq!(links["links"][0]["validate_error"], "invalid_grant");
    provider.is(Behavior::Good);
    assert!(!authenticated(&server, &owner).await);
    assert_eq!(provider.asked().len(), count, "a refused token is not requested again");
    browser.connect().await;
    assert!(authenticated(&server, &owner).await);
    provider.state.revoked.store(true, Ordering::SeqCst);
    assert!(!authenticated(&server, &owner).await, "the provider reports the token as invalid");
}

#[tokio::test]
async fn concurrent_builds_refresh_a_token_once() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    Browser::new(&server, &owner).connect().await;
    server.advance(3600);
    let all = futures_util::future::join_all((0..8).map(|_| authenticated(&server, &owner))).await;
    assert!(all.into_iter().all(|works| works));
    assert_eq!(provider.asked().len(), 2);
}

#[tokio::test]
async fn a_version_tells_where_accounts_are_connected() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    let (_, version) = server.template(&owner, "hello").await;
    let asked = ["corp", "gone"]
        .map(|id| version_details::ExternalAuth { provider_id: id.to_owned(), optional: id == "gone" });
    let mut tx = server.app.store.begin().await.unwrap();
    version_details::insert_external_auth(&mut tx, version, &asked).await.unwrap();
    tx.commit().await.unwrap();
    let path = format!("/api/v2/templateversions/{version}/external-auth");
    let told = server.get(&owner, &path).await.expect(200);
    assert_eq!(
        told[0],
        json!({ "id": "corp", "type": "corp", "display_name": "Corp", "display_icon": "/emojis/1f511.png",
            "authenticate_url": "https://coder.test/external-auth/corp", "authenticated": false })
    );
    assert_eq!((&told[1]["authenticate_url"], &told[1]["optional"]), (&json!(""), &json!(true)));
    Browser::new(&server, &owner).connect().await;
    assert_eq!(server.get(&owner, &path).await.expect(200)[0]["authenticated"], true);
}

#[tokio::test]
async fn an_account_is_connected_with_a_device_code() {
    let provider = Provider::start().await;
    let more = [("0_DEVICE_FLOW", "true"), ("0_DEVICE_CODE_URL", "BASE/device")];
    let server = TestServer::sqlite_with(provider.config(&more)).await;
    let owner = server.owner().await;
    let path = "/api/v2/external-auth/corp/device";
    let code = server.get(&owner, path).await.expect(200);
    assert_eq!((&code["user_code"], &code["interval"]), (&json!("ABCD"), &json!(5)));
    let page = Browser::new(&server, &owner).get("/external-auth/corp").await.text();
    assert!(page.contains("ABCD") && page.contains("https://corp.test/device"), "{page}");
    let redeem = json!({ "device_code": code["device_code"] });
    provider.is(Behavior::Refuses);
    let refused = server.post(&owner, path, redeem.clone()).await.expect(400);
    assert_eq!(refused["detail"], "invalid_grant");
    provider.is(Behavior::Good);
    server.post(&owner, path, redeem).await.expect(204);
    assert!(authenticated(&server, &owner).await);
    assert_eq!(value(&provider.asked()[1], "device_code"), "d-1");
}
