//! Transfers of content that is too long for one message: a header announces size and hash, then the content follows in
//! chunks. [`file`](crate::file) and [`extension::StateTransfer`](crate::extension::StateTransfer) are the two kinds.

use bytes::{Bytes, BytesMut};

use crate::drpc::Status;
use crate::elements::Request;

/// Checks the messages of one transfer, one after the other, and keeps none of the content.
pub trait Transfer: Sized {
    /// The message that carries the header and the chunks.
    type Message: Request;
    /// What the first message announces.
    type Header;
    /// Why the messages are not such a transfer.
    type Error: std::error::Error + 'static;

    /// The error of a transfer whose messages end before the content is complete.
    const ENDED: Self::Error;

    /// Starts the transfer with its first message. The content may have at most `limit` bytes.
    ///
    /// # Errors
    /// The message is not an acceptable header.
    fn begin(message: Self::Message, limit: usize) -> Result<(Self, Self::Header), Self::Error>;

    /// Returns the content of the next message.
    ///
    /// # Errors
    /// The message does not continue the transfer, which is over then.
    fn take(&mut self, message: Self::Message) -> Result<Bytes, Self::Error>;

    /// Whether all content has arrived; its size and its hash have been checked then.
    ///
    /// # Errors
    /// The content is not what the header announced.
    fn is_complete(&mut self) -> Result<bool, Self::Error>;
}

/// Receives the content of a transfer.
pub trait ChunkWriter: Send + 'static {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// The status for the sender; the transfer is over then.
    fn write(&mut self, data: Bytes) -> impl Future<Output = Result<(), Status>> + Send;
}

impl ChunkWriter for BytesMut {
    async fn write(&mut self, data: Bytes) -> Result<(), Status> {
        self.extend_from_slice(&data);
        Ok(())
    }
}

/// Provides the content of a transfer.
pub trait ChunkReader: Send + 'static {
    /// The next bytes, of any length; none at the end.
    ///
    /// # Errors
    /// The status for the receiver; the transfer is over then.
    fn read(&mut self) -> impl Future<Output = Result<Option<Bytes>, Status>> + Send;
}

impl ChunkReader for Option<Bytes> {
    async fn read(&mut self) -> Result<Option<Bytes>, Status> {
        Ok(self.take())
    }
}
