//! The HTML pages, our own executable, and the install script.

use axum::body::Body;
use coder_server::Config;
use http::Request;

use crate::harness::{Answer, PASSWORD, TestServer, settings};

async fn submit(server: &TestServer, path: &str, cookies: &str, form: &[(&str, &str)]) -> Answer {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = Request::post(path).header("cookie", cookies).body(Body::from(body)).unwrap();
    server.send(request).await
}

fn cookie(answer: &Answer, name: &str) -> String {
    let cookies = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let found =
        cookies.filter_map(|line| line.split_once(';')?.0.split_once('=')).find(|(key, _)| *key == name);
    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn cli_auth_shows_a_token_after_sign_in() {
    let server = TestServer::sqlite().await;
    server.owner().await;
    let turned_away = server.get("", "/cli-auth").await;
    assert_eq!(turned_away.headers["location"], "/login?redirect=%2Fcli-auth");
    let form = server.get("", "/login?redirect=/cli-auth").await;
    assert!(form.text().contains("value=\"/cli-auth\""));
    assert!(form.headers["content-security-policy"].to_str().unwrap().contains("frame-ancestors 'none'"));
    let csrf = cookie(&form, "csrf_token");
    let own = format!("csrf_token={csrf}");
    let fields = |password| {
        [
            ("csrf_token", csrf.as_str()),
            ("redirect", "/cli-auth"),
            ("email", "admin@example.com"),
            ("password", password),
        ]
    };
    assert_eq!(submit(&server, "/login", "", &fields(PASSWORD)).await.status, 400, "the cookie is missing");
    let wrong = submit(&server, "/login", &own, &fields("nope")).await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("Incorrect email or password.") && !wrong.text().contains("nope"));
    let signed = submit(&server, "/login", &own, &fields(PASSWORD)).await;
    assert_eq!(signed.headers["location"], "/cli-auth");
    let session = format!("{own}; coder_session_token={}", cookie(&signed, "coder_session_token"));
    let page =
        server.send(Request::get("/cli-auth").header("cookie", &session).body(Body::empty()).unwrap()).await;
    assert!(page.text().contains("admin"));
    let forged = submit(&server, "/cli-auth", &session, &[("csrf_token", "x")]).await;
    assert_eq!(forged.status, 303);
    let shown = submit(&server, "/cli-auth", &session, &[("csrf_token", &csrf)]).await.text();
    let token = shown
        .split("<code>")
        .find_map(|part| part.split_once("</code>").map(|(text, _)| text).filter(|text| text.len() == 33));
    server.get(token.unwrap(), "/api/v2/users/me").await.expect(200);
}

#[tokio::test]
async fn redirects_do_not_leave_the_server() {
    let server = TestServer::sqlite().await;
    let form = server.get("", "/login?redirect=https://evil.example").await.text();
    assert!(!form.contains("evil"));
}

#[tokio::test]
async fn browsers_are_sent_to_the_access_url_when_that_is_wished_for() {
    let access_url = Some("https://coder.example.com".parse().unwrap());
    let config = Config { access_url, redirect_to_access_url: true, ..settings() };
    let server = TestServer::sqlite_with(config).await;
    let ask = async |path: &str, host: &str| {
        let answer = server.send(Request::get(path).header("host", host).body(Body::empty()).unwrap()).await;
        answer.headers.get("location").map(|to| to.to_str().unwrap().to_owned())
    };
    assert_eq!(
        ask("/login?redirect=/x", "other").await.unwrap(),
        "https://coder.example.com/login?redirect=/x"
    );
    assert_eq!(ask("/login", "coder.example.com").await, None);
    assert_eq!(ask("/api/v2/buildinfo", "other").await, None);
}

#[tokio::test]
async fn our_own_binary_and_the_script_that_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("coder");
    std::fs::write(&executable, b"binary").unwrap();
    let config = Config { executable: Some(executable), ..settings() };
    let server = TestServer::sqlite_with(config).await;
    let script = server.get("", "/install.sh").await;
    assert!(script.text().starts_with("#!/bin/sh"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let path = format!("/bin/coder-linux-{arch}");
    let answer = server.get("", &path).await;
    assert_eq!(answer.body, b"binary");
    let again =
        Request::get(&path).header("if-none-match", &answer.headers["etag"]).body(Body::empty()).unwrap();
    assert_eq!(server.send(again).await.status, 304);
    server.get("", "/bin/coder-plan9-mips").await.expect(404);
    server.get("", "/bin/..%2F..%2Fetc%2Fpasswd").await.expect(404);
    let home =
        server.send(Request::get("/").header("host", "evil\"><script>").body(Body::empty()).unwrap()).await;
    assert!(!home.text().contains("<script>"));
}
