//! The two HTTP/1.1 exchanges that turn a connection into another: CONNECT to a proxy and the WebSocket upgrade.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use url::Url;

use super::{BoxedByteStream, UpgradedConnection};
use crate::client::error::{Call, Error, ErrorResponse};

/// Longest header of an answer.
const HEADER_LIMIT: usize = 64 << 10;
/// Longest error body that is read.
const ERROR_LIMIT: usize = 64 << 10;

/// Asks a proxy for a tunnel to `url`'s host.
pub(super) async fn tunnel(
    call: &Call,
    conn: BoxedByteStream,
    proxy: &Url,
    url: &Url,
) -> Result<BoxedByteStream, Error> {
    let target = authority(url);
    let mut request = Request::builder().method(Method::CONNECT).uri(&target).header(header::HOST, &target);
    if let Some(credentials) = basic(proxy) {
        request = request.header(header::PROXY_AUTHORIZATION, credentials);
    }
    let request = request.body(Empty::new()).map_err(|error| call.protocol(error.to_string()))?;
    Ok(exchange(call, conn, request, StatusCode::OK).await?.stream)
}

/// Upgrades to a WebSocket without subprotocol and extensions (wire-protocol 1.3).
pub(super) async fn websocket(
    call: &Call,
    conn: BoxedByteStream,
    url: &Url,
    headers: HeaderMap,
) -> Result<UpgradedConnection, Error> {
    let key = generate_key();
    let mut path = url.path().to_owned();
    if let Some(query) = url.query() {
        path.push('?');
        path.push_str(query);
    }
    let mut request = Request::builder()
        .uri(path)
        .header(header::HOST, host(url))
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, &key)
        .body(Empty::new())
        .map_err(|error| call.protocol(error.to_string()))?;
    request.headers_mut().extend(headers);
    let upgraded = exchange(call, conn, request, StatusCode::SWITCHING_PROTOCOLS).await?;
    check(&upgraded.headers, &key).map_err(|what| call.protocol(what))?;
    Ok(upgraded)
}

fn check(headers: &HeaderMap, key: &str) -> Result<(), &'static str> {
    let is = |name, want: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(want))
    };
    if !is(header::UPGRADE, "websocket") || !is(header::CONNECTION, "upgrade") {
        return Err("the server switched to something that is not a WebSocket");
    }
    if headers
        .get(header::SEC_WEBSOCKET_ACCEPT)
        .is_none_or(|accept| *accept != derive_accept_key(key.as_bytes()))
    {
        return Err("the server's WebSocket handshake does not match the request");
    }
    if headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL)
        || headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS)
    {
        return Err("the server chose a WebSocket subprotocol or extension that was not offered");
    }
    Ok(())
}

/// Sends one request and, when the answer has the wanted status, takes the connection over.
async fn exchange(
    call: &Call,
    conn: BoxedByteStream,
    request: Request<Empty<Bytes>>,
    wanted: StatusCode,
) -> Result<UpgradedConnection, Error> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEADER_LIMIT);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(conn)).await.map_err(|error| call.transport(error))?;
    // The connection transfers bytes only while it is polled. Its end shows in the other branch.
    let driver = async {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection ended during an upgrade");
        }
        std::future::pending::<()>().await;
    };
    let work = async {
        let response = sender.send_request(request).await.map_err(|error| call.transport(error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status != wanted {
            let body = read_error_body(response.into_body()).await;
            return Err(Error::Status(Box::new(ErrorResponse::read(call.clone(), status, &headers, &body))));
        }
        let stream = hyper::upgrade::on(response).await.map_err(|error| call.transport(error))?;
        Ok(UpgradedConnection { stream: Box::new(TokioIo::new(stream)), headers })
    };
    tokio::select! {
        result = work => result,
        () = driver => Err(call.protocol("the connection ended")),
    }
}

/// The body of a refusal, or nothing if it is too long or breaks off; the status counts either way.
async fn read_error_body(body: hyper::body::Incoming) -> Bytes {
    Limited::new(body, ERROR_LIMIT)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default()
}

/// `host:port` with the port always there.
fn authority(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443))
}

/// The `Host` header: the port only if it is not the scheme's own.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Basic authentication from a proxy's URL.
fn basic(proxy: &Url) -> Option<HeaderValue> {
    use base64::Engine as _;
    if proxy.username().is_empty() && proxy.password().is_none() {
        return None;
    }
    let mut pair: Vec<u8> = percent_decode_str(proxy.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(proxy.password().unwrap_or_default()));
    let text = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
