//! The client's end of a connection to a relay.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::frame::{self, Frame, HEADER};
use super::handshake::{self, ClientInfo};
use crate::key::{NodePrivate, NodePublic};

/// Why there is no connection to a relay.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The byte stream failed.
    #[error("the connection to the relay failed")]
    Io(#[from] std::io::Error),
    /// The relay broke the protocol.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The relay did not prove its key.
    #[error(transparent)]
    Handshake(#[from] handshake::Error),
    /// Another frame than the handshake or the direction allows.
    #[error("the relay sent a frame that only a client sends, or sent it at the wrong time")]
    Unexpected,
    /// The relay closed the connection.
    #[error("the relay closed the connection")]
    Closed,
}

/// Makes the handshake over a byte stream whose HTTP is done. The relay's key; what follows in the stream is frames.
///
/// # Errors
/// [`Error`]. Time limits are the caller's.
pub async fn connect(
    io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    private: &NodePrivate,
) -> Result<NodePublic, Error> {
    let (kind, body) = read_frame::<Error>(io, handshake::LIMIT).await?.ok_or(Error::Closed)?;
    let Frame::ServerKey(server) = Frame::parse(kind, &body)? else { return Err(Error::Unexpected) };
    if server.is_zero() {
        return Err(handshake::Error::NoKey.into());
    }
    let info = ClientInfo { version: handshake::VERSION, can_ack_pings: true };
    let mut out = Vec::new();
    let sealed = handshake::seal(private, &server, &info);
    Frame::ClientInfo { key: private.public(), sealed: &sealed }.encode(&mut out);
    Frame::NotePreferred(true).encode(&mut out);
    io.write_all(&out).await?;
    io.flush().await?;
    let (kind, body) = read_frame::<Error>(io, handshake::LIMIT).await?.ok_or(Error::Closed)?;
    let Frame::ServerInfo(sealed) = Frame::parse(kind, &body)? else { return Err(Error::Unexpected) };
    handshake::open_server(private, &server, sealed)?;
    Ok(server)
}

/// Reads one frame and not a byte more; none at the end of the stream.
pub(super) async fn read_frame<E: From<std::io::Error> + From<frame::Error>>(
    io: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<(u8, Vec<u8>)>, E> {
    let mut head = [0; HEADER];
    let first = io.read(&mut head[..1]).await?;
    if first == 0 {
        return Ok(None);
    }
    io.read_exact(&mut head[1..]).await?;
    let [kind, length @ ..] = head;
    let length = u32::from_be_bytes(length) as usize;
    if length > limit {
        return Err(frame::Error::TooLong { kind, length, limit }.into());
    }
    // Grows as bytes arrive; nothing is allocated from the declared length alone.
    let mut body = Vec::new();
    io.take(length as u64).read_to_end(&mut body).await?;
    if body.len() < length {
        return Ok(None);
    }
    Ok(Some((kind, body)))
}
