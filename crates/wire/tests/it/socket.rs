//! The WebSocket layer against itself and against another implementation.

use std::time::Duration;

use coder_wire::ws::{Error, Socket, handshake};
use futures_util::{SinkExt as _, StreamExt as _};
use http::HeaderMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Our server and the other implementation's client.
async fn server() -> (Socket<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    (Socket::server(near), WebSocketStream::from_raw_socket(far, Role::Client, None).await)
}

/// Our client and the other implementation's server.
async fn client() -> (Socket<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    (Socket::client(near), WebSocketStream::from_raw_socket(far, Role::Server, None).await)
}

async fn exchange(mut ours: Socket<DuplexStream>, mut other: WebSocketStream<DuplexStream>) {
    let data: Vec<u8> = (0..300_000_u32).map(|index| u8::try_from(index % 253).unwrap()).collect();
    let sent = data.clone();
    let writing = tokio::spawn(async move {
        ours.write_all(&sent).await.unwrap();
        ours.flush().await.unwrap();
        let mut received = vec![0; sent.len()];
        ours.read_exact(&mut received).await.unwrap();
        assert!(received == sent);
        ours.shutdown().await.unwrap();
        assert_eq!(ours.read(&mut [0; 10]).await.unwrap(), 0);
    });
    let mut received = Vec::new();
    while received.len() < data.len() {
        let message = other.next().await.unwrap().unwrap().into_data();
        assert!(message.len() <= 256 << 10);
        received.extend_from_slice(&message);
    }
    assert!(received == data);
    other.send(Message::Ping("are you there".into())).await.unwrap();
    for part in data.chunks(70_001) {
        other.send(Message::binary(part.to_vec())).await.unwrap();
    }
    let mut ponged = false;
    loop {
        match other.next().await {
            Some(Ok(Message::Pong(payload))) => ponged = payload == "are you there",
            Some(Ok(Message::Close(frame))) => {
                assert_eq!(frame.unwrap().code, CloseCode::Normal);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(ponged);
    // The other implementation answers the close while it is polled.
    while other.next().await.is_some() {}
    timeout(WAIT_LIMIT, writing).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_sends_and_receives() {
    let (ours, other) = server().await;
    exchange(ours, other).await;
}

#[tokio::test]
async fn a_client_sends_and_receives() {
    let (ours, other) = client().await;
    exchange(ours, other).await;
}

#[tokio::test]
async fn a_text_message_is_closed_with_1003() {
    let (mut ours, mut other) = server().await;
    other.send(Message::text("hello")).await.unwrap();
    let error = ours.read_u8().await.unwrap_err();
    assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&Error::Text));
    match other.next().await {
        Some(Ok(Message::Close(Some(frame)))) => assert_eq!(frame.code, CloseCode::Unsupported),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn close_codes_end_or_fail_the_reader() {
    for (code, clean) in [(CloseCode::Normal, true), (CloseCode::Away, true), (CloseCode::Error, false)] {
        let (mut ours, mut other) = server().await;
        other.send(Message::binary("x")).await.unwrap();
        other.close(Some(CloseFrame { code, reason: "".into() })).await.unwrap();
        let mut received = Vec::new();
        let result = ours.read_to_end(&mut received).await.map_err(|error| error.kind());
        let expected = if clean { Ok(1) } else { Err(std::io::ErrorKind::ConnectionAborted) };
        assert_eq!((received.as_slice(), result), (&b"x"[..], expected), "{code:?}");
    }
}

/// The answer has the peer's code, and 1000 for none.
#[tokio::test]
async fn a_close_is_answered_with_its_code() {
    use CloseCode::{Away, Error, Normal};
    for (code, answer) in [(Some(Normal), Normal), (Some(Away), Away), (Some(Error), Error), (None, Normal)] {
        let (mut ours, mut other) = server().await;
        other.close(code.map(|code| CloseFrame { code, reason: "".into() })).await.unwrap();
        let ended = timeout(WAIT_LIMIT, ours.read(&mut [0; 10])).await.unwrap();
        assert_eq!(ended.is_ok(), answer != Error, "{code:?}");
        match timeout(WAIT_LIMIT, other.next()).await.unwrap() {
            Some(Ok(Message::Close(Some(frame)))) => assert_eq!(frame.code, answer, "{code:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_violation_is_answered_with_the_code_of_its_kind() {
    assert_eq!(Error::Text.close_code(), 1003);
    assert_eq!(Error::Fragments.close_code(), 1002);
    assert_eq!(Error::Closed(1011).close_code(), 1011, "it is the peer's own");
}

#[tokio::test]
async fn writing_nothing_sends_nothing() {
    let (near, mut far) = tokio::io::duplex(1024);
    let mut ours = Socket::server(near);
    assert_eq!(ours.write(b"").await.unwrap(), 0);
    ours.write_all(b"x").await.unwrap();
    ours.flush().await.unwrap();
    let mut frame = [0; 10];
    assert_eq!(far.read(&mut frame).await.unwrap(), 3);
    assert_eq!(frame[..3], [0x82, 1, b'x']);
}

/// Pings are answered while a long message is under way, but a peer that reads nothing cannot make us keep answers.
#[tokio::test]
async fn answers_to_pings_wait_behind_a_message_and_are_bounded() {
    use futures_util::FutureExt as _;
    const PING: [u8; 131] = {
        let mut ping = [7; 131];
        // The header, and a mask of zeros.
        (ping[0], ping[1]) = (0x89, 0x80 | 125);
        (ping[2], ping[3], ping[4], ping[5]) = (0, 0, 0, 0);
        ping
    };
    let (near, mut far) = tokio::io::duplex(1024);
    let mut ours = Socket::server(near);
    let message = vec![1; 64 << 10];
    assert_eq!(ours.write(&message).await.unwrap(), message.len());
    for _ in 0..1000 {
        far.write_all(&PING).await.unwrap();
        assert!(ours.read(&mut [0; 1024]).now_or_never().is_none());
    }
    let reading = tokio::spawn(async move {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.unwrap();
        bytes
    });
    ours.flush().await.unwrap();
    drop(ours);
    let sent = timeout(WAIT_LIMIT, reading).await.unwrap().unwrap().len();
    // A header of ten bytes, and answers of 127.
    let answers = (sent - message.len() - 10) / 127;
    assert!((500..530).contains(&answers), "{answers}");
}

#[tokio::test]
async fn the_longest_ping_is_answered_with_its_payload() {
    let (mut ours, mut other) = server().await;
    let payload = [7; 125].to_vec();
    other.send(Message::Ping(payload.clone().into())).await.unwrap();
    other.send(Message::binary("x")).await.unwrap();
    assert_eq!(timeout(WAIT_LIMIT, ours.read_u8()).await.unwrap().unwrap(), b'x');
    ours.flush().await.unwrap();
    let answer = timeout(WAIT_LIMIT, other.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(answer, Message::Pong(payload.into()));
}

#[tokio::test]
async fn a_long_close_reason_is_truncated() {
    let (ours, mut other) = server().await;
    let closing = tokio::spawn(async move { ours.close(1011, &"ä".repeat(100)).await });
    match other.next().await {
        Some(Ok(Message::Close(Some(frame)))) => {
            assert_eq!((frame.code, frame.reason.as_str()), (CloseCode::Error, "ä".repeat(61).as_str()));
        }
        other => panic!("{other:?}"),
    }
    while other.next().await.is_some() {}
    timeout(WAIT_LIMIT, closing).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn single_bytes_and_fragments_decode_to_the_same_payload() {
    let (near, mut far) = tokio::io::duplex(16);
    let mut ours = Socket::client(near);
    let reading = tokio::spawn(async move {
        let mut received = [0; 6];
        ours.read_exact(&mut received).await.unwrap();
        received
    });
    // A message in three frames with a ping between, then one whole message.
    let bytes = [0x02, 2, b'a', b'b', 0x89, 0, 0x00, 1, b'c', 0x80, 1, b'd', 0x82, 2, b'e', b'f'];
    for byte in bytes {
        far.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(&timeout(WAIT_LIMIT, reading).await.unwrap().unwrap(), b"abcdef");
}

#[tokio::test]
async fn a_slow_peer_holds_the_writer_back() {
    let (near, _far) = tokio::io::duplex(1024);
    let mut ours = Socket::server(near);
    let mut taken = 0;
    while let Ok(count) = timeout(Duration::from_millis(50), ours.write(&[0; 100_000])).await {
        taken += count.unwrap();
        assert!(taken <= 128 << 10, "{taken}");
    }
}

#[test]
fn the_answer_to_an_upgrade_accepts_no_subprotocol_and_no_extension() {
    let request = |pairs: &[(&'static str, &'static str)]| {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<HeaderMap>()
    };
    let good = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "chat"),
        ("sec-websocket-extensions", "permessage-deflate"),
    ];
    let answer = handshake::answer(&request(&good)).unwrap();
    assert_eq!(answer["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(
        !answer.contains_key("sec-websocket-protocol") && !answer.contains_key("sec-websocket-extensions")
    );
    for missing in 0..4 {
        let mut pairs = good.to_vec();
        pairs.remove(missing);
        assert!(handshake::answer(&request(&pairs)).is_err(), "without {}", good[missing].0);
    }
}

/// A peer that still sends is read until its close frame; one that simply ends does not keep us.
#[tokio::test]
async fn shutting_down_waits_for_the_close_of_the_peer_or_its_end() {
    use futures_util::FutureExt as _;
    for answers in [true, false] {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let mut ours = Socket::client(near);
        let mut shutdown = Box::pin(ours.shutdown());
        assert!(shutdown.as_mut().now_or_never().is_none(), "the close was not answered");
        // A binary message of one byte: not the answer.
        far.write_all(&[0x82, 1, 7]).await.unwrap();
        assert!(shutdown.as_mut().now_or_never().is_none());
        if answers {
            far.write_all(&[0x88, 2, 0x03, 0xe8]).await.unwrap();
        } else {
            far.shutdown().await.unwrap();
        }
        timeout(WAIT_LIMIT, shutdown).await.unwrap().unwrap();
    }
}
