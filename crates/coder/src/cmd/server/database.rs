//! Opens the database of the flags.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use coder_domain::clock::{Clock as _, SystemClock};
use coder_domain::secret::Secret;
use coder_store::{Config, Location, StateKeys, Store};

use super::flags::{Database, Synchronous};
use super::lock::Lock;
use crate::env;

/// The embedded database's file in the data directory.
pub(super) const FILE: &str = "coder.sqlite";

/// Opens the database for a server: creates it if it is missing, migrates its schema, and locks its directory until the
/// second value is dropped.
pub(crate) async fn open(flags: &Database) -> anyhow::Result<(Store, Option<Lock>)> {
    let config = config(flags)?;
    let directory = directory(flags)?;
    if let Some(directory) = &directory {
        // The database holds password hashes and Terraform state, so only its owner may read its directory.
        let make = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        make.with_context(|| format!("make the data directory {}", directory.display()))?;
    }
    let mut lock = directory.as_deref().map(Lock::take).transpose()?;
    let store = Store::open(&config, SystemClock.now()).await;
    let store = store.with_context(|| format!("open the database ({})", name(&config)))?;
    if let (Some(lock), Some(directory)) = (&mut lock, &directory) {
        lock.include_database(directory)?;
    }
    Ok((store, lock))
}

/// Opens a database that a server has created. Changes nothing.
pub(crate) async fn open_existing(flags: &Database) -> anyhow::Result<Store> {
    let config = config(flags)?;
    let store = Store::open_existing(&config).await;
    store.with_context(|| format!("open the database ({})", name(&config)))
}

/// Locks out servers from an embedded database until the value is dropped.
pub(super) fn lock(flags: &Database) -> anyhow::Result<Option<Lock>> {
    directory(flags)?.as_deref().map(Lock::take).transpose()
}

fn name(config: &Config) -> String {
    match &config.location {
        Location::Sqlite(path) => path.display().to_string(),
        // The URL may hold a password.
        Location::Postgres(_) => "the Postgres of --postgres-url".to_owned(),
    }
}

/// The keys of the flags.
pub(super) fn state_keys(flags: &Database) -> anyhow::Result<StateKeys> {
    Ok(StateKeys::parse(&flags.state_encryption_keys)?)
}

/// The directory of the embedded database; none with Postgres.
pub(super) fn directory(flags: &Database) -> anyhow::Result<Option<PathBuf>> {
    if flags.postgres_url.as_deref().is_some_and(|url| !url.is_empty()) {
        return Ok(None);
    }
    match &flags.data_dir {
        Some(directory) => Ok(Some(directory.clone())),
        None => default_directory().map(Some),
    }
}

fn config(flags: &Database) -> anyhow::Result<Config> {
    let mut config = location(flags)?;
    config.state_keys = state_keys(flags)?;
    Ok(config)
}

fn location(flags: &Database) -> anyhow::Result<Config> {
    if let Some(url) = flags.postgres_url.as_deref().filter(|url| !url.is_empty()) {
        let mut config = Config::new(Location::Postgres(Secret::new(url)));
        config.connections = flags.postgres_conn_max_open;
        return Ok(config);
    }
    let directory = match &flags.data_dir {
        Some(directory) => directory.clone(),
        None => default_directory()?,
    };
    let mut config = Config::new(Location::Sqlite(directory.join(FILE)));
    config.durable = flags.sqlite_synchronous == Synchronous::Full;
    Ok(config)
}

fn default_directory() -> anyhow::Result<PathBuf> {
    let base = env::get(env::XDG_DATA_HOME).map(PathBuf::from);
    let base = base.or_else(|| env::get(env::HOME).map(|home| Path::new(&home).join(".local/share")));
    Ok(base.context("the home directory is not known: set HOME, or pass --data-dir")?.join("coder"))
}
