//! One accepted connection: TLS handshake, HTTP/1.1 or HTTP/2, time limits, and a graceful end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::activity::{Activity, CloseReason, ConnectionTimeouts};
use super::io_timeouts::TimedStream;
use super::origin::Encrypted;
use crate::config::{Limits, Proxies};

/// A request in, a response out.
pub type Service = BoxCloneSyncService<Request, Response, Infallible>;

/// Time that an idle connection has for its graceful shutdown.
const FAREWELL: Duration = Duration::from_secs(5);

/// Credit of an HTTP/2 connection and of each of its streams, in bytes.
const WINDOW: u32 = 256 << 10;

/// Serves the connections of a server: the routes, the protocol settings and the limits.
pub struct ConnectionService {
    service: Service,
    http: Builder<TokioExecutor>,
    limits: Limits,
    proxies: Proxies,
    stop: CancellationToken,
}

impl ConnectionService {
    /// Prepares the protocol settings once.
    pub fn new(service: Service, limits: Limits, proxies: Proxies, stop: CancellationToken) -> Arc<Self> {
        let mut http = Builder::new(TokioExecutor::new());
        // Hyper's own time limit for heads begins only after the first 24 bytes and does not separate idle from slow.
        // `activity` limits both.
        http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(64 << 10);
        // Apps of workspaces get the names of headers as browsers write them.
        http.http1().preserve_header_case(true);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(256)
            // Bytes that a peer may send before a handler reads them, for all streams of a connection together.
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .max_header_list_size(64 << 10)
            .keep_alive_interval(limits.stall_timeout)
            .keep_alive_timeout(limits.head_timeout);
        Arc::new(Self { service, http, limits, proxies, stop })
    }

    /// Serves one connection until either side ends it.
    pub async fn serve(self: Arc<Self>, stream: TcpStream, from: SocketAddr, tls: Option<TlsAcceptor>) {
        // Log lines and RPC answers are small; waiting to fill a packet only adds latency.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "the peer disconnected before the connection began");
            return;
        }
        let Some(tls) = tls else {
            return self.speak(stream, from, false).await;
        };
        match tokio::time::timeout(self.limits.head_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.speak(stream, from, true).await,
            Ok(Err(error)) => tracing::debug!(%error, %from, "TLS handshake failed"),
            Err(_) => tracing::debug!(%from, "TLS handshake timed out"),
        }
    }

    async fn speak<S>(&self, stream: S, from: SocketAddr, encrypted: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Activity::new();
        let io = TokioIo::new(TimedStream::new(stream, self.limits.stall_timeout, Arc::clone(&activity)));
        let service = hyper::service::service_fn(|request: Request<Incoming>| {
            let counted = activity.request(request.version());
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(from));
            if encrypted {
                request.extensions_mut().insert(Encrypted);
            }
            let answer = self.service.clone().oneshot(request);
            async move {
                let response = answer.await?;
                Ok::<_, Infallible>(response.map(|body| counted.responds(body)))
            }
        });
        let connection = self.http.serve_connection_with_upgrades(io, service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            reason = activity.overdue(self.timeouts(from)) => {
                tracing::debug!(?reason, %from, "connection closed by a time limit");
                if reason != CloseReason::Idle {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                // A connection that does not end in time is dropped.
                tokio::time::timeout(FAREWELL, connection).await.unwrap_or(Ok(()))
            }
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = &*error, %from, "connection ended early");
        }
    }

    fn timeouts(&self, from: SocketAddr) -> ConnectionTimeouts {
        let limits = &self.limits;
        let idle =
            if self.proxies.trusts(from.ip()) { limits.proxy_idle_timeout } else { limits.idle_timeout };
        ConnectionTimeouts { head: limits.head_timeout, idle, stall: limits.stall_timeout }
    }
}
