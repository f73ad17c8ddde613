//! The location of the database and the options for its use.

use std::path::PathBuf;
use std::time::Duration;

use coder_domain::secret::Secret;

use crate::encryption::keys::StateKeys;

/// With one connection, a transaction would block every other caller.
pub(crate) const MIN_CONNECTIONS: usize = 2;

/// The database file or server.
#[derive(Clone, Debug)]
pub enum Location {
    /// A SQLite file. A missing file is created; its directory must exist.
    Sqlite(PathBuf),
    /// A Postgres URL.
    Postgres(Secret),
}

/// Whether a missing database file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    Existing,
    CreateIfMissing,
}

/// How the database is opened and used.
#[derive(Clone, Debug)]
pub struct Config {
    pub location: Location,
    /// SQLite only: flush every commit to the disk, so that a power failure loses nothing. This is much slower.
    pub durable: bool,
    /// Postgres only: the maximum number of connections. At least two are used.
    pub connections: usize,
    /// How long a caller waits for a free connection before it gets [`Error::Unavailable`](crate::Error::Unavailable).
    pub acquire_timeout: Duration,
    /// The keys that encrypt the secrets in the database.
    pub state_keys: StateKeys,
}

impl Config {
    /// The default options for a location.
    #[must_use]
    pub fn new(location: Location) -> Self {
        Self {
            location,
            durable: false,
            connections: 16,
            acquire_timeout: Duration::from_secs(10),
            state_keys: StateKeys::default(),
        }
    }
}

/// The limit of a list that has no limit.
pub const UNLIMITED: i64 = i64::MAX;
