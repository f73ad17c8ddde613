//! Health, readiness, metrics and the external scaler of KEDA, over HTTP/1.1 and HTTP/2 without TLS.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::external_scaler::{self, Needed, ResponseBody};

/// Most connections at a time; probes, scrapes and KEDA need a few.
const MAX_CONNECTIONS: usize = 64;
/// Calls of a connection at a time.
const MAX_STREAMS: u32 = 64;
/// How long a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// What the pages show.
pub(crate) trait Pages: Needed {
    /// Whether the API server was reached.
    fn is_ready(&self) -> bool;
    /// The text of a scrape.
    fn metrics(&self) -> String;
}

/// Serves `/healthz`, `/readyz`, `/metrics` and the external scaler until it is dropped.
pub(crate) async fn serve(listener: TcpListener, pages: impl Pages) -> Infallible {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let pages = pages.clone();
                async move { Ok::<_, Infallible>(answer(pages, request).await) }
            });
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(16 << 10);
            builder
                .http2()
                .timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .keep_alive_interval(Some(HEAD_TIMEOUT * 3));
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "a connection failed");
            }
            drop(permit);
        });
    }
}

async fn answer(pages: impl Pages, request: Request<Incoming>) -> Response<ResponseBody> {
    let path = request.uri().path();
    if path.starts_with(external_scaler::SERVICE) {
        return external_scaler::answer(request, pages).await;
    }
    let (status, text) = match path {
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" if pages.is_ready() => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "the API server was not reached yet".to_owned()),
        "/metrics" => (StatusCode::OK, pages.metrics()),
        _ => (StatusCode::NOT_FOUND, "not found".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
    *response.status_mut() = status;
    response
}
