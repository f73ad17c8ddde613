//! Persistence on SQLite or Postgres: one schema, one SQL text, two adapters (`docs/store.md`).
//!
//! | tables | file |
//! | --- | --- |
//! | `settings` | `settings.rs` |
//! | `organizations`, `organization_members` | `organizations.rs` |
//! | `users`, `git_ssh_keys` | `users.rs` |
//! | `external_auth_links` | `external_auth_links.rs` |
//! | `api_keys` | `tokens.rs` |
//! | `api_keys` with user and memberships | `sessions.rs` |
//! | `provisioner_keys` | `keys.rs` |
//! | `provisioner_daemons` | `daemons.rs`, `daemon_facts.rs` |
//! | `files` | `files.rs` |
//! | `tag_sets` | `tag_sets.rs` |
//! | `provisioner_jobs`, `queue_lines`, `queue_counts` | `jobs/` |
//! | `provisioner_job_journals` | `journals.rs` |
//! | `provisioner_job_logs` | `job_logs.rs`, `log_chunks.rs` |
//! | `provisioner_job_timings` | `timings.rs` |
//! | `templates` | `templates.rs` |
//! | `template_versions` and what an import found | `versions.rs`, `version_details.rs` |
//! | `workspaces` | `workspaces.rs` |
//! | `workspace_builds`, their states and parameters | `builds.rs`; encryption of all secrets: `state_keys.rs`, `state_rotation.rs` |
//! | `workspace_resources`, `workspace_modules` | `resources.rs` |
//! | `workspace_agents`, `workspace_apps` | `agents.rs` |
//! | `leases` | `leases.rs` |
//! | `encryption_keys` | `encryption.rs` |
//! | `audit_logs` | `audit.rs` |
#![warn(missing_docs)]

pub mod agents;
pub mod assignments;
pub mod audit;
mod bootstrap;
pub mod builds;
pub mod census;
pub mod changes;
pub mod check;
pub mod daemon_facts;
pub mod daemons;
pub mod encryption;
mod engine;
mod error;
pub mod external_auth_links;
pub mod files;
pub mod foundations;
pub mod job_logs;
pub mod job_uploads;
pub mod jobs;
pub mod journals;
pub mod keys;
pub mod leases;
mod log_chunks;
pub mod notifications;
pub mod organizations;
pub mod resources;
pub mod sessions;
pub mod settings;
pub mod state_keys;
pub mod state_rotation;
mod statements;
pub mod tag_sets;
pub mod templates;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timings;
pub mod tokens;
mod transaction;
pub mod users;
pub mod version_details;
pub mod versions;
pub mod workspaces;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use engine::{Class, Document, Location, Statement, Statements, Tx};
use engine::{Counters, Engine, Mode, Opening};
pub use error::{Error, Source};
pub use state_keys::StateKeys;
pub use statements::all as all_statements;
#[doc(hidden)]
pub use transaction::settle;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// With fewer a transaction would keep everybody else waiting.
const LEAST_CONNECTIONS: usize = 2;

/// How to reach the database and how hard to try.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it is.
    pub location: Location,
    /// SQLite only: flush every commit to the disk, so that even a power cut loses nothing (much slower).
    pub durable: bool,
    /// Postgres only: how many connections at most; at least two are used.
    pub connections: usize,
    /// How long a caller waits for a free connection before it gets [`Error::Unavailable`].
    pub patience: Duration,
    /// What the secrets in the database are encrypted with.
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
            patience: Duration::from_secs(10),
            state_keys: StateKeys::default(),
        }
    }
}

/// A handle on the database; cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    engine: Engine,
    counters: Arc<Counters>,
    connections: usize,
    state_keys: StateKeys,
}

impl Store {
    /// Opens the database and brings its schema up to date; an empty one gets the default organization (named
    /// `coder`), the reserved provisioner keys and a deployment id.
    ///
    /// # Errors
    /// [`Error::Newer`] and [`Error::Changed`] when this release must not touch the database,
    /// [`Error::Unavailable`] when it cannot be reached.
    pub async fn open(config: &Config, now: Timestamp) -> Result<Self> {
        let store = Self::open_unchecked(config, Opening::OrMade)?;
        engine::migrate::run(&store.0.engine, &store.0.counters, now).await?;
        Ok(store)
    }

    /// Opens a database that [`Store::open`] has made. Nothing is made or changed by that.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is none, [`Error::Older`] when its schema is not up to date, and those of
    /// [`Store::open`].
    pub async fn open_existing(config: &Config) -> Result<Self> {
        if let Location::Sqlite(path) = &config.location
            && matches!(path.try_exists(), Ok(false))
        {
            return Err(Error::Missing);
        }
        let store = Self::open_unchecked(config, Opening::Existing)?;
        engine::migrate::require_newest(&store.0.engine, &store.0.counters).await?;
        Ok(store)
    }

    fn open_unchecked(config: &Config, opening: Opening) -> Result<Self> {
        let (engine, connections) =
            (Engine::new(config, opening)?, config.connections.max(LEAST_CONNECTIONS));
        let state_keys = config.state_keys.clone();
        Ok(Self(Arc::new(Inner { engine, counters: Arc::default(), connections, state_keys })))
    }

    /// Starts reading. Each statement sees the newest committed rows; there is no snapshot across statements.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn reader(&self) -> Result<Tx> {
        self.open_for(Mode::Read).await
    }

    /// For one changing statement, which is a transaction by itself; saves two round trips.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn single(&self) -> Result<Tx> {
        self.open_for(Mode::Single).await
    }

    /// Begins a transaction; end it with [`Tx::commit`]. [`Store::write`] also retries and should be preferred.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn begin(&self) -> Result<Tx> {
        self.open_for(Mode::Write).await
    }

    async fn open_for(&self, mode: Mode) -> Result<Tx> {
        let mut tx = self.0.engine.open(mode, &self.0.counters).await?;
        tx.set_state_keys(self.0.state_keys.clone());
        Ok(tx)
    }

    /// Runs `body` as one transaction, and again from the start when another transaction was in its way (Postgres).
    ///
    /// Await nothing but the store inside `body`, and have no effect outside of the transaction. Where the future
    /// must be `Send` and `body` borrows anything, use [`transaction!`] instead.
    ///
    /// # Errors
    /// What `body` returns, after the transaction was undone; or this crate's error.
    pub async fn write<T, E, F>(&self, mut body: F) -> std::result::Result<T, E>
    where
        F: AsyncFnMut(&mut Tx) -> std::result::Result<T, E>,
        E: From<Error>,
    {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin().await?;
            let outcome = body(&mut tx).await;
            if let Some(outcome) = settle(tx, outcome, &mut attempt).await {
                return outcome;
            }
        }
    }

    /// How many statements were run since this store was opened.
    #[must_use]
    pub fn statements(&self) -> Statements {
        self.0.counters.read()
    }

    /// How many connections it uses at most, on Postgres; whoever would take all of them should take fewer.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.connections
    }

    /// Whether this store is on Postgres, the only engine that several servers may share.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self.0.engine, Engine::Postgres(_))
    }

    /// Closes all idle connections and refuses new work. SQLite folds its log into the file.
    pub async fn close(&self) {
        self.0.engine.close().await;
    }
}

/// "No limit" for a list.
pub const UNLIMITED: i64 = i64::MAX;
