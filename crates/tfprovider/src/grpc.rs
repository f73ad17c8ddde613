//! Unary gRPC calls over one connection: the part of gRPC that a Terraform provider needs, on HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::msgpack;

/// Largest message of a peer. A state is sent to the server in at most 4 MiB, but scripts may be longer.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// Most concurrent calls of one connection; Terraform makes ten by default.
const MAX_CONCURRENT_CALLS: u32 = 256;

/// Size of the compression flag and the length before each message.
const PREFIX_BYTES: usize = 5;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Status {
    code: u8,
    message: String,
}

impl Status {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into() }
    }

    pub(crate) fn unknown_type(name: &str) -> Self {
        Self::invalid(format!("this provider has no type {name:?}"))
    }

    pub(crate) fn unimplemented(path: &str) -> Self {
        Self { code: 12, message: format!("{path} is not implemented") }
    }

    fn too_large() -> Self {
        Self { code: 8, message: format!("a message is larger than {MAX_MESSAGE_BYTES} bytes") }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from(u16::from(self.code)));
        // Header values are ASCII. This message is for developers; users read diagnostics.
        let plain: String = self.message.chars().filter(|c| *c != '%' && matches!(c, ' '..='~')).collect();
        if let Ok(message) = HeaderValue::from_str(&plain) {
            headers.insert("grpc-message", message);
        }
        headers
    }
}

impl From<msgpack::Error> for Status {
    fn from(error: msgpack::Error) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Serves a connection until the peer closes it or `end` is cancelled; `call` answers a method's path and message.
pub(crate) async fn serve<S, F, Answer>(stream: S, call: F, end: CancellationToken) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(String, Bytes) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Bytes, Status>> + Send + 'static,
{
    let call = Arc::new(call);
    let held = end.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (call, end) = (call.clone(), held.clone());
        async move { Ok::<_, Infallible>(answer(request, &*call, end).await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_CALLS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = end.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// Terraform's plugin library opens these streams besides those of the protocol: one for further connections, one for the
/// output of the plugin. Nothing is sent on them. They stay open, because the library reports an error otherwise.
fn is_held_open(path: &str) -> bool {
    matches!(path, "/plugin.GRPCBroker/StartStream" | "/plugin.GRPCStdio/StreamStdio")
}

async fn answer<F, Answer>(
    request: Request<Incoming>,
    call: &F,
    end: CancellationToken,
) -> Response<UnsyncBoxBody<Bytes, Infallible>>
where
    F: Fn(String, Bytes) -> Answer,
    Answer: Future<Output = Result<Bytes, Status>>,
{
    let path = request.uri().path().to_owned();
    if is_held_open(&path) {
        let body = Empty::new().with_trailers(async move {
            end.cancelled().await;
            Some(Ok(succeeded()))
        });
        return response(HeaderMap::new(), body.boxed_unsync());
    }
    let result = match message(request.into_body()).await {
        Ok(message) => call(path.clone(), message).await,
        Err(status) => Err(status),
    };
    match result {
        Ok(message) => {
            let body = Full::new(framed(message)).with_trailers(std::future::ready(Some(Ok(succeeded()))));
            response(HeaderMap::new(), body.boxed_unsync())
        }
        Err(status) => {
            tracing::debug!(path, code = status.code, reason = status.message, "a provider call failed");
            response(status.headers(), Empty::new().boxed_unsync())
        }
    }
}

/// The one message of a request's body.
async fn message(body: Incoming) -> Result<Bytes, Status> {
    let body = Limited::new(body, PREFIX_BYTES + MAX_MESSAGE_BYTES).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            Status::too_large()
        } else {
            Status::invalid("the request ended early")
        }
    })?;
    let mut body = body.to_bytes();
    if body.len() < PREFIX_BYTES {
        return Err(Status::invalid("the request has no message"));
    }
    let prefix = body.split_to(PREFIX_BYTES);
    if prefix[0] != 0 {
        return Err(Status::invalid("the message is compressed"));
    }
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if usize::try_from(length).is_ok_and(|length| length == body.len()) {
        Ok(body)
    } else {
        Err(Status::invalid("the length of the message is wrong"))
    }
}

fn framed(message: Bytes) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("an answer is shorter than 4 GiB"));
    framed.put(message);
    framed.freeze()
}

fn succeeded() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))])
}

fn response(
    mut headers: HeaderMap,
    body: UnsyncBoxBody<Bytes, Infallible>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    *response.headers_mut() = headers;
    response
}
