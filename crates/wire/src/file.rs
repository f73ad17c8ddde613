//! Whole files in pieces (wire-protocol 5.9): module archives that are too long for one message.

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use crate::drpc::Status;
use crate::messages::provisioner::file_upload::Type;
use crate::messages::provisioner::{ChunkPiece, DataUpload, DataUploadType, FileUpload};

/// Data bytes of every piece but the last.
pub const CHUNK: usize = 2 << 20;
/// Longest file in bytes.
pub const LIMIT: usize = 100 << 20;

/// A file that arrived as announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What it is.
    pub kind: DataUploadType,
    /// SHA-256 of the data; it has been checked.
    pub hash: [u8; 32],
    /// The content.
    pub data: Bytes,
}

/// A sequence of pieces that is no file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The announced hash is no SHA-256.
    #[error("the file's hash has {0} bytes instead of 32")]
    HashLength(usize),
    /// A size that no file has, or a longer file than is taken.
    #[error("a file of {size} bytes is not taken; the limit is {limit} bytes")]
    Size {
        /// Announced bytes.
        size: i64,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// The announced pieces do not add up to the announced size.
    #[error("{chunks} pieces cannot make a file of {size} bytes")]
    Chunks {
        /// Announced pieces.
        chunks: i32,
        /// Announced bytes.
        size: i64,
    },
    /// Two headers.
    #[error("the file is announced twice")]
    SecondHeader,
    /// A piece without a header before it.
    #[error("a piece of the file comes before its header")]
    NoHeader,
    /// A piece of another file.
    #[error("a piece belongs to another file")]
    OtherFile,
    /// A piece out of order.
    #[error("piece {found} of the file comes where piece {wanted} belongs")]
    Index {
        /// Index that was next.
        wanted: i32,
        /// Index that came.
        found: i32,
    },
    /// More data than announced, or a piece longer than a piece is.
    #[error("the file has more data than was announced")]
    TooMuch,
    /// Less data than announced.
    #[error("the file has {found} bytes instead of {wanted}")]
    TooLittle {
        /// Announced bytes.
        wanted: usize,
        /// Bytes that came.
        found: usize,
    },
    /// The content is not what was announced.
    #[error("the file's content does not have the announced hash")]
    Hash,
    /// The sender gave up.
    #[error("the sender could not provide the file: {0}")]
    Refused(String),
    /// A message without content.
    #[error("a message of the file transfer is empty")]
    Empty,
    /// The transfer ended early.
    #[error("the file transfer ended early")]
    Ended,
}

/// A file as it is announced, before any of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: DataUploadType,
    /// Its SHA-256; not checked yet.
    pub hash: [u8; 32],
    /// Its bytes; no more are taken.
    pub size: usize,
    chunks: i32,
}

/// What a message of a transfer brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The announcement, which comes first.
    Header(Header),
    /// The next bytes.
    Data(Bytes),
}

/// Checks the messages of a transfer one by one, and keeps none of the content.
#[derive(Debug)]
pub struct Pieces {
    limit: usize,
    header: Option<Header>,
    found: usize,
    received: i32,
    sum: Sha256,
}

impl Pieces {
    /// For one file of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, header: None, found: 0, received: 0, sum: Sha256::new() }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// [`Error`]; the transfer is over then.
    pub fn take(&mut self, message: FileUpload) -> Result<Step, Error> {
        match message.r#type {
            Some(Type::DataUpload(header)) => self.take_header(&header).map(Step::Header),
            Some(Type::ChunkPiece(piece)) => self.take_piece(piece).map(Step::Data),
            Some(Type::Error(failed)) => Err(Error::Refused(failed.error)),
            None => Err(Error::Empty),
        }
    }

    /// Whether the file has arrived; then its length and its hash have been checked.
    ///
    /// # Errors
    /// [`Error::TooLittle`] and [`Error::Hash`].
    pub fn is_complete(&mut self) -> Result<bool, Error> {
        let Some(header) = self.header.as_ref().filter(|header| header.chunks == self.received) else {
            return Ok(false);
        };
        if self.found != header.size {
            return Err(Error::TooLittle { wanted: header.size, found: self.found });
        }
        if self.sum.finalize_reset()[..] != header.hash {
            return Err(Error::Hash);
        }
        Ok(true)
    }

    fn take_header(&mut self, header: &DataUpload) -> Result<Header, Error> {
        if self.header.is_some() {
            return Err(Error::SecondHeader);
        }
        let hash = <[u8; 32]>::try_from(&header.data_hash[..])
            .map_err(|_| Error::HashLength(header.data_hash.len()))?;
        let size = usize::try_from(header.file_size).ok().filter(|size| *size <= self.limit);
        let size = size.ok_or(Error::Size { size: header.file_size, limit: self.limit })?;
        if usize::try_from(header.chunks) != Ok(size.div_ceil(CHUNK)) {
            return Err(Error::Chunks { chunks: header.chunks, size: header.file_size });
        }
        let header = Header { kind: header.upload_type(), hash, size, chunks: header.chunks };
        self.header = Some(header.clone());
        Ok(header)
    }

    fn take_piece(&mut self, piece: ChunkPiece) -> Result<Bytes, Error> {
        let header = self.header.as_ref().ok_or(Error::NoHeader)?;
        if piece.full_data_hash != header.hash[..] {
            return Err(Error::OtherFile);
        }
        if piece.piece_index != self.received {
            return Err(Error::Index { wanted: self.received, found: piece.piece_index });
        }
        if piece.data.len() > CHUNK || self.found + piece.data.len() > header.size {
            return Err(Error::TooMuch);
        }
        self.sum.update(&piece.data);
        self.found += piece.data.len();
        self.received += 1;
        Ok(piece.data)
    }
}

/// Puts a file together in memory, or finds out why it is none. Nothing is allocated for what was only announced.
#[derive(Debug)]
pub struct Receiver {
    pieces: Pieces,
    data: BytesMut,
}

impl Receiver {
    /// A receiver of one file of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { pieces: Pieces::new(limit), data: BytesMut::new() }
    }

    /// Takes the next message; returns the file with its last piece.
    ///
    /// # Errors
    /// [`Error`]; the transfer is over then.
    pub fn take(&mut self, message: FileUpload) -> Result<Option<File>, Error> {
        if let Step::Data(data) = self.pieces.take(message)? {
            self.data.extend_from_slice(&data);
        }
        if !self.pieces.is_complete()? {
            return Ok(None);
        }
        let Header { kind, hash, .. } = self.pieces.header.take().ok_or(Error::NoHeader)?;
        Ok(Some(File { kind, hash, data: std::mem::take(&mut self.data).freeze() }))
    }
}

/// SHA-256 of a file.
#[must_use]
pub fn hash(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// Where the content of a file goes while it arrives.
pub trait Sink: Send + 'static {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// What the sender is told; the transfer is over then.
    fn write(&mut self, data: Bytes) -> impl Future<Output = Result<(), Status>> + Send;
}

impl Sink for BytesMut {
    async fn write(&mut self, data: Bytes) -> Result<(), Status> {
        self.extend_from_slice(&data);
        Ok(())
    }
}

/// Where the content of a file comes from while it is sent.
pub trait Source: Send + 'static {
    /// The next bytes, of any length; none at the end.
    ///
    /// # Errors
    /// Why there are none; the transfer is over then.
    fn read(&mut self) -> impl Future<Output = Result<Option<Bytes>, Status>> + Send;
}

impl Source for Option<Bytes> {
    async fn read(&mut self) -> Result<Option<Bytes>, Status> {
        Ok(self.take())
    }
}

/// The announcement of a file of known length and hash.
///
/// # Errors
/// [`Error::Size`] when it is longer than [`LIMIT`].
pub fn announce(kind: DataUploadType, size: usize, hash: [u8; 32]) -> Result<FileUpload, Error> {
    let too_long = || Error::Size { size: i64::try_from(size).unwrap_or(i64::MAX), limit: LIMIT };
    if size > LIMIT {
        return Err(too_long());
    }
    let header = DataUpload {
        upload_type: kind.into(),
        data_hash: hash.to_vec().into(),
        file_size: i64::try_from(size).map_err(|_| too_long())?,
        chunks: i32::try_from(size.div_ceil(CHUNK)).map_err(|_| too_long())?,
    };
    Ok(FileUpload { r#type: Some(Type::DataUpload(header)) })
}

/// The messages that carry a file. The pieces share its memory.
///
/// # Errors
/// [`Error::Size`] when it is longer than [`LIMIT`].
pub fn pieces(kind: DataUploadType, data: Bytes) -> Result<impl Iterator<Item = FileUpload>, Error> {
    let sum = hash(&data);
    let (header, chunks) = (announce(kind, data.len(), sum)?, data.len().div_ceil(CHUNK));
    let hash = Bytes::copy_from_slice(&sum);
    let piece_at = move |index: usize| {
        let start = index * CHUNK;
        piece(data.slice(start..data.len().min(start + CHUNK)), &hash, index)
    };
    Ok(std::iter::once(header).chain((0..chunks).map(piece_at)))
}

/// The message with the piece of this index.
pub(crate) fn piece(data: Bytes, hash: &Bytes, index: usize) -> FileUpload {
    let piece_index = i32::try_from(index).expect("the announcement has counted the pieces");
    let piece = ChunkPiece { data, full_data_hash: hash.clone(), piece_index };
    FileUpload { r#type: Some(Type::ChunkPiece(piece)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::provisioner::FailedFile;

    const KIND: DataUploadType = DataUploadType::UploadTypeModuleFiles;

    fn receive(messages: impl IntoIterator<Item = FileUpload>) -> Result<File, Error> {
        let mut receiver = Receiver::new(LIMIT);
        for message in messages {
            if let Some(file) = receiver.take(message)? {
                return Ok(file);
            }
        }
        Err(Error::Ended)
    }

    fn messages(size: usize) -> Vec<FileUpload> {
        pieces(KIND, vec![7; size].into()).unwrap().collect()
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
        for (size, count) in [(0, 1), (1, 2), (CHUNK - 1, 2), (CHUNK, 2), (CHUNK + 1, 3), (6_292_480, 5)] {
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
        check(&|header| header.file_size = -1, Error::Size { size: -1, limit: LIMIT });
        check(&|header| header.file_size = i64::MAX, Error::Size { size: i64::MAX, limit: LIMIT });
        check(&|header| header.chunks = 2, Error::Chunks { chunks: 2, size: 3 });
        check(&|header| header.chunks = -1, Error::Chunks { chunks: -1, size: 3 });
        check(&|header| header.chunks = 0, Error::Chunks { chunks: 0, size: 3 });
        check(&|header| header.file_size = 2, Error::TooMuch);
        check(&|header| header.file_size = 4, Error::TooLittle { wanted: 4, found: 3 });
    }

    #[test]
    fn wrong_pieces_are_refused() {
        let check = |change: &dyn Fn(&mut Vec<FileUpload>), error: Error| {
            let mut messages = messages(CHUNK + 1);
            change(&mut messages);
            assert_eq!(receive(messages), Err(error));
        };
        check(&|list| list.swap(0, 1), Error::NoHeader);
        check(&|list| list[1] = list[0].clone(), Error::SecondHeader);
        check(&|list| list.swap(1, 2), Error::Index { wanted: 0, found: 1 });
        check(&|list| piece(&mut list[1]).full_data_hash = vec![0; 32].into(), Error::OtherFile);
        check(&|list| piece(&mut list[1]).data = vec![7; CHUNK + 1].into(), Error::TooMuch);
        check(&|list| piece(&mut list[2]).data = vec![8].into(), Error::Hash);
        check(&|list| list[1] = FileUpload { r#type: None }, Error::Empty);
        check(&|list| list.truncate(2), Error::Ended);
        let failed = Some(Type::Error(FailedFile { error: "gone".to_owned() }));
        check(&|list| list[0].r#type.clone_from(&failed), Error::Refused("gone".to_owned()));
    }

    #[test]
    fn longer_files_are_not_sent() {
        assert!(pieces(KIND, vec![0; LIMIT + 1].into()).is_err());
    }
}
