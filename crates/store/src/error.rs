//! The error of this crate. Callers match on its variant. Errors of the drivers are sources and are only matched inside
//! `engine/`.

/// The error of a driver.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The requested row does not exist.
    #[error("no such {table} row")]
    NotFound {
        /// The table that was read.
        table: &'static str,
    },
    /// Another row already has this value in a unique column.
    #[error("{column} in {table} is already taken")]
    Conflict {
        table: String,
        /// The last column of the unique index, for example `name_lower`.
        column: String,
    },
    /// A row refers to one that does not exist, or a deleted row is still referred to.
    #[error("a row that this one depends on is missing, or other rows still depend on it")]
    Reference(#[source] BoxError),
    /// The row is no longer in the expected state: another writer changed it. Read it again before you decide.
    #[error("{table} row is no longer in the expected state")]
    Stale { table: &'static str },
    /// A stored value cannot be read.
    #[error("bad value in column {column} of {table} row {id}: {detail}")]
    Corrupt {
        table: &'static str,
        column: &'static str,
        /// The row's id, or a question mark when the statement does not select it.
        id: String,
        /// What is wrong with it, without the value, which may be secret.
        detail: String,
    },
    /// A value is encrypted with a key that is not configured.
    #[error(
        "a secret in {table} row {id} is encrypted with the key {key}, which is not configured: add that key to --state-encryption-keys, after the first"
    )]
    RowKeyMissing {
        table: &'static str,
        /// The row's id.
        id: String,
        /// The key's id, not the key.
        key: String,
    },
    /// Secrets of the database are encrypted with a key that is not configured, or the configured key of this id is a
    /// different one.
    #[error(
        "secrets in this database are encrypted with the key {key}, which is not configured: add that key to --state-encryption-keys (CODER_STATE_ENCRYPTION_KEYS), after the first"
    )]
    EncryptionKeyMissing {
        /// The key's id, not the key.
        key: String,
    },
    /// The database cannot be reached or is too busy. The caller may try again later.
    #[error("the database is unavailable: {what}")]
    Unavailable {
        /// What failed.
        what: &'static str,
        /// The driver's error, if there is one.
        #[source]
        source: Option<BoxError>,
    },
    /// Nothing can be stored until there is space on the disk. Reading still works.
    #[error("the database cannot be written because its disk is full: free some space")]
    DiskFull(#[source] BoxError),
    /// The database was written by a newer release.
    #[error(
        "the database has schema version {found}, this release knows {known}: start a release at least as new as the one that wrote it"
    )]
    SchemaTooNew {
        /// The version in the database.
        found: i64,
        /// The newest version this binary has.
        known: i64,
    },
    /// There is no Coder database.
    #[error(
        "no Coder database was found there: check --data-dir or --postgres-url; `coder server` makes a new one"
    )]
    DatabaseMissing,
    /// The database has the schema of an older release, and this caller must not change it.
    #[error(
        "the database has schema version {found}, this release needs {known}: start `coder server` of this release once to migrate it"
    )]
    SchemaTooOld {
        /// The version in the database.
        found: i64,
        /// The newest version this binary has.
        known: i64,
    },
    /// An applied migration differs from the one in this program.
    #[error("migration {version} was changed after it was applied: install an unmodified release")]
    MigrationChanged {
        /// The migration's number.
        version: i64,
    },
    /// The location of the database cannot be used.
    #[error("bad database location: {0}")]
    Location(String),
    /// The database refused a statement. This is a defect of this program.
    #[error("the database refused statement {statement}")]
    Refused {
        /// The statement's name.
        statement: &'static str,
        /// The driver's error.
        #[source]
        source: BoxError,
    },
}

impl Error {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::DiskFull(_))
    }

    /// Whether a unique index of `table` with the last column `column` refused the row.
    #[must_use]
    pub fn is_conflict_on(&self, table: &str, column: &str) -> bool {
        matches!(self, Self::Conflict { table: t, column: c } if t == table && c == column)
    }

    /// Whether the row asked for does not exist.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
