//! Errors of the client for refusals, silence, redirects and invalid responses.

use std::time::Duration;

use coder_api::client::{Client, Error, Options, Timeouts};
use coder_domain::secret::Secret;
use hyper::StatusCode;
use tokio::io::AsyncWriteExt as _;

use super::server::{Server, head, json};
use super::{TOKEN, client, options};

async fn refused(status: u16, body: &'static str) -> Error {
    let server = Server::http(move |_, _| json(status, body)).await;
    let options = Options { retries: 0, ..options() };
    Client::new(&server.url(), Some(Secret::new(TOKEN)), options).unwrap().user("me").await.unwrap_err()
}

#[tokio::test]
async fn refusals_carry_status_body_and_address() {
    let error = refused(
        409,
        r#"{"message":"taken","detail":"by bob","validations":[{"field":"name","detail":"must be unique"}]}"#,
    )
    .await;
    assert_eq!(error.status(), Some(StatusCode::CONFLICT));
    assert_eq!(error.body().unwrap().validations[0].field, "name");
    let text = error.to_string();
    assert!(text.starts_with("GET http://127.0.0.1:"), "{text}");
    assert!(text.ends_with("/api/v2/users/me: status 409: taken; name: must be unique; by bob"), "{text}");
    assert!(!error.is_retryable() && error.hint().is_none());
}

#[tokio::test]
async fn a_lost_session_says_how_to_get_one() {
    let error = refused(401, r#"{"message":"no"}"#).await;
    assert!(error.hint().unwrap().contains("coder login"));
    assert!(!error.is_retryable() && !format!("{error} {error:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_wrong_password_is_not_a_lost_session() {
    let server = Server::http(|_, _| json(401, r#"{"message":"no"}"#)).await;
    let error = client(&server.url()).login("a@x", Secret::new("hunter2")).await.unwrap_err();
    assert!(error.hint().unwrap().contains("password") && !format!("{error:?}").contains("hunter2"));
    let error = client(&server.url()).own_provisioner_key(&Secret::new("hunter2")).await.unwrap_err();
    assert!(error.hint().unwrap().contains("keys create") && !format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn answers_that_are_not_the_api_are_named() {
    let error = refused(500, "<html>").await;
    assert!(error.to_string().contains("not an API error but application/json"), "{error}");
    let error = refused(405, "").await;
    assert_eq!(error.status(), Some(StatusCode::METHOD_NOT_ALLOWED));
    let error = refused(200, "<html>").await;
    assert!(
        matches!(error, Error::Decode { .. }) && error.to_string().contains("is this a Coder server"),
        "{error}"
    );
}

#[tokio::test]
async fn terminal_escapes_of_a_peer_are_cut_out() {
    let error = refused(400, r#"{"message":"a\u001b[2Jb\u0007"}"#).await;
    assert!(error.to_string().ends_with("status 400: a[2Jb"), "{error}");
}

#[tokio::test]
async fn redirects_are_reported_not_followed() {
    let server = Server::http(|_, _| {
        let mut answer = json(302, "");
        answer.headers_mut().insert("location", "https://elsewhere.test/".parse().unwrap());
        answer
    })
    .await;
    let error = client(&server.url()).user("me").await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::FOUND));
    assert!(error.hint().unwrap().contains("https://elsewhere.test/"));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn reads_are_repeated_while_the_failure_may_pass_and_writes_are_not() {
    let server = Server::http(|_, before| if before < 2 { json(503, "") } else { json(200, "[]") }).await;
    assert!(client(&server.url()).my_organizations().await.unwrap().is_empty());
    assert_eq!(server.seen().len(), 3);
    let server = Server::http(|_, _| json(503, r#"{"message":"later"}"#)).await;
    let error = client(&server.url()).logout().await.unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(server.seen().len(), 1);
    let server = Server::http(|_, _| json(404, "{}")).await;
    client(&server.url()).user("me").await.unwrap_err();
    assert_eq!(server.seen().len(), 1, "a refusal that will not pass");
}

#[tokio::test]
async fn too_many_requests_says_when() {
    let server = Server::http(|_, _| {
        let mut answer = json(429, r#"{"message":"slow down"}"#);
        answer.headers_mut().insert("retry-after", "7".parse().unwrap());
        answer
    })
    .await;
    let error = client(&server.url()).logout().await.unwrap_err();
    assert_eq!(error.hint().unwrap(), "too many requests; try again in 7 s");
    client(&server.url()).my_organizations().await.unwrap_err();
    assert_eq!(server.seen().len(), 2, "not repeated before the time that the server requested");
}

#[tokio::test]
async fn an_endless_error_body_is_cut() {
    let server = Server::raw(|mut stream, _| async move {
        head(&mut stream).await;
        let start = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n";
        stream.write_all(start.as_bytes()).await.unwrap();
        // Ends when the client hangs up.
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
    .await;
    let error = client(&server.url()).user("me").await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::BAD_REQUEST));
    assert!(error.to_string().len() < 300, "{error}");
}

#[tokio::test]
async fn an_endless_answer_is_refused() {
    let server = Server::raw(|mut stream, _| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await.unwrap();
        let piece = vec![b' '; 1 << 20];
        // Ends when the client hangs up.
        while stream.write_all(&piece).await.is_ok() {}
    })
    .await;
    let timeouts = Timeouts { request: Duration::from_secs(60), ..Timeouts::default() };
    let client = Client::new(&server.url(), None, Options { timeouts, ..options() }).unwrap();
    assert!(matches!(client.build_info().await.unwrap_err(), Error::TooLarge { .. }));
}

#[tokio::test]
async fn silence_ends_in_a_timeout() {
    let server = Server::raw(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let timeouts = Timeouts { request: Duration::from_millis(50), ..Timeouts::default() };
    let client = Client::new(&server.url(), None, Options { timeouts, retries: 0, ..options() }).unwrap();
    let error = client.build_info().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("50ms"), "{error}");
}

#[tokio::test]
async fn a_body_that_stalls_half_way_ends_in_a_timeout() {
    let server = Server::raw(|mut stream, _| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let timeouts = Timeouts { request: Duration::from_millis(50), ..Timeouts::default() };
    let client = Client::new(&server.url(), None, Options { timeouts, retries: 0, ..options() }).unwrap();
    assert!(matches!(client.build_info().await.unwrap_err(), Error::Timeout { .. }));
}

#[tokio::test]
async fn refused_connections_and_garbage_are_transport_errors() {
    let gone = Server::http(|_, _| json(200, "")).await;
    let url = gone.url();
    drop(gone);
    let client_of = |url: &str| Client::new(url, None, Options { retries: 0, ..options() }).unwrap();
    let server = Server::raw(|mut stream, _| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
    })
    .await;
    let error = client_of(&server.url()).build_info().await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    // The listener of `gone` closes with its task; until then connections are reset rather than refused.
    let error = client_of(&url).build_info().await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }) && error.hint().is_some(), "{error:?}");
    assert!(error.to_string().starts_with("cannot reach GET http://"), "{error}");
}

#[tokio::test]
async fn queries_and_users_are_not_in_error_texts() {
    let server = Server::http(|_, _| json(400, r#"{"message":"no"}"#)).await;
    let url = server.url().replace("//", "//me:hunter2@");
    let error = client(&url).templates("hunter3").await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!text.contains("hunter"), "{text}");
}

#[tokio::test]
async fn a_token_that_cannot_be_sent_is_not_shown() {
    let server = Server::http(|_, _| json(200, "{}")).await;
    let client = Client::new(&server.url(), Some(Secret::new("hun\nter2")), options()).unwrap();
    let error = client.user("me").await.unwrap_err();
    assert!(matches!(error, Error::InvalidToken) && !format!("{error:?}").contains("ter2"));
    assert!(server.seen().is_empty());
}
