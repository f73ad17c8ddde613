//! The byte-stream trait that every layer of this crate is written against.

use tokio::io::{AsyncRead, AsyncWrite};

/// An ordered, reliable stream of bytes in both directions: a socket, TLS, a WebSocket, a multiplexed stream, or memory.
///
/// Implemented for every type with these properties.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}

/// A byte stream of any kind.
pub type BoxedStream = Box<dyn ByteStream>;
