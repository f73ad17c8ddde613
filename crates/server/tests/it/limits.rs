//! Requests per minute (http-api 1.9), and open WebSockets per user.

use axum::body::Body;
use coder_server::Config;
use coder_testkit::wait::poll_until;
use http::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{PASSWORD, TestServer, settings, tar};

#[tokio::test]
async fn the_api_is_limited_by_address_and_path() {
    let mut config = Config::default();
    config.limits.api_per_minute = 3;
    let server = TestServer::sqlite_with(config).await;
    for left in (0..3).rev() {
        let answer = server.get("", "/api/v2/buildinfo").await;
        assert_eq!(answer.headers["x-ratelimit-limit"], "3");
        assert_eq!(answer.headers["x-ratelimit-remaining"], left.to_string().as_str());
    }
    let refused = server.get("", "/api/v2/buildinfo").await;
    assert!(refused.headers.contains_key("retry-after"));
    assert!(refused.expect(429)["message"].as_str().unwrap().contains("rate limited"));
    server.get("", "/api/v2/users/first").await.expect(404);
    assert_eq!(server.get("", "/healthz").await.status, 200);
    server.advance(120);
    server.get("", "/api/v2/buildinfo").await.expect(200);
}

#[tokio::test]
async fn unknown_paths_share_a_limit_and_leave_the_others_alone() {
    let mut config = Config::default();
    config.limits.api_per_minute = 3;
    let server = TestServer::sqlite_with(config).await;
    let mut statuses = Vec::new();
    for path in 0..5 {
        statuses.push(server.get("", &format!("/api/v2/{path}/x")).await.status.as_u16());
    }
    assert_eq!(statuses, [404, 404, 404, 429, 429]);
    server.get("", "/api/v2/buildinfo").await.expect(200);
}

#[tokio::test]
async fn visitors_of_apps_who_are_not_signed_in_are_limited() {
    let mut config = Config::default();
    config.limits.api_per_minute = 1;
    config.access_url = Some("http://coder.test".parse().unwrap());
    config.apps.wildcard = Some(coder_domain::apps::WildcardHost::parse("*.apps.coder.test").unwrap());
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let ask = async |host: &str, path: &str, token: &str| {
        let request = Request::get(path).header("host", host).header("coder-session-token", token);
        server.send(request.body(Body::empty()).unwrap()).await.status.as_u16()
    };
    let mut statuses = Vec::new();
    for number in 0..6 {
        statuses.push(ask(&format!("app{number}--dev--ann.apps.coder.test"), "/", "").await);
        statuses.push(ask("coder.test", "/@ann/dev/apps/web/", "unknown").await);
    }
    assert_eq!(statuses, [[303; 10].as_slice(), &[429; 2]].concat());
    assert_eq!(ask("coder.test", "/@ann/dev/terminal", "").await, 429);
    assert_eq!(ask("app--dev--ann.apps.coder.test", "/", &owner).await, 404, "who is signed in goes on");
    server.advance(120);
    assert_eq!(ask("app--dev--ann.apps.coder.test", "/", "").await, 303);
}

#[tokio::test]
async fn a_name_in_other_spellings_gives_no_further_attempts() {
    let mut config = Config::default();
    config.limits.login_per_minute = 2;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let mut statuses = Vec::new();
    for name in ["me", "admin", "ADMIN", "%61dmin"] {
        let body = json!({ "old_password": "wrong", "password": "x" });
        let answer = server.put(&owner, &format!("/api/v2/users/{name}/password"), body).await;
        statuses.push(answer.status.as_u16());
    }
    assert_eq!(statuses, [400, 400, 429, 429]);
}

#[tokio::test]
async fn claimed_addresses_give_no_further_attempts_behind_a_proxy() {
    let mut config = Config::default();
    config.limits.login_per_minute = 2;
    config.proxies.headers = vec!["X-Forwarded-For".to_owned()];
    config.proxies.origins = vec!["127.0.0.0/8".parse().unwrap()];
    let server = TestServer::sqlite_with(config).await;
    // The proxy appends the address of its peer. Everything before it came from the client.
    let login = async |claimed: usize, address: &str| {
        let body = json!({ "email": "nobody@example.com", "password": PASSWORD });
        let request = Request::post("/api/v2/users/login")
            .header("x-forwarded-for", format!("7.7.7.{claimed}, {address}"));
        server.send(request.body(body.to_string().into()).unwrap()).await.status.as_u16()
    };
    let mut statuses = Vec::new();
    for claimed in 0..4 {
        statuses.push(login(claimed, "1.2.3.4").await);
    }
    assert_eq!(statuses, [401, 401, 429, 429]);
    assert_eq!(login(1, "2001:db8:0:1::1").await, 401, "another client");
    assert_eq!(login(2, "2001:db8:0:1::2").await, 401);
    assert_eq!(login(3, "2001:db8:0:1:ffff::1").await, 429, "the same /64");
}

#[tokio::test]
async fn log_in_has_its_own_limit() {
    let mut config = Config::default();
    config.limits.login_per_minute = 2;
    let server = TestServer::sqlite_with(config).await;
    let login = async || {
        let body = json!({ "email": "nobody@example.com", "password": PASSWORD });
        server.post("", "/api/v2/users/login", body).await.status.as_u16()
    };
    assert_eq!([login().await, login().await, login().await], [401, 401, 429]);
}

#[tokio::test]
async fn owners_may_bypass_the_file_limit_and_others_are_told_not_to() {
    let mut config = Config::default();
    config.limits.files_per_minute = 1;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let member = server.user(&owner, "dev", &[]).await;
    let upload = async |token: &str, bypass: bool| {
        let mut request = Request::post("/api/v2/files")
            .header("coder-session-token", token)
            .header("content-type", "application/x-tar");
        if bypass {
            request = request.header("x-coder-bypass-ratelimit", "true");
        }
        server.send(request.body(Body::from(tar(&[]))).unwrap()).await.status.as_u16()
    };
    assert_eq!([upload(&owner, false).await, upload(&owner, false).await], [201, 429]);
    assert_eq!(upload(&owner, true).await, 200);
    assert_eq!(upload(&member, true).await, 428);
    assert_eq!(upload(&member, false).await, 201, "callers have separate limits");
}

/// Asks for a WebSocket. Returns the status line and the connection.
pub(crate) async fn open_websocket(
    address: std::net::SocketAddr,
    token: &str,
    path: &str,
) -> (String, TcpStream) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // A peer that does not read is noticed early.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\ncoder-session-token: {token}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await.unwrap());
    }
    (String::from_utf8(line).unwrap(), stream)
}

#[tokio::test]
async fn followed_log_ends_with_its_session() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "member", &["template-admin"]).await;
    let (version, _) = server.version(&owner, json!({})).await;
    let (app, address, stop) = server.listening_app(settings()).await;
    let logs = format!("/api/v2/templateversions/{version}/logs?follow");
    let (status, mut follower) = open_websocket(address, &member, &logs).await;
    assert!(status.contains(" 101 "), "{status}");
    server.post(&member, "/api/v2/users/logout", json!({})).await.expect(200);
    coder_server::network::revoke::ended_tokens(&app).await.unwrap();
    let mut received = Vec::new();
    let _ = follower.read_to_end(&mut received).await;
    assert!(String::from_utf8_lossy(&received).ends_with("your right to read may have ended"));
    stop.cancel();
}

#[tokio::test]
async fn websockets_of_one_user_are_bounded() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "member", &["template-admin"]).await;
    let (version, _) = server.version(&owner, json!({})).await;
    let mut config = settings();
    config.limits.websockets_per_user = 1;
    let (address, stop) = server.listening_with(config).await;
    let logs = format!("/api/v2/templateversions/{version}/logs?follow");
    let serve = "/api/v2/organizations/default/provisionerdaemons/serve?provisioner=terraform&name=d&tag=scope%3Duser";
    let (status, follower) = open_websocket(address, &owner, &logs).await;
    assert!(status.contains(" 101 "), "{status}");
    for path in [&logs[..], serve] {
        let (status, _) = open_websocket(address, &owner, path).await;
        assert!(status.contains(" 429 "), "{path}: {status}");
    }
    let (status, _) = open_websocket(address, &member, &logs).await;
    assert!(status.contains(" 101 "), "each user has a separate limit: {status}");
    drop(follower);
    let is_admitted = async || open_websocket(address, &owner, &logs).await.0.contains(" 101 ").then_some(());
    poll_until("the closed one does not count any more", is_admitted).await;
    stop.cancel();
}
