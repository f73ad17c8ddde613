//! Journals: the newest state that a running job has sent (docs/extensions.md, Journal).

use coder_domain::ids::{BuildId, JobId};
use coder_domain::key::Sha256Digest;
use jiff::Timestamp;

use crate::Result;
use crate::encryption::keys::Owner;
use crate::engine::{Tx, Value, record, sql, statements, values};
use crate::workspaces::builds;

record! {
    pub struct StateVersion {
        /// Terraform's serial number of the state. Grows within a lineage.
        pub serial: i64,
        /// Terraform's id of the history of states.
        pub lineage: String,
        /// SHA-256 of the bytes as the daemon sent them.
        pub sha256: Sha256Digest,
    }
}

#[derive(Clone, PartialEq)]
pub struct JournalEntry {
    pub version: StateVersion,
    /// The id of the key that encrypts the bytes in the database; empty when they are not encrypted. Ignored when an
    /// entry is stored.
    pub cipher: String,
    /// The state, unencrypted.
    pub state: Vec<u8>,
}

impl std::fmt::Debug for JournalEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalEntry").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The result of storing a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// Whether it is the newest state now. This is also true for a repeated state.
    pub kept: bool,
    /// The serial of the newest state; 0 when there is none.
    pub serial: i64,
}

statements! { "provisioner_job_journals";
    FIND = sql("select serial, lineage, sha256, cipher, state from provisioner_job_journals where job_id = $1");
    FIND_VERSION = sql("select serial, lineage, sha256 from provisioner_job_journals where job_id = $1");
    PUT = sql("insert into provisioner_job_journals (job_id, serial, lineage, sha256, cipher, state, updated_us)
        values ($1, $2, $3, $4, $5, $7, $6) on conflict (job_id) do update set serial = excluded.serial,
        lineage = excluded.lineage, sha256 = excluded.sha256, cipher = excluded.cipher, state = excluded.state,
        updated_us = excluded.updated_us");
    APPLY = sql("insert into workspace_build_states (workspace_build_id, state)
        select $2, state from provisioner_job_journals where job_id = $1 and length(state) > 0 and cipher = ''
        on conflict (workspace_build_id) do update set state = excluded.state");
    DELETE = sql("delete from provisioner_job_journals where job_id = $1");
    PURGE = sql("delete from provisioner_job_journals where job_id in (
        select id from provisioner_jobs where completed_us < $1 and id in (select job_id from provisioner_job_journals))");
}

/// Stores a state if it is newer than the stored one. `base` is the version of the state that the job started with, if
/// any. Within one lineage, a state is newer with a higher serial, or with an equal serial and other bytes. A state of
/// another lineage is stored only when there is no state of the base's lineage. First check that the sender holds the
/// job ([`jobs::update_alive`](crate::jobs::update_alive)) in the same transaction; this also locks the job.
///
/// # Errors
/// [`crate::Error::Reference`] when there is no such job.
pub async fn put(
    tx: &mut Tx,
    job: JobId,
    new: &StateVersion,
    state: Vec<u8>,
    base: Option<&StateVersion>,
    now: Timestamp,
) -> Result<PutOutcome> {
    let kept = find_version(tx, job).await?;
    let newest = kept.as_ref().or(base);
    let is_newer = newest.is_none_or(|old| {
        old.lineage == new.lineage
            && (new.serial > old.serial || new.serial == old.serial && new.sha256 != old.sha256)
    });
    if !is_newer {
        let serial = newest.map_or(0, |old| old.serial);
        let same = kept.as_ref() == Some(new);
        return Ok(PutOutcome { kept: same, serial });
    }
    let keys = tx.state_keys();
    let state = keys.seal(Owner::Journal(job), state);
    // A state may be long, so it is moved instead of copied.
    let row = values![job, new.serial, new.lineage, new.sha256, keys.cipher(), now];
    let row = row.into_iter().chain([Value::Bytes(state)]).collect();
    tx.execute(&PUT, row).await?;
    Ok(PutOutcome { kept: true, serial: new.serial })
}

/// The newest state that a job sent, if any.
///
/// # Errors
/// [`crate::Error::Corrupt`], and [`crate::Error::RowKeyMissing`] when it is encrypted with a key that is not
/// configured.
pub async fn find(tx: &mut Tx, job: JobId) -> Result<Option<JournalEntry>> {
    let Some(row) = tx.fetch_opt(&FIND, values![job]).await? else { return Ok(None) };
    let cipher = row.get("cipher")?;
    let state = tx.state_keys().open(Owner::Journal(job), row.get("state")?)?;
    Ok(Some(JournalEntry { version: StateVersion::from_row(&row)?, cipher, state }))
}

/// The version of a job's newest state.
///
/// # Errors
/// [`crate::Error::Corrupt`].
pub async fn find_version(tx: &mut Tx, job: JobId) -> Result<Option<StateVersion>> {
    tx.fetch_opt(&FIND_VERSION, values![job]).await?.as_ref().map(StateVersion::from_row).transpose()
}

/// Copies the state of the journal to the build, whose job ended without a state. Returns whether there was a journal.
/// An encrypted state is bound to the journal, so it is decrypted and encrypted again in memory.
///
/// # Errors
/// [`crate::Error::RowKeyMissing`] when it is encrypted with a key that is not configured.
pub async fn apply(tx: &mut Tx, job: JobId, build: BuildId) -> Result<bool> {
    if tx.state_keys().is_empty() && tx.execute(&APPLY, values![job, build]).await? > 0 {
        return Ok(true);
    }
    match find(tx, job).await?.filter(|entry| !entry.state.is_empty()) {
        Some(entry) => builds::update_state(tx, build, entry.state).await.map(|()| true),
        None => Ok(false),
    }
}

/// Deletes the journal of a job that ended with a state.
pub async fn delete(tx: &mut Tx, job: JobId) -> Result<()> {
    tx.execute_pipelined(&DELETE, values![job], false).await
}

/// Deletes the journals of jobs that ended before `before`.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
