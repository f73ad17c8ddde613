//! A Terraform state on its way: a header, then its bytes in pieces.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::TOKEN;
use super::messages::journal_piece::Piece;
use super::messages::{JournalHeader, JournalPiece};

/// Longest piece, in bytes.
pub const CHUNK: usize = 1 << 20;

/// Longest lineage, in bytes; Terraform's are UUIDs.
const LINEAGE: usize = 128;

/// A state as it is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Journal {
    /// Whose it is.
    pub job_id: String,
    /// By which right it is sent.
    pub token: Bytes,
    /// Terraform's number of it.
    pub serial: u64,
    /// Terraform's name of the sequence of states it belongs to.
    pub lineage: String,
    /// The state.
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

/// A sequence of pieces that is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A hash, token or lineage of a length that it cannot have.
    #[error("the journal's {0} has an impossible length")]
    Length(&'static str),
    /// Longer than is taken.
    #[error("a state of {size} bytes is not taken; the limit is {limit} bytes")]
    Size {
        /// Announced bytes.
        size: u64,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// Pieces in another order than a header and then data.
    #[error("a journal is a header and then data")]
    Order,
    /// More data than announced, or a piece longer than a piece may be.
    #[error("the journal has more data than was announced")]
    TooMuch,
    /// The content is not what was announced.
    #[error("the journal's content does not have the announced hash")]
    Hash,
    /// The transfer ended early.
    #[error("the journal ended early")]
    Ended,
}

/// What a message of a transfer brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The announcement, which comes first.
    Header(JournalHeader),
    /// The next bytes.
    Data(Bytes),
}

/// Checks the messages of a transfer one by one, and keeps none of the state.
#[derive(Debug)]
pub struct Pieces {
    limit: usize,
    /// The announced length, and the announced hash.
    header: Option<(usize, Bytes)>,
    found: usize,
    sum: Sha256,
}

impl Pieces {
    /// For one state of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, header: None, found: 0, sum: Sha256::new() }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// [`Error`]; the transfer is over then.
    pub fn take(&mut self, message: JournalPiece) -> Result<Step, Error> {
        match (message.piece, &self.header) {
            (Some(Piece::Header(header)), None) => {
                let (header, size) = self.checked(header)?;
                self.header = Some((size, header.sha256.clone()));
                Ok(Step::Header(header))
            }
            (Some(Piece::Data(data)), Some((size, _))) => {
                if data.len() > CHUNK || data.is_empty() || data.len() > size - self.found {
                    return Err(Error::TooMuch);
                }
                self.sum.update(&data);
                self.found += data.len();
                Ok(Step::Data(data))
            }
            _ => Err(Error::Order),
        }
    }

    /// Whether the state has arrived; then its hash has been checked.
    ///
    /// # Errors
    /// [`Error::Hash`].
    pub fn is_complete(&mut self) -> Result<bool, Error> {
        let Some((_, hash)) = self.header.as_ref().filter(|(size, _)| *size == self.found) else {
            return Ok(false);
        };
        if self.sum.finalize_reset()[..] != hash[..] { Err(Error::Hash) } else { Ok(true) }
    }

    fn checked(&self, header: JournalHeader) -> Result<(JournalHeader, usize), Error> {
        if header.sha256.len() != 32 {
            return Err(Error::Length("hash"));
        }
        if header.token.len() > TOKEN {
            return Err(Error::Length("token"));
        }
        if header.lineage.len() > LINEAGE {
            return Err(Error::Length("lineage"));
        }
        let size = usize::try_from(header.size_bytes).ok().filter(|size| *size <= self.limit);
        let size = size.ok_or(Error::Size { size: header.size_bytes, limit: self.limit })?;
        Ok((header, size))
    }
}

/// The messages that carry a state.
pub fn pieces(journal: &Journal) -> impl Iterator<Item = JournalPiece> + Send + use<> {
    let header = JournalHeader {
        job_id: journal.job_id.clone(),
        token: journal.token.clone(),
        serial: journal.serial,
        lineage: journal.lineage.clone(),
        size_bytes: journal.state.len() as u64,
        sha256: Bytes::copy_from_slice(&Sha256::digest(&journal.state)),
    };
    let state = journal.state.clone();
    let data = (0..state.len())
        .step_by(CHUNK)
        .map(move |start| Piece::Data(state.slice(start..state.len().min(start + CHUNK))));
    std::iter::once(Piece::Header(header)).chain(data).map(|piece| JournalPiece { piece: Some(piece) })
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
        let (mut pieces, mut header, mut state) = (Pieces::new(limit), JournalHeader::default(), Vec::new());
        for message in messages {
            match pieces.take(message)? {
                Step::Header(first) => header = first,
                Step::Data(data) => state.extend_from_slice(&data),
            }
            if pieces.is_complete()? {
                let JournalHeader { job_id, token, serial, lineage, .. } = header;
                return Ok(Some(Journal { job_id, token, serial, lineage, state: state.into() }));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_state_survives_its_pieces() {
        for size in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let sent = journal(size);
            assert_eq!(send(pieces(&sent), size), Ok(Some(sent)), "{size}");
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        let whole: Vec<_> = pieces(&journal(CHUNK + 1)).collect();
        let Some(Piece::Header(header)) = whole[0].piece.clone() else { panic!("no header") };
        let with = |change: fn(&mut JournalHeader)| {
            let mut header = header.clone();
            change(&mut header);
            let first = JournalPiece { piece: Some(Piece::Header(header)) };
            send(std::iter::once(first).chain(whole[1..].iter().cloned()), 2 * CHUNK)
        };
        assert_eq!(with(|header| header.sha256 = vec![0; 32].into()), Err(Error::Hash));
        assert_eq!(with(|header| header.sha256 = vec![0; 31].into()), Err(Error::Length("hash")));
        assert_eq!(with(|header| header.token = vec![0; TOKEN + 1].into()), Err(Error::Length("token")));
        assert_eq!(with(|header| header.lineage = "x".repeat(LINEAGE + 1)), Err(Error::Length("lineage")));
        assert_eq!(with(|header| header.size_bytes -= 2), Err(Error::TooMuch));
        assert_eq!(with(|header| header.size_bytes += 1), Ok(None));
        let size = u64::MAX;
        assert_eq!(with(|header| header.size_bytes = u64::MAX), Err(Error::Size { size, limit: 2 * CHUNK }));
        assert_eq!(send(whole[1..].iter().cloned(), CHUNK), Err(Error::Order));
        assert_eq!(send([whole[0].clone(), whole[0].clone()], 2 * CHUNK), Err(Error::Order));
        assert_eq!(send([JournalPiece { piece: None }], CHUNK), Err(Error::Order));
    }
}
