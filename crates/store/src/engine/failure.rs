//! A failed statement, as an adapter classifies it.

use crate::error::Error;

/// A failed statement.
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether the transaction conflicted with another one and should be run again.
    pub(crate) conflicted: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, conflicted: false }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}
