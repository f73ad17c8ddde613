//! The HTTP before DERP, both sides, and DERP through each form.

use coder_tailnet::derp::relay::Config;
use coder_tailnet::derp::upgrade::{self, Error, Form};
use coder_tailnet::derp::{Relay, client};
use coder_tailnet::key::NodePrivate;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::rig::paused;

/// Reads a request as an HTTP server would, and answers it.
async fn serve(mut io: DuplexStream, relay: Relay) {
    let headers = read_request(&mut io).await;
    match upgrade::answer(&headers, &relay.public_key()) {
        Ok((form, answer)) => {
            let mut text = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
            for (name, value) in &answer {
                text += &format!("{name}: {}\r\n", value.to_str().unwrap());
            }
            io.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
            let _ = relay.serve(upgrade::server_stream(form, io)).await;
        }
        Err(_) => io.write_all(b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: DERP\r\n\r\n").await.unwrap(),
    }
}

async fn read_request(io: &mut DuplexStream) -> HeaderMap {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("GET /derp HTTP/1.1"));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
        .collect()
}

fn uri() -> Uri {
    Uri::from_static("http://relay.test:3000/derp")
}

#[test]
fn both_forms_reach_the_relay() {
    paused(async {
        for form in [Form::Derp, Form::WebSocket] {
            let relay = Relay::new(NodePrivate::generate(), Config::default());
            let (near, far) = tokio::io::duplex(1 << 16);
            tokio::spawn(serve(far, relay.clone()));
            let mut headers = HeaderMap::new();
            headers.insert("x-agent", HeaderValue::from_static("yes"));
            let mut io = upgrade::client(near, &uri(), &headers, form).await.unwrap();
            let private = NodePrivate::generate();
            assert_eq!(client::connect(&mut io, &private).await.unwrap(), relay.public_key());
        }
    });
}

#[test]
fn answer_has_the_headers_of_official_servers() {
    let relay = NodePrivate::generate().public();
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("DERP"));
    let (form, answer) = upgrade::answer(&headers, &relay).unwrap();
    assert_eq!(form, Form::Derp);
    assert_eq!(answer["upgrade"], "DERP");
    assert_eq!(answer["derp-version"], "2");
    assert_eq!(answer["derp-public-key"], hex_of(relay.as_bytes()));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    assert!(upgrade::answer(&headers, &relay).is_err(), "a WebSocket must offer the subprotocol");
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("other, derp"));
    headers.insert("sec-websocket-version", HeaderValue::from_static("13"));
    headers.insert("sec-websocket-key", HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
    let (form, answer) = upgrade::answer(&headers, &relay).unwrap();
    assert_eq!((form, &answer[SEC_WEBSOCKET_PROTOCOL]), (Form::WebSocket, &HeaderValue::from_static("derp")));
    assert!(upgrade::answer(&HeaderMap::new(), &relay).is_err());
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn wrong_answers_are_refused() {
    let check = |text: &str, form| upgrade::check(text.as_bytes(), form, "dGhlIHNhbXBsZSBub25jZQ==");
    let ok = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: DERP\r\n\r\n";
    assert!(check(ok, Form::Derp).is_ok());
    assert!(matches!(check(ok, Form::WebSocket), Err(Error::Answer(_))));
    let refused = check("HTTP/1.1 403 Forbidden\r\n\r\n", Form::Derp).unwrap_err();
    assert!(matches!(refused, Error::Refused(StatusCode::FORBIDDEN)) && refused.wants_websocket());
    let failed = check("HTTP/1.1 502 Bad Gateway\r\n\r\n", Form::Derp).unwrap_err();
    assert!(matches!(failed, Error::Refused(_)) && !failed.wants_websocket());
    assert!(matches!(check("HTTP/1.1 101 x\r\nUpgrade: h2c\r\n\r\n", Form::Derp), Err(Error::Answer(_))));
    assert!(matches!(check("SSH-2.0\r\n\r\n", Form::Derp), Err(Error::Answer(_))));
    let accept = "HTTP/1.1 101 x\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    assert!(check(&format!("{accept}Sec-WebSocket-Protocol: derp\r\n\r\n"), Form::WebSocket).is_ok());
    assert!(check(&format!("{accept}\r\n"), Form::WebSocket).is_err());
    let extended = format!("{accept}Sec-WebSocket-Protocol: derp\r\nSec-WebSocket-Extensions: x\r\n\r\n");
    assert!(check(&extended, Form::WebSocket).is_err());
}

#[test]
fn answer_without_end_is_refused() {
    paused(async {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let endless = async move {
            far.write_all(b"HTTP/1.1 101 x\r\n").await.unwrap();
            while far.write_all(b"a: b\r\n").await.is_ok() {}
        };
        let (headers, uri) = (HeaderMap::new(), uri());
        let (result, ()) = tokio::join!(upgrade::client(near, &uri, &headers, Form::Derp), endless);
        assert!(matches!(result, Err(Error::Answer(_))));
    });
}
