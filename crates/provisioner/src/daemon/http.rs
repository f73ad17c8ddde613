//! The daemon's HTTP server: health, status, drain, metrics (docs/extensions.md, Daemon HTTP).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::status::{Status, StatusHandle};
use crate::cancel::Shutdown;

/// Concurrent connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 32;

/// A client that takes longer to send its request is disconnected.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// After a failed accept, which usually means that no file descriptor is left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Serialize)]
struct StatusBody<'a> {
    connected: bool,
    busy: bool,
    draining: bool,
    ready: bool,
    jobs: &'a [String],
    slots: usize,
    jobs_started: u64,
    reconnects: u64,
    last_error: Option<&'a str>,
    problem: Option<&'a str>,
    problem_detail: Option<&'a str>,
    version: &'a str,
    extensions: Vec<&'a str>,
    isolation: &'a str,
    limits: &'a [String],
}

/// Serves `listener` until the future is dropped. `version` is reported in the status.
pub async fn serve(
    listener: TcpListener,
    version: String,
    status: StatusHandle,
    shutdown: Shutdown,
) -> Infallible {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let handler = Arc::new(HttpHandler { version, status, shutdown });
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection to the daemon's HTTP server failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let handler = Arc::clone(&handler);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = handler.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a client of the daemon's HTTP server disconnected");
            }
            drop(permit);
        });
    }
}

struct HttpHandler {
    version: String,
    status: StatusHandle,
    shutdown: Shutdown,
}

impl HttpHandler {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match path {
            "/healthz" if reads => text(StatusCode::OK, "ok\n"),
            "/readyz" if reads => self.ready(),
            "/status" if reads => self.status_json(),
            "/drain" if *request.method() == Method::POST && is_from_web_page(request.headers()) => {
                text(StatusCode::FORBIDDEN, "web pages may not drain a daemon; use curl or another program\n")
            }
            "/drain" if *request.method() == Method::POST => {
                tracing::info!(target: "provisioner", "draining, requested over HTTP");
                self.shutdown.drain();
                text(StatusCode::ACCEPTED, "draining\n")
            }
            "/healthz" | "/readyz" | "/status" => not_allowed("GET, HEAD"),
            "/drain" => not_allowed("POST"),
            // The official daemon serves its metrics at any path.
            _ if reads => typed(StatusCode::OK, METRICS, self.status.metrics()),
            _ => not_allowed("GET, HEAD"),
        }
    }

    /// The daemon's status; a requested stop shows at once.
    fn current_status(&self) -> Status {
        let mut status = self.status.get();
        status.draining |= self.shutdown.requested().is_some();
        status
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let status = self.current_status();
        if status.is_ready() {
            text(StatusCode::OK, "ok\n")
        } else if status.draining {
            text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        } else if let Some(problem) = status.health.problem() {
            text(StatusCode::SERVICE_UNAVAILABLE, format!("unhealthy: {}\n", problem.summary))
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, "not connected to the server\n")
        }
    }

    fn status_json(&self) -> Response<Full<Bytes>> {
        let status = self.current_status();
        let status_json = StatusBody {
            connected: status.connected,
            busy: status.is_busy(),
            draining: status.draining,
            ready: status.is_ready(),
            jobs: &status.jobs,
            slots: status.slots,
            jobs_started: status.jobs_started,
            reconnects: status.reconnects,
            last_error: status.last_error.as_deref(),
            problem: status.health.problem().map(|problem| problem.summary.as_str()),
            problem_detail: status.health.problem().map(|problem| problem.detail.as_str()),
            version: &self.version,
            extensions: status.extensions.iter().map(|extension| extension.name()).collect(),
            isolation: status.isolation.as_str(),
            limits: &status.limits,
        };
        let json = serde_json::to_string(&status_json).expect("plain values always serialise");
        typed(StatusCode::OK, "application/json", json)
    }
}

/// Browsers send one of these with each POST, and a page cannot leave it out. No page belongs to this server.
fn is_from_web_page(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.get("sec-fetch-site").is_some_and(|site| site != "none")
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", text.into())
}

fn typed(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed here\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::metrics::Metrics;

    fn handler(status: Status) -> (HttpHandler, watch::Sender<Status>) {
        let (sender, receiver) = watch::channel(status);
        let status = StatusHandle::new(receiver, Metrics::new());
        (HttpHandler { version: "v1".to_owned(), status, shutdown: Shutdown::new() }, sender)
    }

    fn send(handler: &HttpHandler, method: Method, path: &str) -> Response<Full<Bytes>> {
        handler.answer(&Request::builder().method(method).uri(path).body(()).unwrap())
    }

    #[test]
    fn only_an_idle_daemon_without_connection_and_a_draining_one_are_not_ready() {
        let check = |status: Status, wanted: u16| {
            let (handler, _status) = handler(status.clone());
            assert_eq!(send(&handler, Method::GET, "/readyz").status(), wanted, "{status:?}");
            assert_eq!(send(&handler, Method::GET, "/healthz").status(), 200, "{status:?}");
        };
        let busy = Status { jobs: vec!["j".to_owned()], ..Status::default() };
        check(Status::default(), 503);
        check(busy.clone(), 200);
        check(Status { connected: true, ..Status::default() }, 200);
        check(Status { connected: true, draining: true, ..busy }, 503);
    }

    /// A page of any origin can send a POST to a port on the machine of the person who looks at it.
    #[test]
    fn web_pages_cannot_drain() {
        let (handler, _status) = handler(Status::default());
        let sends =
            [("origin", "null"), ("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
        for (name, value) in sends {
            let request = Request::post("/drain").header(name, value).body(()).unwrap();
            assert_eq!(handler.answer(&request).status(), 403, "{name}: {value}");
        }
        assert!(handler.shutdown.requested().is_none());
    }

    #[test]
    fn draining_takes_a_post() {
        let (handler, _status) = handler(Status { connected: true, ..Status::default() });
        assert_eq!(send(&handler, Method::GET, "/drain").status(), 405);
        assert_eq!(handler.shutdown.requested(), None);
        assert_eq!(send(&handler, Method::GET, "/readyz").status(), 200);
        assert_eq!(send(&handler, Method::POST, "/drain").status(), 202);
        assert_eq!(handler.shutdown.requested(), Some(crate::Stop::Drain));
        assert_eq!(
            send(&handler, Method::GET, "/readyz").status(),
            503,
            "whatever the daemon has done by now"
        );
        assert_eq!(send(&handler, Method::DELETE, "/status").headers()[ALLOW], "GET, HEAD");
    }

    #[test]
    fn metrics_are_under_any_other_path() {
        let (handler, _status) = handler(Status::default());
        for path in ["/", "/metrics", "/anything"] {
            let answer = send(&handler, Method::GET, path);
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()[CONTENT_TYPE]),
                (200, &HeaderValue::from_static(METRICS))
            );
        }
    }
}
