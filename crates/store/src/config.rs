//! Where the database is and how it is used.

use std::path::PathBuf;
use std::time::Duration;

use coder_domain::secret::Secret;

use crate::encryption::keys::StateKeys;

/// With fewer, one transaction would keep everybody else waiting.
pub(crate) const MIN_CONNECTIONS: usize = 2;

/// Where the rows are.
#[derive(Clone, Debug)]
pub enum Location {
    /// A SQLite file. A missing file is created; its folder must exist.
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

/// How to reach the database and how hard to try.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it is.
    pub location: Location,
    /// SQLite only: flush every commit to the disk, so that even a power cut loses nothing (much slower).
    pub durable: bool,
    /// Postgres only: the maximum number of connections; at least two are used.
    pub connections: usize,
    /// How long a caller waits for a free connection before it gets [`Error::Unavailable`](crate::Error::Unavailable).
    pub acquire_timeout: Duration,
    /// The keys that encrypt the secrets in the database.
    pub state_keys: StateKeys,
}

impl Config {
    /// The defaults for a location.
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

/// "No limit" for a list.
pub const UNLIMITED: i64 = i64::MAX;
