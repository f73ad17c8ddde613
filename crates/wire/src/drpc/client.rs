//! The caller's end of a call (wire-protocol 3.5). Each call has a byte stream of its own.

use prost::Message;

use super::error::{Error, Status};
use super::frame::Kind;
use super::packets::PacketStream;
use crate::bytes::ByteStream;

/// A call in progress. Dropping it ends its byte stream, which is how the official daemon cancels a call.
#[derive(Debug)]
pub struct Call<T> {
    packets: PacketStream<T>,
    over: bool,
}

impl<T: ByteStream> Call<T> {
    /// Begins a call of `rpc`, for example `/provisionerd.ProvisionerDaemon/UpdateJob`. Nothing is written before the
    /// first [`flush`](Self::flush) or receive, so that a short request is one write.
    pub fn new(io: T, rpc: &str) -> Self {
        let mut packets = PacketStream::new(io, 1);
        packets.queue(Kind::INVOKE, rpc.as_bytes());
        Self { packets, over: false }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::TooLarge`] before anything is written; else how the call ended, with the peer's own error when there is one.
    pub async fn send(&mut self, message: &impl Message) -> Result<(), Error> {
        let result = self.packets.send(message).await;
        self.prefer_peer_error(result).await
    }

    /// Writes what has been sent to the byte stream.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn flush(&mut self) -> Result<(), Error> {
        let result = self.packets.flush().await;
        self.prefer_peer_error(result).await
    }

    /// Ends the messages of the request.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn close_send(&mut self) -> Result<(), Error> {
        self.packets.queue(Kind::CLOSE_SEND, b"");
        self.flush().await
    }

    /// The next message; none after the last. Cancel safe.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn recv<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        if self.over {
            return Ok(None);
        }
        self.packets.flush().await?;
        loop {
            let Some(packet) = self.packets.recv().await? else {
                self.over = true;
                return Err(Error::ended());
            };
            if packet.stream != self.packets.id {
                return Err(Error::Protocol("an answer belongs to a call that was not made"));
            }
            match packet.kind {
                Kind::MESSAGE => return Ok(Some(M::decode(packet.data)?)),
                Kind::CLOSE | Kind::CLOSE_SEND => {
                    self.over = true;
                    return Ok(None);
                }
                Kind::ERROR => {
                    self.over = true;
                    return Err(Error::Refused(Status::decode(&packet.data)));
                }
                Kind::CANCEL => {
                    self.over = true;
                    return Err(Error::Canceled);
                }
                _ if packet.control => {}
                _ => return Err(Error::Protocol("an answer has an unexpected kind")),
            }
        }
    }

    /// Ends a call whose answer is complete. Errors are ignored: they change nothing any more.
    pub async fn close(mut self) {
        self.packets.queue(Kind::CLOSE, b"");
        let _ = self.packets.shutdown().await;
    }

    /// When the byte stream ended while we were sending, the peer may have sent its error before.
    async fn prefer_peer_error(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        if let Err(Error::Lost(_)) = &result {
            while let Ok(Some(packet)) = self.packets.recv().await {
                if packet.kind == Kind::ERROR {
                    return Err(Error::Refused(Status::decode(&packet.data)));
                }
            }
        }
        result
    }
}

/// Makes a unary call.
///
/// # Errors
/// How the call ended; [`Error::NoAnswer`] when the peer ended it without a message.
pub async fn unary<M: Message + Default>(
    io: impl ByteStream,
    rpc: &str,
    request: &impl Message,
) -> Result<M, Error> {
    let mut call = Call::new(io, rpc);
    call.send(request).await?;
    call.close_send().await?;
    let answer = call.recv().await?.ok_or(Error::NoAnswer)?;
    call.close().await;
    Ok(answer)
}
