//! What a connection is used for.

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Statements that only read; each sees the newest committed rows.
    Read,
    /// Statements that are each a transaction of their own.
    Autocommit,
    /// One transaction.
    Transaction,
}
