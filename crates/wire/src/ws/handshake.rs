//! The HTTP/1.1 exchange before a WebSocket, for both sides (wire-protocol 1.3).

use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{StatusCode, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Socket;
use crate::bytes::ByteStream;

/// Longest header of an answer, in bytes.
const HEADER_LIMIT: usize = 16 << 10;
/// Bytes of a refusal's body that are kept; official peers read no more either.
const BODY_LIMIT: usize = 1024;

/// Why an upgrade failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with something else than 101.
    #[error("the server answered the upgrade with status {status}")]
    Refused {
        /// The answer's status.
        status: StatusCode,
        /// The beginning of its body.
        body: Vec<u8>,
    },
    /// The answer is not HTTP/1.1 or not the expected one.
    #[error("the server's answer to the upgrade is wrong: {0}")]
    Answer(&'static str),
    /// The connection failed.
    #[error("the connection failed during the upgrade")]
    Io(#[from] std::io::Error),
}

/// A request that is not a WebSocket upgrade; answer it with 426 and `Upgrade: websocket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request is not a WebSocket upgrade: {0}")]
pub struct NotAnUpgrade(pub &'static str);

/// The headers of the 101 that answers a request with `headers`. Neither a subprotocol nor an extension is ever chosen:
/// official clients fail on both.
///
/// # Errors
/// [`NotAnUpgrade`] when the request asks for something else.
pub fn answer(headers: &HeaderMap) -> Result<HeaderMap, NotAnUpgrade> {
    let has = |name: HeaderName, want: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(want))
    };
    if !has(CONNECTION, "upgrade") || !has(UPGRADE, "websocket") {
        return Err(NotAnUpgrade("Connection: Upgrade and Upgrade: websocket are needed"));
    }
    if !has(SEC_WEBSOCKET_VERSION, "13") {
        return Err(NotAnUpgrade("Sec-WebSocket-Version must be 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(NotAnUpgrade("Sec-WebSocket-Key is missing"))?;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| NotAnUpgrade("Sec-WebSocket-Key is malformed"))?;
    Ok(HeaderMap::from_iter([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ]))
}

/// Upgrades an established connection as the client. `uri` gives host, path and query; `headers` are added as they are.
///
/// Dialling through proxies and TLS is the business of the API client, which makes its own upgrade and then uses
/// [`Socket::client`].
///
/// # Errors
/// [`Error`]; a refusal carries the status and the beginning of the body.
pub async fn client<T: ByteStream>(mut io: T, uri: &Uri, headers: &HeaderMap) -> Result<Socket<T>, Error> {
    let key = generate_key();
    let upgrade = format!("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n");
    let head = exchange(&mut io, uri, "/", &upgrade, headers).await?;
    let (status, answered) = parse(&head)?;
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let mut body = Vec::new();
        let length =
            answered.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let limit = length.unwrap_or(BODY_LIMIT).min(BODY_LIMIT) as u64;
        io.take(limit).read_to_end(&mut body).await?;
        return Err(Error::Refused { status, body });
    }
    if answered.get(SEC_WEBSOCKET_ACCEPT).is_none_or(|accept| *accept != derive_accept_key(key.as_bytes())) {
        return Err(Error::Answer("its accept key does not belong to the request"));
    }
    if answered.contains_key(SEC_WEBSOCKET_PROTOCOL) || answered.contains_key(SEC_WEBSOCKET_EXTENSIONS) {
        return Err(Error::Answer("it chose a subprotocol or an extension that was not offered"));
    }
    Ok(Socket::client(io))
}

/// Sends the request of an upgrade and reads the header of the answer, up to 16 KiB. `default_path` is for a `uri` without a path,
/// `upgrade` are the lines that say to what; `headers` are added as they are.
///
/// # Errors
/// [`Error::Io`], and [`Error::Answer`] when the header is too long.
pub async fn exchange(
    io: &mut impl ByteStream,
    uri: &Uri,
    default_path: &str,
    upgrade: &str,
    headers: &HeaderMap,
) -> Result<Vec<u8>, Error> {
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let path = uri.path_and_query().map_or(default_path, |path| path.as_str());
    let mut request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n{upgrade}").into_bytes();
    for (name, value) in headers {
        request.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    request.extend_from_slice(b"\r\n");
    io.write_all(&request).await?;
    io.flush().await?;

    // Read byte by byte, so that the bytes after the header stay in the connection.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEADER_LIMIT {
            return Err(Error::Answer("its header is too long"));
        }
        head.push(io.read_u8().await?);
    }
    Ok(head)
}

/// Status and headers of an HTTP/1 answer; an entry point for fuzzing.
///
/// # Errors
/// [`Error::Answer`] when the bytes are not such an answer.
pub fn parse(head: &[u8]) -> Result<(StatusCode, HeaderMap), Error> {
    let text = std::str::from_utf8(head).map_err(|_| Error::Answer("it is not text"))?;
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().splitn(3, ' ');
    if !first.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err(Error::Answer("it is not HTTP/1"));
    }
    let status = first.next().and_then(|status| StatusCode::from_bytes(status.as_bytes()).ok());
    let status = status.ok_or(Error::Answer("it has no status"))?;
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Error::Answer("a header has no colon"))?;
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| Error::Answer("a header has a bad name"))?;
        let value =
            HeaderValue::from_str(value.trim()).map_err(|_| Error::Answer("a header has a bad value"))?;
        headers.append(name, value);
    }
    Ok((status, headers))
}
