//! Why a session or a stream of the multiplexer ended.

use std::io;
use std::sync::Arc;

use super::frame::FrameError;

/// Why a session is over or a stream cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The peer closed the connection normally.
    #[error("the peer closed the connection")]
    Ended,
    /// This side closed the session.
    #[error("the session was closed on this side")]
    Closed,
    /// The connection under the session failed.
    #[error("the connection failed")]
    Io(#[source] Arc<io::Error>),
    /// The peer was silent for too long.
    #[error("the peer did not answer a keepalive ping in time")]
    Silent,
    /// The peer did not acknowledge a stream in time.
    #[error("the peer did not acknowledge a new stream in time")]
    OpenTimeout,
    /// The peer accepts no new streams; connect again.
    #[error("the peer accepts no further streams; connect again")]
    GoAway,
    /// The peer ended the session with an error code.
    #[error("the peer ended the session with error code {0}")]
    PeerError(u32),
    /// Every stream id of this session has been used; connect again.
    #[error("the session has no stream ids left; connect again")]
    Exhausted,
    /// The peer sent bytes that are not a frame.
    #[error("the peer broke the multiplexer protocol")]
    Frame(#[from] FrameError),
    /// The peer broke a rule.
    #[error("the peer broke the multiplexer protocol: {0}")]
    Protocol(&'static str),
    /// The peer reset one stream; the session continues.
    #[error("the peer reset the stream")]
    Reset,
}

impl Error {
    /// The error inside an [`io::Error`] that a [`Stream`](super::Stream) returned.
    #[must_use]
    pub fn inside(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Reset => io::ErrorKind::ConnectionReset,
            Error::Silent | Error::OpenTimeout => io::ErrorKind::TimedOut,
            Error::Frame(_) | Error::Protocol(_) => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_has_the_kind_of_its_cause_and_keeps_it() {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidData, TimedOut};
        for (error, kind) in [
            (Error::Reset, ConnectionReset),
            (Error::Silent, TimedOut),
            (Error::OpenTimeout, TimedOut),
            (Error::Frame(FrameError::Kind(9)), InvalidData),
            (Error::Protocol("x"), InvalidData),
            (Error::Ended, ConnectionAborted),
            (Error::PeerError(2), ConnectionAborted),
        ] {
            let text = error.to_string();
            let outer = io::Error::from(error);
            assert_eq!(outer.kind(), kind, "{text}");
            assert!(Error::inside(&outer).is_some_and(|inner| inner.to_string() == text), "{text}");
        }
        assert!(Error::inside(&TimedOut.into()).is_none());
    }
}
