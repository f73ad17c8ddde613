//! How a call can fail, and whether calling again can help.

use std::io;

use super::frame::FrameError;
use crate::{error_chain, mux};

/// The error that answers a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Status {
    /// 0 in nearly every case; 12 for a method that is not implemented.
    pub code: u64,
    /// The text for people. Daemons look for two substrings (wire-protocol 5.8).
    pub text: String,
}

impl Status {
    /// An error with code 0, like every error of the official handlers.
    pub fn new(text: impl Into<String>) -> Self {
        Self { code: 0, text: text.into() }
    }

    /// An error with the texts of `error` and of its causes.
    #[must_use]
    pub fn chain(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(error_chain::describe(error))
    }

    /// The data of an Error packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&self.code.to_be_bytes()[..], self.text.as_bytes()].concat()
    }

    /// Reads the data of an Error packet; every byte string is one.
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        match data.split_first_chunk::<8>() {
            Some((code, text)) => {
                Self { code: u64::from_be_bytes(*code), text: String::from_utf8_lossy(text).into_owned() }
            }
            None => Self::new(format!("{} (the error packet is too short)", String::from_utf8_lossy(data))),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer answered with an error.
    #[error("the peer refused the call: {0}")]
    Refused(Status),
    /// The peer ended the call without an answer.
    #[error("the peer ended the call without an answer")]
    NoAnswer,
    /// The connection or the stream ended during the call.
    #[error("the connection was lost during the call")]
    Lost(#[source] io::Error),
    /// The stream was reset.
    #[error("the peer reset the stream of the call")]
    Reset,
    /// The peer canceled the call.
    #[error("the peer canceled the call")]
    Canceled,
    /// The peer was silent in the middle of a request, or read nothing of its answer, for too long.
    #[error("the peer stalled in the middle of a call")]
    Stalled,
    /// A message of ours is longer than the peer accepts; nothing was sent.
    #[error("a message of {size} bytes is longer than the limit of {limit} bytes")]
    TooLarge {
        /// Bytes of the message.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// The peer sent bytes that are not packets.
    #[error("the peer broke the call protocol")]
    Frame(#[from] FrameError),
    /// The peer sent a packet that is not allowed in this state.
    #[error("the peer broke the call protocol: {0}")]
    Protocol(&'static str),
    /// The peer's message has too many elements; it was not decoded.
    #[error("a message of {found} elements is refused; the limit is {limit} elements")]
    TooMany {
        /// Elements of the message.
        found: usize,
        /// Elements that are allowed.
        limit: usize,
    },
    /// The peer's message does not decode.
    #[error("the peer's message does not decode")]
    Decode(#[from] prost::DecodeError),
}

impl Error {
    /// Whether calling again can help, perhaps on a new connection (wire-protocol 5.7). A reset and an answer with an
    /// error are final; a transport that was lost and an end without an answer are not.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::NoAnswer | Self::Lost(_) | Self::Canceled)
    }

    pub(super) fn transport(error: io::Error) -> Self {
        match mux::Error::inside(&error) {
            Some(mux::Error::Reset) => Self::Reset,
            _ => Self::Lost(error),
        }
    }

    pub(super) fn ended() -> Self {
        Self::Lost(io::ErrorKind::UnexpectedEof.into())
    }
}

impl From<mux::Error> for Error {
    fn from(error: mux::Error) -> Self {
        Self::transport(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_survives_its_packet() {
        let status = Status { code: 12, text: "Unimplemented".to_owned() };
        assert_eq!(Status::decode(&status.encode()), status);
        assert!(Status::decode(b"abc").text.starts_with("abc"));
        assert_eq!(Status::decode(&[0; 8]), Status::new(""));
    }

    #[test]
    fn only_lost_and_unanswered_calls_are_retryable() {
        let check = |error: Error, retryable| assert_eq!(error.is_retryable(), retryable, "{error}");
        check(mux::Error::Ended.into(), true);
        check(mux::Error::Closed.into(), true);
        check(mux::Error::Silent.into(), true);
        check(mux::Error::Reset.into(), false);
        check(Error::NoAnswer, true);
        check(Error::ended(), true);
        check(Error::Refused(Status::new("no")), false);
        check(Error::TooLarge { size: 2, limit: 1 }, false);
        check(Error::Protocol("x"), false);
    }
}
