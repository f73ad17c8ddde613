//! A failed statement as an adapter classifies it.

use crate::error::Error;

/// A failed statement.
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether the transaction was in conflict with another one, so that running all of it again is right.
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
