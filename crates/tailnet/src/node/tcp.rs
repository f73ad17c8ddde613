//! TCP: streams, and those who accept them.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddrV6;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use smoltcp::socket::tcp::{RecvError, State};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shared;
use super::engine::ConnectionRef;

/// Connections that wait to be accepted at one listener. Further ones are asked for again by their peers.
pub(super) const BACKLOG: usize = 128;

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection ended: its peer is gone, or has new keys")
}

fn reset() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the connection was reset by the peer, or the peer was silent for too long",
    )
}

/// A connection inside the tunnel.
///
/// Dropping it closes the connection; when something that arrived was not read, the other side sees a reset. Half-close works in
/// both directions.
pub struct TcpStream {
    shared: Arc<Shared>,
    connection: ConnectionRef,
}

impl TcpStream {
    pub(super) fn new(shared: Arc<Shared>, connection: ConnectionRef) -> Self {
        Self { shared, connection }
    }

    /// The peer's address and port.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddrV6 {
        self.connection.flow.remote
    }

    /// Our address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddrV6 {
        self.connection.flow.local
    }

    /// Waits until the other side accepted.
    pub(super) async fn connected(&self) -> io::Result<()> {
        poll_fn(|cx| {
            let mut engine = self.shared.lock();
            let socket = engine.socket(self.connection).ok_or_else(gone)?;
            match socket.state() {
                State::SynSent | State::SynReceived => {
                    socket.register_send_waker(cx.waker());
                    Poll::Pending
                }
                State::Closed => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
                _ => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Ends the connection at once; the other side sees a reset.
    pub fn abort(&self) {
        let mut engine = self.shared.lock();
        if let Some(socket) = engine.socket(self.connection) {
            socket.abort();
            engine.flush(self.connection.peer, Instant::now());
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut engine = self.shared.lock();
        let socket = engine.socket(self.connection).ok_or_else(gone)?;
        let before = buffer.filled().len();
        loop {
            let received = socket.recv(|bytes| {
                let count = bytes.len().min(buffer.remaining());
                buffer.put_slice(&bytes[..count]);
                (count, count)
            });
            match received {
                // The buffer is a ring: its other end may hold more.
                Ok(count) if count > 0 && buffer.remaining() > 0 => {}
                Ok(_) => break,
                Err(_) if buffer.filled().len() > before => break,
                Err(RecvError::Finished) => return Poll::Ready(Ok(())),
                Err(RecvError::InvalidState) => {
                    if matches!(socket.state(), State::SynSent | State::SynReceived) {
                        break;
                    }
                    return Poll::Ready(Err(reset()));
                }
            }
        }
        if buffer.filled().len() == before {
            socket.register_recv_waker(cx.waker());
            return Poll::Pending;
        }
        // The other side may be waiting for room.
        engine.flush(self.connection.peer, Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut engine = self.shared.lock();
        let socket = engine.socket(self.connection).ok_or_else(gone)?;
        if matches!(socket.state(), State::SynSent | State::SynReceived) {
            socket.register_send_waker(cx.waker());
            return Poll::Pending;
        }
        let Ok(count) = socket.send_slice(bytes) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if count == 0 && !bytes.is_empty() {
            socket.register_send_waker(cx.waker());
            return Poll::Pending;
        }
        engine.flush(self.connection.peer, Instant::now());
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was written is on its way as far as the other side takes it.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut engine = self.shared.lock();
        if let Some(socket) = engine.socket(self.connection) {
            socket.close();
            engine.flush(self.connection.peer, Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.shared.lock().detach(self.connection, Instant::now());
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("local", &self.local_addr())
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}

/// A peer's request for a connection, not answered yet. Dropping it refuses the connection.
#[derive(Debug)]
pub struct Incoming {
    stream: Option<TcpStream>,
}

impl Incoming {
    /// The peer's address and port.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddrV6 {
        self.flow().remote
    }

    /// Our address and port that the peer wants to reach.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddrV6 {
        self.flow().local
    }

    fn flow(&self) -> super::stack::Flow {
        self.stream.as_ref().expect("it is there until it is accepted").connection.flow
    }

    /// Accepts the connection.
    #[must_use]
    pub fn accept(mut self) -> TcpStream {
        let stream = self.stream.take().expect("it is there until it is accepted");
        let mut engine = stream.shared.lock();
        if let Some(socket) = engine.socket(stream.connection) {
            socket.pause_synack(false);
            engine.flush(stream.connection.peer, Instant::now());
        }
        drop(engine);
        stream
    }
}

/// Takes connections to one port, or to all ports that have no listener.
#[derive(Debug)]
pub struct Listener {
    pub(super) shared: Arc<Shared>,
    /// None for all other ports.
    pub(super) port: Option<u16>,
    pub(super) receiver: mpsc::Receiver<ConnectionRef>,
}

impl Listener {
    /// The next connection; none when the node was closed.
    pub async fn accept(&mut self) -> Option<TcpStream> {
        self.incoming().await.map(Incoming::accept)
    }

    /// The next connection, before it is answered; none when the node was closed.
    pub async fn incoming(&mut self) -> Option<Incoming> {
        let connection = self.receiver.recv().await?;
        Some(Incoming { stream: Some(TcpStream::new(Arc::clone(&self.shared), connection)) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        {
            let mut engine = self.shared.lock();
            match self.port {
                Some(port) => drop(engine.listeners.remove(&port)),
                None => engine.any_listener = None,
            }
        }
        // Those that wait are refused.
        self.receiver.close();
        while let Ok(connection) = self.receiver.try_recv() {
            drop(TcpStream::new(Arc::clone(&self.shared), connection));
        }
    }
}
