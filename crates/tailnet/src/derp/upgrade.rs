//! The HTTP/1.1 exchange before DERP, both sides: `Upgrade: DERP`, or a WebSocket with the subprotocol `derp`.

use coder_wire::bytes::{BoxedStream, ByteStream};
use coder_wire::ws::{Socket, handshake};
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{StatusCode, Uri};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::key::NodePublic;

/// The subprotocol, and the protocol in `Upgrade`, in lower case.
const DERP: &str = "derp";
const VERSION_HEADER: HeaderName = HeaderName::from_static("derp-version");
const KEY_HEADER: HeaderName = HeaderName::from_static("derp-public-key");

/// The forms of the upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `Upgrade: DERP`: the byte stream behind the answer is DERP.
    Derp,
    /// A WebSocket whose binary messages are the byte stream, for proxies that let nothing else pass.
    WebSocket,
}

/// A request that asks for none of the forms; answer it with 426 and `Upgrade: DERP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request is not an upgrade to DERP: {0}")]
pub struct NotAnUpgrade(&'static str);

/// Why a dialled server gave no DERP stream.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with something else than 101.
    #[error("the server answered the upgrade to DERP with status {0}")]
    Refused(StatusCode),
    /// The answer is not HTTP/1.1 or not what was asked for.
    #[error("the server's answer to the upgrade to DERP is wrong: {0}")]
    Answer(&'static str),
    /// The connection failed.
    #[error("the connection failed during the upgrade to DERP")]
    Io(#[from] std::io::Error),
}

impl From<handshake::Error> for Error {
    fn from(error: handshake::Error) -> Self {
        match error {
            handshake::Error::Refused { status, .. } => Self::Refused(status),
            handshake::Error::Answer(problem) => Self::Answer(problem),
            handshake::Error::Io(error) => Self::Io(error),
        }
    }
}

impl Error {
    /// Whether the other form may work: official clients try a WebSocket after a status from 400 to 499.
    #[must_use]
    pub fn wants_websocket(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_client_error())
    }
}

fn has(headers: &HeaderMap, name: &HeaderName, want: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(want))
}

/// The form that a request with `headers` asks for, and the headers of the 101 that answers it.
///
/// # Errors
/// [`NotAnUpgrade`] when it asks for none.
pub fn answer(headers: &HeaderMap, relay: &NodePublic) -> Result<(Form, HeaderMap), NotAnUpgrade> {
    if has(headers, &UPGRADE, "websocket") {
        if !has(headers, &SEC_WEBSOCKET_PROTOCOL, DERP) {
            return Err(NotAnUpgrade("the WebSocket does not offer the subprotocol derp"));
        }
        let mut answer = handshake::answer(headers).map_err(|error| NotAnUpgrade(error.0))?;
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(DERP));
        return Ok((Form::WebSocket, answer));
    }
    if !has(headers, &CONNECTION, "upgrade") || !has(headers, &UPGRADE, DERP) {
        return Err(NotAnUpgrade("Connection: Upgrade and Upgrade: DERP are needed"));
    }
    let key = HeaderValue::from_str(&hex::encode(relay.as_bytes())).expect("hexadecimal digits are allowed");
    let answer = [
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("DERP")),
        (VERSION_HEADER, HeaderValue::from_static("2")),
        (KEY_HEADER, key),
    ];
    Ok((Form::Derp, HeaderMap::from_iter(answer)))
}

/// The DERP stream of a connection that was answered with 101, for the relay.
pub fn server_stream(form: Form, io: impl ByteStream) -> BoxedStream {
    match form {
        Form::Derp => Box::new(io),
        Form::WebSocket => Box::new(Socket::server(io)),
    }
}

/// Upgrades an established connection as the client. `uri` gives host, path and query; `headers` are added as they are.
///
/// # Errors
/// [`Error`]. Time limits are the caller's.
pub async fn client(
    mut io: impl ByteStream,
    uri: &Uri,
    headers: &HeaderMap,
    form: Form,
) -> Result<BoxedStream, Error> {
    let key = generate_key();
    let upgrade = match form {
        Form::Derp => "Upgrade: DERP\r\n".to_owned(),
        Form::WebSocket => format!(
            "Upgrade: websocket\r\n{SEC_WEBSOCKET_VERSION}: 13\r\n{SEC_WEBSOCKET_KEY}: {key}\r\n\
             {SEC_WEBSOCKET_PROTOCOL}: {DERP}\r\n"
        ),
    };
    let head = handshake::exchange(&mut io, uri, "/derp", &upgrade, headers).await?;
    check(&head, form, &key)?;
    Ok(match form {
        Form::Derp => Box::new(io),
        Form::WebSocket => Box::new(Socket::client(io)),
    })
}

/// Whether an answer's header agrees to the upgrade; an entry point for fuzzing.
///
/// # Errors
/// [`Error`] when it does not.
pub fn check(head: &[u8], form: Form, key: &str) -> Result<(), Error> {
    let (status, headers) = handshake::parse(head)?;
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Error::Refused(status));
    }
    match form {
        Form::Derp if !has(&headers, &UPGRADE, DERP) => Err(Error::Answer("it upgrades to another protocol")),
        Form::WebSocket
            if headers
                .get(SEC_WEBSOCKET_ACCEPT)
                .is_none_or(|accept| *accept != derive_accept_key(key.as_bytes())) =>
        {
            Err(Error::Answer("its accept key does not belong to the request"))
        }
        Form::WebSocket if !has(&headers, &SEC_WEBSOCKET_PROTOCOL, DERP) => {
            Err(Error::Answer("it did not choose the subprotocol derp"))
        }
        Form::WebSocket if headers.contains_key(SEC_WEBSOCKET_EXTENSIONS) => {
            Err(Error::Answer("it chose an extension that was not offered"))
        }
        Form::Derp | Form::WebSocket => Ok(()),
    }
}
