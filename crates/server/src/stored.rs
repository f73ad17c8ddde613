//! Stored files, read part by part: for responses, for daemons, and for what reads archives in another thread.

use std::io::{self, Read};

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use coder_store::{Store, Tx, files};
use coder_wire::drpc::Status;
use coder_wire::transfer::ChunkReader;
use tokio::sync::mpsc;

/// Where parts come from.
pub enum From<'a> {
    /// Each from a connection of its own, so that a slow reader holds none.
    Store(&'a Store),
    /// A connection that is in use anyway.
    Tx(&'a mut Tx),
}

/// A file that is read from its beginning.
pub struct Stored {
    store: Store,
    file: files::FileInfo,
    position: i64,
    left: i64,
}

impl Stored {
    /// A file that is there.
    #[must_use]
    pub fn new(store: Store, file: files::FileInfo) -> Self {
        let left = file.size_bytes;
        Self { store, file, position: 0, left }
    }

    /// The next part; none at the end.
    ///
    /// # Errors
    /// Only when the database fails, or the file is gone.
    pub async fn next(&mut self) -> Result<Option<Bytes>, coder_store::Error> {
        if self.left <= 0 {
            return Ok(None);
        }
        let part = files::get_part(&mut self.store.reader().await?, &self.file, self.position).await?;
        self.position += 1;
        self.left -= i64::try_from(part.len()).unwrap_or(i64::MAX);
        Ok(Some(part.into()))
    }

    /// As the body of a response, read as the peer reads.
    pub fn into_body(self) -> Body {
        Body::from_stream(futures_util::stream::unfold(self, |mut stored| async move {
            let part = stored.next().await.transpose()?;
            Some((part, stored))
        }))
    }
}

impl ChunkReader for Stored {
    async fn read(&mut self) -> Result<Option<Bytes>, Status> {
        self.next().await.map_err(|error| {
            tracing::error!(%error, "a file cannot be read");
            Status::new("the server could not read the file, see its log")
        })
    }
}

/// Why work on a stored file has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error(transparent)]
    Store(#[from] coder_store::Error),
    /// The work panicked.
    #[error("work on a file failed")]
    Work(#[from] tokio::task::JoinError),
}

/// Runs work that reads a file in a thread where it holds up nobody, and hands it the parts as it asks for them.
///
/// # Errors
/// [`Error`]; the work sees a file that ends early then.
pub async fn read<T: Send + 'static>(
    mut from: From<'_>,
    file: &files::FileInfo,
    work: impl FnOnce(Parts) -> T + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = mpsc::channel(1);
    let working = tokio::task::spawn_blocking(move || work(Parts { receiver, current: Bytes::new() }));
    let (mut position, mut left) = (0, file.size_bytes);
    while left > 0 {
        let part = match &mut from {
            From::Tx(tx) => files::get_part(tx, file, position).await,
            From::Store(store) => match store.reader().await {
                Ok(mut tx) => files::get_part(&mut tx, file, position).await,
                Err(error) => Err(error),
            },
        };
        let part = match part {
            Ok(part) => part,
            Err(error) => {
                // Work that has ended already needs to hear nothing.
                let _ = sender.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
                drop(sender);
                working.await?;
                return Err(error.into());
            }
        };
        position += 1;
        left -= i64::try_from(part.len()).unwrap_or(i64::MAX);
        // Work that has seen enough ends early.
        if sender.send(Ok(part.into())).await.is_err() {
            break;
        }
    }
    drop(sender);
    Ok(working.await?)
}

/// The content of a file, for a thread that may wait.
pub struct Parts {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for Parts {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(part) => self.current = part?,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(into.len());
        self.current.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}
