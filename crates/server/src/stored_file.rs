//! Stored files, read part by part: for responses, for daemons, and for blocking work on archives.

use std::io::{self, Read};

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use coder_store::{Store, files};
use coder_wire::drpc::Status;
use coder_wire::transfer::ChunkReader;
use tokio::sync::mpsc;

/// A file that is read from its beginning.
pub struct StoredFile {
    store: Store,
    file: files::FileInfo,
    position: i64,
    left: i64,
}

impl StoredFile {
    /// Starts at the beginning of a stored file.
    #[must_use]
    pub fn new(store: Store, file: files::FileInfo) -> Self {
        let left = file.size_bytes;
        Self { store, file, position: 0, left }
    }

    /// The next part; none at the end.
    ///
    /// # Errors
    /// When the database fails, or the file does not exist any more.
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

impl ChunkReader for StoredFile {
    async fn read(&mut self) -> Result<Option<Bytes>, Status> {
        self.next().await.map_err(|error| {
            tracing::error!(%error, "cannot read a stored file");
            Status::new("the server could not read the file, see its log")
        })
    }
}

/// Why work on a stored file failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error(transparent)]
    Store(#[from] coder_store::Error),
    /// The work panicked.
    #[error("work on a stored file panicked")]
    Work(#[from] tokio::task::JoinError),
}

/// Runs work that reads a file on a blocking thread, and passes it the parts as it reads. Each part takes a database connection for
/// itself, so that slow work holds none.
///
/// # Errors
/// [`Error`]. The work then sees a truncated file.
pub async fn read<T: Send + 'static>(
    store: &Store,
    file: &files::FileInfo,
    work: impl FnOnce(PartsReader) -> T + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = mpsc::channel(1);
    let working = tokio::task::spawn_blocking(move || work(PartsReader { receiver, current: Bytes::new() }));
    let (mut position, mut left) = (0, file.size_bytes);
    while left > 0 {
        let part = match store.reader().await {
            Ok(mut tx) => files::get_part(&mut tx, file, position).await,
            Err(error) => Err(error),
        };
        let part = match part {
            Ok(part) => part,
            Err(error) => {
                // The work may have ended already.
                let _ = sender.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
                drop(sender);
                working.await?;
                return Err(error.into());
            }
        };
        position += 1;
        left -= i64::try_from(part.len()).unwrap_or(i64::MAX);
        // Work that has read enough ends early.
        if sender.send(Ok(part.into())).await.is_err() {
            break;
        }
    }
    drop(sender);
    Ok(working.await?)
}

/// The content of a file, for a thread that may block.
pub struct PartsReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for PartsReader {
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
