//! The HTTP side of a WebSocket: checking the request, and the 101 answer without subprotocol and extensions
//! (wire-protocol 1.3). After it the connection is a raw stream of bytes.

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use coder_wire::extension::{self, Extensions};
use coder_wire::ws::handshake;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::error::Error;

/// The connection after the upgrade.
pub type WebSocketConnection = TokioIo<Upgraded>;

/// A request that may become a WebSocket.
pub struct Upgrade {
    headers: HeaderMap,
    connection: OnUpgrade,
}

/// The answer to a request that is not a WebSocket upgrade: 426 with the expected protocol.
pub struct Refused(String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let error = Error::new(
            StatusCode::UPGRADE_REQUIRED,
            "This endpoint needs a WebSocket upgrade over HTTP/1.1.",
        );
        let mut response = error.detail(self.0).compact().into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        response
    }
}

/// Checks that the request asks for a WebSocket.
pub fn check(request: &mut Request) -> Result<Upgrade, Refused> {
    let headers = handshake::answer(request.headers()).map_err(|error| Refused(error.to_string()))?;
    let connection =
        request.extensions_mut().remove::<OnUpgrade>().filter(|_| *request.method() == Method::GET);
    let connection = connection.ok_or_else(|| Refused("the connection cannot be upgraded".to_owned()))?;
    Ok(Upgrade { headers, connection })
}

impl Upgrade {
    /// Names the granted extensions in the answer (docs/extensions.md). Clients that offered none get no header.
    pub fn grant(&mut self, extensions: Extensions) {
        if let Some(value) = extensions.header() {
            self.headers.insert(extension::HEADER, value);
        }
    }

    /// The 101 answer, and a future that resolves to the connection once the answer is sent.
    pub fn accept(self) -> (Response, impl Future<Output = hyper::Result<WebSocketConnection>> + Send) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = self.headers;
        let connection = self.connection;
        (response, async move { connection.await.map(TokioIo::new) })
    }
}
