//! Whole files in pieces (wire-protocol 5.9): module archives that are too long for one message.

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

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

#[derive(Debug)]
struct Header {
    kind: DataUploadType,
    hash: [u8; 32],
    size: usize,
    chunks: i32,
}

/// Puts a file together, or finds out why it is none. Nothing is allocated for what was only announced.
#[derive(Debug)]
pub struct Receiver {
    limit: usize,
    header: Option<Header>,
    data: BytesMut,
    received: i32,
    sum: Sha256,
}

impl Receiver {
    /// A receiver of one file of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, header: None, data: BytesMut::new(), received: 0, sum: Sha256::new() }
    }

    /// Takes the next message; returns the file with its last piece.
    ///
    /// # Errors
    /// [`Error`]; the transfer is over then.
    pub fn take(&mut self, message: FileUpload) -> Result<Option<File>, Error> {
        match message.r#type {
            Some(Type::DataUpload(header)) => self.take_header(&header)?,
            Some(Type::ChunkPiece(piece)) => self.take_piece(&piece)?,
            Some(Type::Error(failed)) => return Err(Error::Refused(failed.error)),
            None => return Err(Error::Empty),
        }
        match &self.header {
            Some(header) if header.chunks == self.received => self.finish().map(Some),
            _ => Ok(None),
        }
    }

    fn take_header(&mut self, header: &DataUpload) -> Result<(), Error> {
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
        self.header = Some(Header { kind: header.upload_type(), hash, size, chunks: header.chunks });
        Ok(())
    }

    fn take_piece(&mut self, piece: &ChunkPiece) -> Result<(), Error> {
        let header = self.header.as_ref().ok_or(Error::NoHeader)?;
        if piece.full_data_hash != header.hash[..] {
            return Err(Error::OtherFile);
        }
        if piece.piece_index != self.received {
            return Err(Error::Index { wanted: self.received, found: piece.piece_index });
        }
        if piece.data.len() > CHUNK || self.data.len() + piece.data.len() > header.size {
            return Err(Error::TooMuch);
        }
        self.sum.update(&piece.data);
        self.data.extend_from_slice(&piece.data);
        self.received += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<File, Error> {
        let header = self.header.take().ok_or(Error::NoHeader)?;
        if self.data.len() != header.size {
            return Err(Error::TooLittle { wanted: header.size, found: self.data.len() });
        }
        if self.sum.finalize_reset()[..] != header.hash {
            return Err(Error::Hash);
        }
        Ok(File { kind: header.kind, hash: header.hash, data: std::mem::take(&mut self.data).freeze() })
    }
}

/// SHA-256 of a file.
#[must_use]
pub fn hash(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// The messages that carry a file. The pieces share its memory.
///
/// # Errors
/// [`Error::Size`] when it is longer than [`LIMIT`].
pub fn pieces(kind: DataUploadType, data: Bytes) -> Result<impl Iterator<Item = FileUpload>, Error> {
    let too_long = || Error::Size { size: i64::try_from(data.len()).unwrap_or(i64::MAX), limit: LIMIT };
    if data.len() > LIMIT {
        return Err(too_long());
    }
    let hash = Bytes::copy_from_slice(&hash(&data));
    let header = DataUpload {
        upload_type: kind.into(),
        data_hash: hash.clone(),
        file_size: i64::try_from(data.len()).map_err(|_| too_long())?,
        chunks: i32::try_from(data.len().div_ceil(CHUNK)).map_err(|_| too_long())?,
    };
    let piece = move |index: i32| {
        let start = usize::try_from(index).expect("not negative") * CHUNK;
        let data = data.slice(start..data.len().min(start + CHUNK));
        Type::ChunkPiece(ChunkPiece { data, full_data_hash: hash.clone(), piece_index: index })
    };
    let chunks = header.chunks;
    let messages = std::iter::once(Type::DataUpload(header)).chain((0..chunks).map(piece));
    Ok(messages.map(|message| FileUpload { r#type: Some(message) }))
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
