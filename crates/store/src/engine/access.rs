//! What a connection is used for.

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading statements. Each sees the newest committed rows.
    Read,
    /// Changing statements. Each is its own transaction.
    Autocommit,
    Transaction,
}
