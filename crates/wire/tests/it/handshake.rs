//! The upgrade of a connection as its client.

use std::time::Duration;

use coder_wire::ws::handshake::{Error, client};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Upgrades with a peer that answers with these bytes, and ends.
async fn upgrade(answer: &[u8]) -> Error {
    let (near, mut far) = tokio::io::duplex(64 << 10);
    far.write_all(answer).await.unwrap();
    far.shutdown().await.unwrap();
    let uri = Uri::from_static("ws://server.example/path");
    timeout(WAIT_LIMIT, client(near, &uri, &HeaderMap::new())).await.unwrap().unwrap_err()
}

#[tokio::test]
async fn another_implementation_accepts_the_request_and_bytes_follow() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(async move {
        let mut seen = None;
        #[expect(clippy::result_large_err, reason = "the other implementation wants this type")]
        let look = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            seen = Some((request.uri().to_string(), request.headers().clone()));
            Ok(response)
        };
        let socket = accept_hdr_async(far, look).await.unwrap();
        (seen.unwrap(), socket)
    });
    let uri = Uri::from_static("ws://server.example:81/path?version=1");
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("a key"))]);
    let mut ours = timeout(WAIT_LIMIT, client(near, &uri, &headers)).await.unwrap().unwrap();
    let ((path, headers), mut other) = serving.await.unwrap();
    assert_eq!(path, "/path?version=1");
    assert_eq!(
        (&headers["host"], &headers["authorization"]),
        (&"server.example:81".parse().unwrap(), &"a key".parse().unwrap())
    );
    futures_util::SinkExt::send(&mut other, "bytes".as_bytes().to_vec().into()).await.unwrap();
    let mut received = [0; 5];
    timeout(WAIT_LIMIT, ours.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"bytes");
}

#[tokio::test]
async fn a_refusal_has_its_status_and_the_beginning_of_its_body() {
    let long = "x".repeat(3000);
    for (body, length, kept) in [
        ("no such daemon", Some(14), "no such daemon"),
        ("no such daemon", Some(7), "no such"),
        ("no such daemon", None, "no such daemon"),
        (&long, Some(3000), &long[..1024]),
        (&long, None, &long[..1024]),
    ] {
        let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
        let error = upgrade(format!("HTTP/1.1 403 Forbidden\r\n{length}\r\n{body}").as_bytes()).await;
        let Error::Refused { status, body } = &error else { panic!("{error:?}") };
        assert_eq!((*status, &body[..]), (StatusCode::FORBIDDEN, kept.as_bytes()), "{length:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_the_expected_one_is_an_error() {
    let foreign = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    for answer in [
        format!("{foreign}\r\n"),
        format!("{foreign}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(17 << 10)),
        "HTTP/2 101\r\n\r\n".to_owned(),
        "HTTP/1.1 x\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nno colon\r\n\r\n".to_owned(),
    ] {
        let error = upgrade(answer.as_bytes()).await;
        assert!(matches!(error, Error::Answer(_)), "{error:?} for {:.60}", answer);
    }
    let error = upgrade(b"HTTP/1.1 101 Switching").await;
    assert!(matches!(error, Error::Io(_)), "{error:?}");
}

/// Nothing was offered, so a server that chooses something has answered another request.
#[tokio::test]
async fn a_choice_that_was_not_offered_is_an_error() {
    for (chosen, accepted) in [
        ("", true),
        ("Sec-WebSocket-Protocol: chat\r\n", false),
        ("Sec-WebSocket-Extensions: permessage-deflate\r\n", false),
    ] {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let answering = async {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(far.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap();
            let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
            let accept = derive_accept_key(key.as_bytes());
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {accept}\r\n{chosen}\r\n"
            );
            far.write_all(answer.as_bytes()).await.unwrap();
        };
        let uri = Uri::from_static("ws://server.example/path");
        let headers = HeaderMap::new();
        let (result, ()) = tokio::join!(client(near, &uri, &headers), answering);
        match result {
            Ok(_) => assert!(accepted, "{chosen:?}"),
            Err(error) => assert!(!accepted && matches!(error, Error::Answer(_)), "{chosen:?}: {error:?}"),
        }
    }
}

/// The longest header that is accepted has 16 KiB; the byte after it belongs to the connection.
#[tokio::test]
async fn a_header_of_the_largest_size_is_read() {
    for (size, accepted) in [(16 << 10, true), ((16 << 10) + 1, false)] {
        let rest = "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\nX: \r\n\r\nb".len() - 1;
        let filler = "x".repeat(size - rest);
        let answer = format!("HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\nX: {filler}\r\n\r\nb");
        let error = upgrade(answer.as_bytes()).await;
        match error {
            Error::Refused { body, .. } => assert!(accepted && body == b"b", "{size}"),
            Error::Answer(_) => assert!(!accepted, "{size}"),
            Error::Io(error) => panic!("{error}"),
        }
    }
}
