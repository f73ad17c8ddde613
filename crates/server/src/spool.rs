//! Uploads and downloads in progress. They are written to the disk as they arrive, so that no file is held in memory. A
//! spool file has no name: it is removed with its handle, however the process ends.

use std::io::{self, Read, Seek as _, SeekFrom, Write};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use coder_wire::budget::Reservation;
use coder_wire::drpc::Status;
use coder_wire::transfer::ChunkWriter;
use sha2::{Digest as _, Sha256};
use tempfile::SpooledTempFile;

use crate::memory::{Holder, Memory, SMALL_BODY_BYTES};

/// The least that a spool on the disk reserves, and the step by which it grows. It bounds the number of spools.
const DISK_STEP: usize = 4 << 20;
/// Bytes that are read at once when a spool is sent.
const READ_BYTES: usize = 64 << 10;

/// A temporary file with its hash and its reservations.
pub struct Spool {
    file: SpooledTempFile,
    size: usize,
    sum: Sha256,
    memory: Reservation,
    disk: Reservation,
}

impl Spool {
    /// An empty file.
    #[must_use]
    pub fn new(holder: &Holder, memory: &Memory) -> Self {
        Self {
            file: tempfile::spooled_tempfile_in(SMALL_BODY_BYTES, &memory.directory),
            size: 0,
            sum: Sha256::new(),
            memory: holder.memory().reserve(),
            disk: holder.disk().reserve(),
        }
    }

    /// Waits until there is room for a file of `size` bytes in all.
    pub async fn reserve(&mut self, size: usize) {
        if size > SMALL_BODY_BYTES {
            self.disk.grow(size.next_multiple_of(DISK_STEP)).await;
            self.memory.shrink(0);
        } else if self.size > 0 || size > 0 {
            self.memory.grow(SMALL_BODY_BYTES).await;
        }
    }

    /// Writes at the end.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.reserve(self.size + data.len()).await;
        self.write_all(data)
    }

    /// Bytes written.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The identity of the content, as files are keyed by it.
    #[must_use]
    pub fn hash(&self) -> String {
        self.sum.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The content from its beginning.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read(&mut self) -> io::Result<&mut SpooledTempFile> {
        self.file.seek(SeekFrom::Start(0))?;
        Ok(&mut self.file)
    }

    /// The file itself, to be written in any order. [`Self::hash`] does not cover such writes.
    pub const fn file(&mut self) -> &mut SpooledTempFile {
        &mut self.file
    }

    /// The whole content in memory.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn content(&mut self) -> io::Result<Vec<u8>> {
        let mut content = Vec::with_capacity(self.size);
        self.read()?.read_to_end(&mut content)?;
        Ok(content)
    }

    /// The content as the body of a response, read as the peer reads.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn into_body(mut self) -> io::Result<Body> {
        self.read()?;
        let blocks = futures_util::stream::unfold(self, |mut spool| async move {
            let mut block = BytesMut::zeroed(READ_BYTES);
            match spool.file.read(&mut block) {
                Ok(0) => None,
                Ok(count) => {
                    block.truncate(count);
                    Some((Ok::<Bytes, io::Error>(block.freeze()), spool))
                }
                Err(error) => Some((Err(error), spool)),
            }
        });
        Ok(Body::from_stream(blocks))
    }
}

impl Write for Spool {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.file.write(data)?;
        self.sum.update(&data[..count]);
        self.size += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ChunkWriter for Spool {
    async fn write(&mut self, data: Bytes) -> Result<(), Status> {
        self.append(&data).await.map_err(|error| {
            tracing::error!(%error, "cannot write an uploaded file to the disk");
            Status::new("the server could not write the file to its disk, see its log")
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::config::Limits;

    #[tokio::test]
    async fn a_file_takes_memory_while_it_is_small_and_disk_from_then_on() {
        let memory = Memory::new(&Limits::default());
        let mut spool = Spool::new(&memory.holder(1), &memory);
        spool.append(b"").await.unwrap();
        assert_eq!((spool.size(), memory.used()), (0, 0));
        spool.append(b"abc").await.unwrap();
        assert_eq!((spool.size(), memory.used()), (3, SMALL_BODY_BYTES));
        assert_eq!(spool.hash(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        spool.append(&[b'd'; SMALL_BODY_BYTES - 3]).await.unwrap();
        assert_eq!((spool.size(), memory.used()), (SMALL_BODY_BYTES, SMALL_BODY_BYTES));
        spool.append(b"e").await.unwrap();
        assert_eq!((spool.size(), memory.used()), (SMALL_BODY_BYTES + 1, DISK_STEP));
        let content = [b"abc".as_slice(), &[b'd'; SMALL_BODY_BYTES - 3], b"e"].concat();
        assert!(spool.content().unwrap() == content);
        assert!(spool.content().unwrap() == content, "from the beginning each time");
        spool.reserve(DISK_STEP + 1).await;
        assert_eq!(memory.used(), 2 * DISK_STEP);
        assert!(spool.into_body().unwrap().collect().await.unwrap().to_bytes() == content);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn announced_sizes_are_reserved_before_anything_arrives() {
        let memory = Memory::new(&Limits::default());
        let mut spool = Spool::new(&memory.holder(1), &memory);
        spool.reserve(1).await;
        assert_eq!(memory.used(), SMALL_BODY_BYTES);
        spool.reserve(SMALL_BODY_BYTES + 1).await;
        assert_eq!(memory.used(), DISK_STEP);
    }

    #[tokio::test]
    async fn what_is_written_in_place_is_sent() {
        let memory = Memory::new(&Limits::default());
        let mut spool = Spool::new(&memory.holder(1), &memory);
        spool.file().write_all(b"xyz").unwrap();
        spool.file().seek(SeekFrom::Start(1)).unwrap();
        spool.file().write_all(b"Y").unwrap();
        assert_eq!(spool.content().unwrap(), b"xYz");
        ChunkWriter::write(&mut spool, Bytes::from_static(b"!")).await.unwrap();
        assert_eq!((spool.content().unwrap(), spool.size()), (b"xYz!".to_vec(), 1));
    }
}
