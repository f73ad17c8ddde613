//! The agent's HTTP API on the overlay network (agent 3.8). Whoever reaches it was authorized by the coordinator.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coder_wire::bytes::ByteStream;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;

use crate::listening_ports::{ListeningPort, ListeningPorts};
use crate::state::AgentState;

/// Longest header of a request.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// The time for the header of a request; an idle connection ends after it, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of the agent's log that are shown.
const MAX_LOG_BYTES: u64 = 10 << 20;

#[derive(Serialize)]
struct Message<'a> {
    message: &'a str,
}

#[derive(Serialize)]
struct Ports {
    ports: Vec<ListeningPort>,
}

/// Serves one connection.
pub(crate) async fn serve(state: Arc<AgentState>, ports: Arc<ListeningPorts>, stream: impl ByteStream) {
    let service = service_fn(move |request| {
        let (state, ports) = (Arc::clone(&state), Arc::clone(&ports));
        async move { Ok::<_, Infallible>(answer(&state, &ports, &request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the agent's HTTP API ended");
    }
}

async fn answer(
    state: &AgentState,
    ports: &ListeningPorts,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return json(StatusCode::METHOD_NOT_ALLOWED, &Message { message: "only GET is supported" });
    }
    match path.trim_end_matches('/') {
        "" => json(StatusCode::OK, &Message { message: "Hello from the agent!" }),
        "/api/v0/listening-ports" => json(StatusCode::OK, &Ports { ports: ports.list().await }),
        "/debug/logs" => match &state.config.log_file {
            Some(path) => log(path).await,
            None => json(StatusCode::NOT_FOUND, &Message { message: "the agent writes no log file" }),
        },
        path if path.starts_with("/api/v0/containers") => {
            json(StatusCode::FORBIDDEN, &Message { message: "this agent does not support dev containers" })
        }
        _ => json(StatusCode::NOT_FOUND, &Message { message: "there is nothing at this path" }),
    }
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).unwrap_or_default();
    respond(status, "application/json; charset=utf-8", body)
}

fn respond(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

async fn log(path: &Path) -> Response<Full<Bytes>> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_BYTES)))?;
        let mut text = Vec::new();
        file.take(MAX_LOG_BYTES).read_to_end(&mut text)?;
        Ok::<_, std::io::Error>(text)
    });
    match read.await {
        Ok(Ok(text)) => respond(StatusCode::OK, "text/plain; charset=utf-8", text),
        _ => json(StatusCode::INTERNAL_SERVER_ERROR, &Message { message: "the agent's log cannot be read" }),
    }
}
