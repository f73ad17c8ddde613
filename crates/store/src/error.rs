//! The one error of this crate. Callers match on its kind; driver errors are sources and stay inside `engine/`.

/// The error of a driver.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with the database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The row asked for does not exist.
    #[error("no such {table} row")]
    NotFound {
        /// The table that was read.
        table: &'static str,
    },
    /// A unique column already holds this value.
    #[error("{column} in {table} is already taken")]
    Conflict {
        /// The table.
        table: String,
        /// The last column of the unique index, for example `name_lower`.
        column: String,
    },
    /// A row refers to one that does not exist, or a deleted row is still referred to.
    #[error("a row that this one depends on is missing, or other rows still depend on it")]
    Reference(#[source] BoxError),
    /// The row is no longer in the expected state: another writer was faster. Reread before deciding again.
    #[error("{table} row is no longer in the expected state")]
    Stale {
        /// The table.
        table: &'static str,
    },
    /// A stored value cannot be read as what it must be.
    #[error("bad value in column {column} of {table} row {id}: {detail}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's id, or a question mark when the statement does not select it.
        id: String,
        /// What is wrong with it, without the value (it may be secret).
        detail: String,
    },
    /// A value is encrypted with a key that is not there.
    #[error(
        "a secret in {table} row {id} is encrypted with the key {key}, which is not configured: add that key to --state-encryption-keys, after the first"
    )]
    RowKeyMissing {
        /// The table.
        table: &'static str,
        /// The row's id.
        id: String,
        /// The key's id, by which it is known; not the key.
        key: String,
    },
    /// Secrets of the database are encrypted with a key that is not there, or that is not the one it is taken for.
    #[error(
        "secrets in this database are encrypted with the key {key}, which is not configured: add that key to --state-encryption-keys (CODER_STATE_ENCRYPTION_KEYS), after the first"
    )]
    EncryptionKeyMissing {
        /// The key's id, by which it is known; not the key.
        key: String,
    },
    /// The database cannot be reached or is too busy; trying again later is right.
    #[error("the database is unavailable: {what}")]
    Unavailable {
        /// What was attempted.
        what: &'static str,
        /// Why, when the driver said so.
        #[source]
        source: Option<BoxError>,
    },
    /// Nothing more can be stored until somebody makes room; reading goes on.
    #[error("the database cannot be written, its disk is full: make room on it")]
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
    /// There is no database of ours.
    #[error(
        "there is no Coder database there: check --data-dir or --postgres-url; `coder server` makes a new one"
    )]
    DatabaseMissing,
    /// The database was written by an older release and is not changed by merely looking at it.
    #[error(
        "the database has schema version {found}, this release needs {known}: start `coder server` of this release once, which brings it up to date"
    )]
    SchemaTooOld {
        /// The version in the database.
        found: i64,
        /// The newest version this binary has.
        known: i64,
    },
    /// An applied migration is not the one embedded here.
    #[error("migration {version} was changed after it was applied: install an unmodified release")]
    MigrationChanged {
        /// The migration's number.
        version: i64,
    },
    /// The location of the database is not usable.
    #[error("bad database location: {0}")]
    Location(String),
    /// The database refused a statement; a defect of this program.
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
    /// Whether the same call may succeed when it is tried again later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::DiskFull(_))
    }

    /// Whether a unique index of `table` that ends in `column` refused the row.
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
