//! Transfers of files (wire-protocol 5.9): module archives that are too long for one message.

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use crate::messages::provisioner::file_upload::Type;
use crate::messages::provisioner::{ChunkPiece, DataUpload, DataUploadType, FileUpload};
use crate::transfer::Transfer;

/// Data bytes of every chunk but the last.
pub const CHUNK_SIZE: usize = 2 << 20;
/// Longest file in bytes.
pub const MAX_SIZE: usize = 100 << 20;

/// A file that arrived as announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub kind: DataUploadType,
    /// SHA-256 of the data; it has been checked.
    pub hash: [u8; 32],
    /// The content.
    pub data: Bytes,
}

/// Why messages are not a transfer of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The announced hash is not a SHA-256.
    #[error("the file's hash has {0} bytes instead of 32")]
    HashLength(usize),
    /// A size that no file has, or one above the limit.
    #[error("a file of {size} bytes is refused; the limit is {limit} bytes")]
    Size {
        /// Announced bytes.
        size: i64,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// The announced number of chunks does not fit the announced size.
    #[error("{chunks} chunks do not make a file of {size} bytes")]
    Chunks {
        /// Announced chunks.
        chunks: i32,
        /// Announced bytes.
        size: i64,
    },
    /// Two headers.
    #[error("the file is announced twice")]
    SecondHeader,
    /// A chunk without a header before it.
    #[error("a chunk of the file comes before its header")]
    NoHeader,
    /// A chunk of another file.
    #[error("a chunk belongs to another file")]
    OtherFile,
    /// A chunk out of order.
    #[error("chunk {found} of the file comes in place of chunk {expected}")]
    Index {
        /// The next index.
        expected: i32,
        /// The index of the chunk.
        found: i32,
    },
    /// More data than announced, or a chunk over [`CHUNK_SIZE`].
    #[error("the file has more data than was announced")]
    TooMuch,
    /// Less data than announced.
    #[error("the file has {found} bytes instead of {expected}")]
    TooLittle {
        /// Announced bytes.
        expected: usize,
        /// Received bytes.
        found: usize,
    },
    /// The content is not what was announced.
    #[error("the file's content does not have the announced hash")]
    Hash,
    /// The sender ended the transfer with an error.
    #[error("the sender could not provide the file: {0}")]
    Refused(String),
    /// A message without content.
    #[error("a message of the file transfer is empty")]
    Empty,
    /// The transfer ended early.
    #[error("the file transfer ended early")]
    Ended,
}

/// The announcement of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// What the file is for.
    pub kind: DataUploadType,
    /// SHA-256 of the content; not checked yet.
    pub hash: [u8; 32],
    /// Bytes of the content.
    pub size: usize,
    chunks: i32,
}

#[derive(Debug)]
pub struct FileTransfer {
    header: FileHeader,
    received_bytes: usize,
    received_chunks: i32,
    sum: Sha256,
}

impl Transfer for FileTransfer {
    type Message = FileUpload;
    type Header = FileHeader;
    type Error = Error;

    const ENDED: Error = Error::Ended;

    fn begin(message: FileUpload, limit: usize) -> Result<(Self, FileHeader), Error> {
        let header = match message.r#type {
            Some(Type::DataUpload(header)) => check_header(&header, limit)?,
            Some(Type::ChunkPiece(_)) => return Err(Error::NoHeader),
            Some(Type::Error(failed)) => return Err(Error::Refused(failed.error)),
            None => return Err(Error::Empty),
        };
        let transfer =
            Self { header: header.clone(), received_bytes: 0, received_chunks: 0, sum: Sha256::new() };
        Ok((transfer, header))
    }

    fn take(&mut self, message: FileUpload) -> Result<Bytes, Error> {
        let piece = match message.r#type {
            Some(Type::ChunkPiece(piece)) => piece,
            Some(Type::DataUpload(_)) => return Err(Error::SecondHeader),
            Some(Type::Error(failed)) => return Err(Error::Refused(failed.error)),
            None => return Err(Error::Empty),
        };
        if piece.full_data_hash != self.header.hash[..] {
            return Err(Error::OtherFile);
        }
        if piece.piece_index != self.received_chunks {
            return Err(Error::Index { expected: self.received_chunks, found: piece.piece_index });
        }
        if piece.data.len() > CHUNK_SIZE || self.received_bytes + piece.data.len() > self.header.size {
            return Err(Error::TooMuch);
        }
        self.sum.update(&piece.data);
        self.received_bytes += piece.data.len();
        self.received_chunks += 1;
        Ok(piece.data)
    }

    fn is_complete(&mut self) -> Result<bool, Error> {
        if self.received_chunks != self.header.chunks {
            return Ok(false);
        }
        if self.received_bytes != self.header.size {
            return Err(Error::TooLittle { expected: self.header.size, found: self.received_bytes });
        }
        if self.sum.finalize_reset()[..] != self.header.hash {
            return Err(Error::Hash);
        }
        Ok(true)
    }
}

fn check_header(header: &DataUpload, limit: usize) -> Result<FileHeader, Error> {
    let hash =
        <[u8; 32]>::try_from(&header.data_hash[..]).map_err(|_| Error::HashLength(header.data_hash.len()))?;
    let size = usize::try_from(header.file_size).ok().filter(|size| *size <= limit);
    let size = size.ok_or(Error::Size { size: header.file_size, limit })?;
    if usize::try_from(header.chunks) != Ok(size.div_ceil(CHUNK_SIZE)) {
        return Err(Error::Chunks { chunks: header.chunks, size: header.file_size });
    }
    Ok(FileHeader { kind: header.upload_type(), hash, size, chunks: header.chunks })
}

/// Assembles a file in memory. Nothing is allocated for a size that was only announced.
#[derive(Debug)]
pub struct Receiver {
    limit: usize,
    transfer: Option<FileTransfer>,
    data: BytesMut,
}

impl Receiver {
    /// A receiver of one file of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, transfer: None, data: BytesMut::new() }
    }

    /// Takes the next message; returns the file with its last chunk.
    ///
    /// # Errors
    /// [`Error`]; the transfer is over then.
    pub fn take(&mut self, message: FileUpload) -> Result<Option<File>, Error> {
        let transfer = match &mut self.transfer {
            Some(transfer) => {
                self.data.extend_from_slice(&transfer.take(message)?);
                transfer
            }
            None => self.transfer.insert(FileTransfer::begin(message, self.limit)?.0),
        };
        if !transfer.is_complete()? {
            return Ok(None);
        }
        let FileHeader { kind, hash, .. } = transfer.header;
        Ok(Some(File { kind, hash, data: std::mem::take(&mut self.data).freeze() }))
    }
}

/// SHA-256 of a file.
#[must_use]
pub fn hash(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// The first message of a transfer: size and hash of the file.
///
/// # Errors
/// [`Error::Size`] when it is longer than [`MAX_SIZE`].
pub fn header(kind: DataUploadType, size: usize, hash: [u8; 32]) -> Result<FileUpload, Error> {
    let too_long = || Error::Size { size: i64::try_from(size).unwrap_or(i64::MAX), limit: MAX_SIZE };
    if size > MAX_SIZE {
        return Err(too_long());
    }
    let header = DataUpload {
        upload_type: kind.into(),
        data_hash: hash.to_vec().into(),
        file_size: i64::try_from(size).map_err(|_| too_long())?,
        chunks: i32::try_from(size.div_ceil(CHUNK_SIZE)).map_err(|_| too_long())?,
    };
    Ok(FileUpload { r#type: Some(Type::DataUpload(header)) })
}

/// The messages that carry a file. The chunks share its memory.
///
/// # Errors
/// [`Error::Size`] when it is longer than [`MAX_SIZE`].
pub fn to_messages(kind: DataUploadType, data: Bytes) -> Result<impl Iterator<Item = FileUpload>, Error> {
    let sum = hash(&data);
    let (header, chunks) = (header(kind, data.len(), sum)?, data.len().div_ceil(CHUNK_SIZE));
    let hash = Bytes::copy_from_slice(&sum);
    let chunk_at = move |index: usize| {
        let start = index * CHUNK_SIZE;
        chunk(data.slice(start..data.len().min(start + CHUNK_SIZE)), &hash, index)
    };
    Ok(std::iter::once(header).chain((0..chunks).map(chunk_at)))
}

/// The message with the chunk of this index.
pub(crate) fn chunk(data: Bytes, hash: &Bytes, index: usize) -> FileUpload {
    let piece_index = i32::try_from(index).expect("the header has counted the chunks");
    let piece = ChunkPiece { data, full_data_hash: hash.clone(), piece_index };
    FileUpload { r#type: Some(Type::ChunkPiece(piece)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::provisioner::FailedFile;

    const KIND: DataUploadType = DataUploadType::UploadTypeModuleFiles;

    fn receive(messages: impl IntoIterator<Item = FileUpload>) -> Result<File, Error> {
        let mut receiver = Receiver::new(MAX_SIZE);
        for message in messages {
            if let Some(file) = receiver.take(message)? {
                return Ok(file);
            }
        }
        Err(Error::Ended)
    }

    fn messages(size: usize) -> Vec<FileUpload> {
        to_messages(KIND, vec![7; size].into()).unwrap().collect()
    }

    fn header(messages: &mut [FileUpload]) -> &mut DataUpload {
        match &mut messages[0].r#type {
            Some(Type::DataUpload(header)) => header,
            other => panic!("{other:?}"),
        }
    }

    fn piece(message: &mut FileUpload) -> &mut ChunkPiece {
        match &mut message.r#type {
            Some(Type::ChunkPiece(piece)) => piece,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_size_arrives() {
        for (size, count) in
            [(0, 1), (1, 2), (CHUNK_SIZE - 1, 2), (CHUNK_SIZE, 2), (CHUNK_SIZE + 1, 3), (6_292_480, 5)]
        {
            let messages = messages(size);
            assert_eq!(messages.len(), count, "{size}");
            let file = receive(messages).unwrap();
            assert_eq!((file.kind, file.data.len(), file.hash), (KIND, size, hash(&file.data)));
        }
    }

    #[test]
    fn impossible_headers_are_refused() {
        let check = |change: &dyn Fn(&mut DataUpload), error: Error| {
            let mut messages = messages(3);
            change(header(&mut messages));
            assert_eq!(receive(messages), Err(error));
        };
        check(&|header| header.data_hash.truncate(31), Error::HashLength(31));
        check(&|header| header.file_size = -1, Error::Size { size: -1, limit: MAX_SIZE });
        check(&|header| header.file_size = i64::MAX, Error::Size { size: i64::MAX, limit: MAX_SIZE });
        check(&|header| header.chunks = 2, Error::Chunks { chunks: 2, size: 3 });
        check(&|header| header.chunks = -1, Error::Chunks { chunks: -1, size: 3 });
        check(&|header| header.chunks = 0, Error::Chunks { chunks: 0, size: 3 });
        check(&|header| header.file_size = 2, Error::TooMuch);
        check(&|header| header.file_size = 4, Error::TooLittle { expected: 4, found: 3 });
    }

    #[test]
    fn wrong_chunks_are_refused() {
        let check = |change: &dyn Fn(&mut Vec<FileUpload>), error: Error| {
            let mut messages = messages(CHUNK_SIZE + 1);
            change(&mut messages);
            assert_eq!(receive(messages), Err(error));
        };
        check(&|list| list.swap(0, 1), Error::NoHeader);
        check(&|list| list[1] = list[0].clone(), Error::SecondHeader);
        check(&|list| list.swap(1, 2), Error::Index { expected: 0, found: 1 });
        check(&|list| piece(&mut list[1]).full_data_hash = vec![0; 32].into(), Error::OtherFile);
        let long = |list: &mut Vec<FileUpload>| {
            piece(&mut list[1]).data = vec![7; CHUNK_SIZE + 1].into();
            piece(&mut list[2]).data = Bytes::new();
        };
        check(&long, Error::TooMuch);
        check(&|list| piece(&mut list[2]).data = vec![8].into(), Error::Hash);
        check(&|list| list[1] = FileUpload { r#type: None }, Error::Empty);
        check(&|list| list.truncate(2), Error::Ended);
        let failed = Some(Type::Error(FailedFile { error: "gone".to_owned() }));
        check(&|list| list[0].r#type.clone_from(&failed), Error::Refused("gone".to_owned()));
    }

    #[test]
    fn longer_files_are_not_sent() {
        assert!(super::header(KIND, MAX_SIZE, [7; 32]).is_ok());
        assert!(super::header(KIND, MAX_SIZE + 1, [7; 32]).is_err());
        assert!(to_messages(KIND, vec![0; MAX_SIZE + 1].into()).is_err());
    }
}
