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
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Credit of an HTTP/2 connection and of each of its streams, in bytes.
const STREAM_WINDOW: u32 = 256 << 10;

/// Bytes that the kernel takes for a connection beyond what the peer's window allows to be sent. A peer that stops reading keeps no more
/// than this and its own window; the kernel's default are several MiB.
#[cfg(target_os = "linux")]
const MAX_UNSENT_BYTES: u32 = 128 << 10;

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
            .initial_connection_window_size(STREAM_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_header_list_size(64 << 10)
            .keep_alive_interval(limits.stall_timeout)
            .keep_alive_timeout(limits.head_timeout);
        Arc::new(Self { service, http, limits, proxies, stop })
    }

    /// Serves one connection until either side ends it.
    pub async fn serve(self: Arc<Self>, stream: TcpStream, from: SocketAddr, tls: Option<TlsAcceptor>) {
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%error, "the peer disconnected before the connection began");
            return;
        }
        let Some(tls) = tls else {
            return self.serve_http(stream, from, false).await;
        };
        match tokio::time::timeout(self.limits.head_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve_http(stream, from, true).await,
            Ok(Err(error)) => tracing::debug!(%error, %from, "TLS handshake failed"),
            Err(_) => tracing::debug!(%from, "TLS handshake timed out"),
        }
    }

    async fn serve_http<S>(&self, stream: S, from: SocketAddr, encrypted: bool)
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
                tokio::time::timeout(CLOSE_TIMEOUT, connection).await.unwrap_or(Ok(()))
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

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES)?;
    // Log lines and RPC answers are small; waiting to fill a packet only adds latency.
    stream.set_nodelay(true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use coder_testkit::wait::settled;
    use futures_util::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A response without end, which counts the bytes that were taken from it.
    fn endless(taken: &Arc<AtomicUsize>) -> Response {
        let taken = Arc::clone(taken);
        let pieces = futures_util::stream::repeat(bytes::Bytes::from_static(&[0; 4096])).map(move |piece| {
            taken.fetch_add(piece.len(), Ordering::Relaxed);
            Ok::<_, Infallible>(piece)
        });
        Response::new(Body::from_stream(pieces))
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn the_kernel_keeps_little_for_a_peer_that_does_not_read() {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let service = tower::service_fn(move |_: Request| std::future::ready(Ok(endless(&counted))));
        let stop = CancellationToken::new();
        let service =
            ConnectionService::new(Service::new(service), Limits::default(), Proxies::default(), stop);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let mut client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, from) = listener.accept().await.unwrap();
        let served = tokio::spawn(service.serve(stream, from, None));
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        client.read_exact(&mut [0; 12]).await.unwrap();
        let kept = settled(|| taken.load(Ordering::Relaxed)).await;
        assert!(kept < 1 << 20, "{kept} bytes for a peer that does not read");
        served.abort();
    }
}
