//! The transfer of a Terraform state: a header, then its bytes in chunks.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::MAX_TOKEN_SIZE;
use super::messages::journal_piece::Piece;
use super::messages::{JournalHeader, JournalPiece};
use crate::transfer::Transfer;

/// Most bytes of a chunk.
pub const CHUNK_SIZE: usize = 1 << 20;

/// Longest lineage, in bytes; Terraform's are UUIDs.
const MAX_LINEAGE_SIZE: usize = 128;

/// A state and what the server has to know about it.
#[derive(Clone, PartialEq, Eq)]
pub struct Journal {
    /// The job that wrote it.
    pub job_id: String,
    /// The newest token of the job.
    pub token: Bytes,
    /// Terraform's serial number of the state.
    pub serial: u64,
    /// Terraform's id of the sequence of states that it belongs to.
    pub lineage: String,
    pub state: Bytes,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("job_id", &self.job_id)
            .field("serial", &self.serial)
            .field("lineage", &self.lineage)
            .field("bytes", &self.state.len())
            .finish_non_exhaustive()
    }
}

/// Why messages are not a transfer of a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A hash, token or lineage of a length that it cannot have.
    #[error("the journal's {0} has an impossible length")]
    Length(&'static str),
    /// A size above the limit.
    #[error("a state of {size} bytes is refused; the limit is {limit} bytes")]
    Size {
        /// Announced bytes.
        size: u64,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// Messages in another order than a header and then data.
    #[error("a journal is a header and then data")]
    Order,
    /// More data than announced, or a chunk that is empty or over [`CHUNK_SIZE`].
    #[error("the journal has more data than was announced")]
    TooMuch,
    /// The content is not what was announced.
    #[error("the journal's content does not have the announced hash")]
    Hash,
    /// The transfer ended early.
    #[error("the journal ended early")]
    Ended,
}

#[derive(Debug)]
pub struct StateTransfer {
    size: usize,
    hash: Bytes,
    received: usize,
    sum: Sha256,
}

impl Transfer for StateTransfer {
    type Message = JournalPiece;
    type Header = JournalHeader;
    type Error = Error;

    const ENDED: Error = Error::Ended;

    fn begin(message: JournalPiece, limit: usize) -> Result<(Self, JournalHeader), Error> {
        let Some(Piece::Header(header)) = message.piece else { return Err(Error::Order) };
        if header.sha256.len() != 32 {
            return Err(Error::Length("hash"));
        }
        if header.token.len() > MAX_TOKEN_SIZE {
            return Err(Error::Length("token"));
        }
        if header.lineage.len() > MAX_LINEAGE_SIZE {
            return Err(Error::Length("lineage"));
        }
        let size = usize::try_from(header.size_bytes).ok().filter(|size| *size <= limit);
        let size = size.ok_or(Error::Size { size: header.size_bytes, limit })?;
        Ok((Self { size, hash: header.sha256.clone(), received: 0, sum: Sha256::new() }, header))
    }

    fn take(&mut self, message: JournalPiece) -> Result<Bytes, Error> {
        let Some(Piece::Data(data)) = message.piece else { return Err(Error::Order) };
        if data.len() > CHUNK_SIZE || data.is_empty() || data.len() > self.size - self.received {
            return Err(Error::TooMuch);
        }
        self.sum.update(&data);
        self.received += data.len();
        Ok(data)
    }

    fn is_complete(&mut self) -> Result<bool, Error> {
        if self.received < self.size {
            return Ok(false);
        }
        if self.sum.finalize_reset()[..] != self.hash[..] {
            return Err(Error::Hash);
        }
        Ok(true)
    }
}

impl Journal {
    /// The messages that carry the state.
    pub fn to_messages(&self) -> impl Iterator<Item = JournalPiece> + Send + use<> {
        let header = JournalHeader {
            job_id: self.job_id.clone(),
            token: self.token.clone(),
            serial: self.serial,
            lineage: self.lineage.clone(),
            size_bytes: self.state.len() as u64,
            sha256: Bytes::copy_from_slice(&Sha256::digest(&self.state)),
        };
        let state = self.state.clone();
        let data = (0..state.len())
            .step_by(CHUNK_SIZE)
            .map(move |start| Piece::Data(state.slice(start..state.len().min(start + CHUNK_SIZE))));
        std::iter::once(Piece::Header(header)).chain(data).map(|piece| JournalPiece { piece: Some(piece) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(size: usize) -> Journal {
        let state = (0..size).map(|byte| (byte % 251) as u8).collect();
        Journal { job_id: "j".to_owned(), token: "t".into(), serial: 7, lineage: "l".to_owned(), state }
    }

    fn send(
        messages: impl IntoIterator<Item = JournalPiece>,
        limit: usize,
    ) -> Result<Option<Journal>, Error> {
        let mut messages = messages.into_iter();
        let first = messages.next().unwrap();
        let (mut transfer, JournalHeader { job_id, token, serial, lineage, .. }) =
            StateTransfer::begin(first, limit)?;
        let mut state = Vec::new();
        while !transfer.is_complete()? {
            let Some(message) = messages.next() else { return Ok(None) };
            state.extend_from_slice(&transfer.take(message)?);
        }
        Ok(Some(Journal { job_id, token, serial, lineage, state: state.into() }))
    }

    #[test]
    fn every_size_arrives() {
        for size in [0, 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE] {
            let sent = journal(size);
            assert_eq!(send(sent.to_messages(), size), Ok(Some(sent)), "{size}");
        }
    }

    #[test]
    fn impossible_headers_and_wrong_chunks_are_refused() {
        let whole: Vec<_> = journal(CHUNK_SIZE + 1).to_messages().collect();
        let Some(Piece::Header(header)) = whole[0].piece.clone() else { panic!("no header") };
        let with = |change: fn(&mut JournalHeader)| {
            let mut header = header.clone();
            change(&mut header);
            let first = JournalPiece { piece: Some(Piece::Header(header)) };
            send(std::iter::once(first).chain(whole[1..].iter().cloned()), 2 * CHUNK_SIZE)
        };
        assert_eq!(with(|header| header.sha256 = vec![0; 32].into()), Err(Error::Hash));
        assert_eq!(with(|header| header.sha256 = vec![0; 31].into()), Err(Error::Length("hash")));
        assert_eq!(
            with(|header| header.token = vec![0; MAX_TOKEN_SIZE + 1].into()),
            Err(Error::Length("token"))
        );
        assert_eq!(
            with(|header| header.lineage = "x".repeat(MAX_LINEAGE_SIZE + 1)),
            Err(Error::Length("lineage"))
        );
        let accepted = with(|header| {
            header.token = vec![0; MAX_TOKEN_SIZE].into();
            header.lineage = "x".repeat(MAX_LINEAGE_SIZE);
        });
        assert!(accepted.is_ok_and(|journal| journal.is_some()), "the longest that there may be");
        assert_eq!(with(|header| header.size_bytes -= 2), Err(Error::TooMuch));
        assert_eq!(with(|header| header.size_bytes += 1), Ok(None));
        let size = u64::MAX;
        assert_eq!(
            with(|header| header.size_bytes = u64::MAX),
            Err(Error::Size { size, limit: 2 * CHUNK_SIZE })
        );
        assert_eq!(send(whole[1..].iter().cloned(), CHUNK_SIZE), Err(Error::Order));
        assert_eq!(send([whole[0].clone(), whole[0].clone()], 2 * CHUNK_SIZE), Err(Error::Order));
        assert_eq!(send([JournalPiece { piece: None }], CHUNK_SIZE), Err(Error::Order));
    }

    #[test]
    fn pieces_that_are_too_much_together_are_refused() {
        let mut messages: Vec<_> = journal(3 * CHUNK_SIZE).to_messages().collect();
        let Some(Piece::Header(header)) = &mut messages[0].piece else { panic!("no header") };
        header.size_bytes -= 1;
        assert_eq!(send(messages, 3 * CHUNK_SIZE), Err(Error::TooMuch));
    }

    #[test]
    fn a_chunk_is_neither_empty_nor_longer_than_a_chunk() {
        let first = journal(2 * CHUNK_SIZE).to_messages().next().unwrap();
        for (size, expected) in [
            (0, Err(Error::TooMuch)),
            (1, Ok(None)),
            (CHUNK_SIZE, Ok(None)),
            (CHUNK_SIZE + 1, Err(Error::TooMuch)),
            (CHUNK_SIZE + 2, Err(Error::TooMuch)),
        ] {
            let chunk = JournalPiece { piece: Some(Piece::Data(vec![7; size].into())) };
            assert_eq!(send([first.clone(), chunk], 2 * CHUNK_SIZE), expected, "{size} bytes");
        }
    }

    #[test]
    fn neither_token_nor_state_is_printed() {
        let (token, state) = ("geheim".into(), "versteckt".into());
        let text = format!("{:?}", Journal { token, state, ..journal(0) });
        assert!(text.contains("serial: 7") && text.contains("bytes: 9"), "{text}");
        assert!(!text.contains("geheim") && !text.contains("versteckt"), "{text}");
    }
}
