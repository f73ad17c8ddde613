//! UDP: sockets on one port, and one for every other port.

use std::io;
use std::net::SocketAddrV6;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shared;
use super::ip;
use super::stack::MTU;

/// Datagrams that wait for one socket. Further ones are dropped.
pub(super) const QUEUE: usize = 256;
/// Longest text of a datagram in bytes.
pub const TEXT: usize = MTU - ip::HEADER - ip::UDP_HEADER;

/// A datagram that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// The peer's address and port.
    pub source: SocketAddrV6,
    /// Our address and port that it was sent to.
    pub destination: SocketAddrV6,
    /// What it carries.
    pub text: Bytes,
}

/// Receives the datagrams of one port, or of all ports that have no socket.
#[derive(Debug)]
pub struct UdpSocket {
    pub(super) shared: Arc<Shared>,
    /// None for all other ports.
    pub(super) port: Option<u16>,
    pub(super) receiver: mpsc::Receiver<Datagram>,
}

impl UdpSocket {
    /// The next datagram; none when the node was closed.
    pub async fn recv(&mut self) -> Option<Datagram> {
        self.receiver.recv().await
    }

    /// Sends a datagram. `source` is one of the node's addresses and the port that the answer is expected on. As with any
    /// UDP socket, it may be lost.
    ///
    /// # Errors
    /// When the text is too long, the source is not the node's, or no peer has the destination's address.
    pub fn send(&self, source: SocketAddrV6, destination: SocketAddrV6, text: &[u8]) -> io::Result<()> {
        if text.len() > TEXT {
            let problem = format!("a datagram carries at most {TEXT} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let mut engine = self.shared.lock();
        if !engine.addresses.contains(source.ip()) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let peer = engine.peer_at(*destination.ip()).ok_or(io::ErrorKind::HostUnreachable)?;
        if let Some(bytes) = ip::udp(source, destination, text) {
            engine.send_bytes(peer, &bytes, Instant::now());
        }
        Ok(())
    }

    /// The socket's port; none for all other ports.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let mut engine = self.shared.lock();
        match self.port {
            Some(port) => drop(engine.udp.remove(&port)),
            None => engine.any_udp = None,
        }
    }
}
