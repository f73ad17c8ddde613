//! Who holds a job: signs of life, lost connections, and sessions that come back (`coder_domain::job::lifecycle`). A job
//! that a session of ours holds is fenced by its epoch; official daemons are recognised by their row alone.

use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use coder_domain::job::lifecycle::Sender;
use coder_domain::key::Sha256Digest;
use jiff::Timestamp;

use super::job::STALE;
use crate::Result;
use crate::engine::{Purpose, Tx, batch, record, sql, statements, values};

/// Who says something about a job: a daemon's row, and the epoch under which it holds the job (none from official
/// daemons, which cannot touch a job that a session holds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The row.
    pub daemon: DaemonId,
    /// The job's [`attempt`](super::Job::attempt) when it was handed to this connection.
    pub epoch: Option<i64>,
}

impl Holder {
    /// A session of ours.
    #[must_use]
    pub const fn session(daemon: DaemonId, epoch: i64) -> Self {
        Self { daemon, epoch: Some(epoch) }
    }
}

impl From<DaemonId> for Holder {
    fn from(daemon: DaemonId) -> Self {
        Self { daemon, epoch: None }
    }
}

impl From<Sender> for Holder {
    fn from(sender: Sender) -> Self {
        let epoch = sender.epoch.map(|epoch| i64::try_from(epoch).unwrap_or(i64::MAX));
        Self { daemon: sender.daemon, epoch }
    }
}

/// The guard of whatever a holder may do: $1 job, $2 daemon, $3 epoch.
macro_rules! held_by {
    () => {
        "id = $1 and worker_id = $2 and completed_us is null
        and (attempt = $3 or (cast($3 as bigint) is null and session_hash is null))"
    };
}
pub(crate) use held_by;

record! {
    /// A job that a daemon holds, or held.
    pub struct JobLease {
        /// The job.
        pub id: JobId,
        /// The epoch of its holder.
        pub attempt: i64,
        /// Hash of the session that holds it; none for official daemons.
        pub session_hash: Option<Sha256Digest>,
        /// Hash of its newest token; none before the first.
        pub token_hash: Option<Sha256Digest>,
        /// Hash of the token that its daemon may still know instead: the newest was never used.
        pub previous_token_hash: Option<Sha256Digest>,
        /// When a daemon took it.
        pub started_at: Option<Timestamp> = "started_us",
        /// When a cancel was asked for.
        pub canceled_at: Option<Timestamp> = "canceled_us",
        /// When it ended.
        pub completed_at: Option<Timestamp> = "completed_us",
        /// Number of the last numbered log line that is stored.
        pub logs_sequence: i64,
    }
}

macro_rules! held_columns {
    () => {
        "id, attempt, session_hash, token_hash, previous_token_hash, started_us, canceled_us, completed_us, logs_sequence"
    };
}

statements! { "provisioner_jobs";
    /// Only an official daemon comes back by speaking; a session comes back by its proof alone.
    TOUCH = sql(concat!("update provisioner_jobs set updated_us = $4,
        lost_us = case when session_hash is null then null else lost_us end where ", held_by!(), " returning canceled_us"))
        .purpose(Purpose::Heartbeat);
    LOSE = sql("update provisioner_jobs set lost_us = $3 where worker_id = $1 and completed_us is null and lost_us is null
        and exists (select 1 from json_each($2) as item
            where json_extract(item.value, '$.id') = provisioner_jobs.id
            and case when json_extract(item.value, '$.epoch') is null then provisioner_jobs.session_hash is null
                else cast(json_extract(item.value, '$.epoch') as bigint) = provisioner_jobs.attempt end)");
    /// A token that the session showed is the one it knows; otherwise that is the last one it can have got.
    RESUME = sql(concat!("update provisioner_jobs set attempt = attempt + 1, updated_us = $4, lost_us = null, token_hash = $5,
        previous_token_hash = case when token_hash = cast($6 as blob) or previous_token_hash = cast($6 as blob) then $6
            else coalesce(previous_token_hash, token_hash) end
        where id = $1 and worker_id = $2 and completed_us is null and session_hash = $3 returning ", held_columns!()));
    HOLD = sql(concat!("update provisioner_jobs set token_hash = cast($4 as blob),
        previous_token_hash = case when token_hash = cast($4 as blob) then previous_token_hash
            else coalesce(previous_token_hash, token_hash) end
        where id = $1 and worker_id = $2 and completed_us is null and session_hash = $3 returning ", held_columns!()));
    FIND_HELD = sql(concat!("select ", held_columns!(), " from provisioner_jobs where id = $1 and worker_id = $2"));
    LIST_OWNED = sql("select id from provisioner_jobs where worker_id = $1 and completed_us is null order by started_us");
    LIST_HELD = sql(concat!("select ", held_columns!(), " from provisioner_jobs
        where worker_id = $1 and completed_us is null order by started_us"));
    FORGET_PREVIOUS = sql(concat!("update provisioner_jobs set previous_token_hash = null
        where previous_token_hash is not null and ", held_by!()));
    SET_PROGRAM = sql(concat!("update provisioner_jobs set program_product = $4, program_version = $5 where ", held_by!()));
    LIST_OF_SESSION = sql("select id from provisioner_jobs
        where session_hash = $1 and started_us is not null and completed_us is null order by started_us");
    LIST_JOINED_BY = sql("select job.id from provisioner_daemons as daemon
        join provisioner_jobs as job on job.worker_id = daemon.id and job.completed_us is null
        where daemon.joined_by = $1 and daemon.key_id = $2 and daemon.organization_id = $3
        and (daemon.owner_tag <> '') = $4 order by job.started_us");
    LIST_OF_TOKEN = sql("select job.id from provisioner_daemons as daemon
        join provisioner_jobs as job on job.worker_id = daemon.id and job.completed_us is null
        where daemon.joined_token = $1 order by job.started_us");
    LIST_IN_ORGANIZATION = sql("select job.id from provisioner_daemons as daemon
        join provisioner_jobs as job on job.worker_id = daemon.id and job.completed_us is null
        where daemon.organization_id = $1 order by job.started_us");
    LIST_OF_KEY = sql("select job.id from provisioner_daemons as daemon
        join provisioner_jobs as job on job.worker_id = daemon.id and job.completed_us is null
        where daemon.key_id = $1 order by job.started_us");
}

/// A sign of life from the holder; says whether a cancel was asked for.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when this is not the present holder or the job has ended.
pub async fn update_alive(tx: &mut Tx, id: JobId, holder: impl Into<Holder>, now: Timestamp) -> Result<bool> {
    let Holder { daemon, epoch } = holder.into();
    let row = tx.fetch_opt(&TOUCH, values![id, daemon, epoch, now]).await?;
    let canceled_at: Option<Timestamp> = row.ok_or(STALE)?.get("canceled_us")?;
    Ok(canceled_at.is_some())
}

/// Notes that the connection over which `daemon` held these jobs, each under this epoch, has ended. Those that have
/// ended, or have been resumed since, stay as they are; returns how many are lost now.
///
/// # Errors
/// Only when the database fails.
pub async fn update_lost(
    tx: &mut Tx,
    daemon: DaemonId,
    jobs: &[(JobId, Option<i64>)],
    now: Timestamp,
) -> Result<u64> {
    if jobs.is_empty() {
        return Ok(0);
    }
    let jobs = batch(&["id", "epoch"], jobs.iter().map(|(id, epoch)| values![*id, *epoch]));
    let mut parameters = values![daemon];
    parameters.push(jobs);
    parameters.extend(values![now]);
    tx.execute(&LOSE, parameters).await
}

/// A session comes back for its job and gets it under a new epoch with a new token. `shown` is the hash of the token that
/// it showed, if it had one: that one is good for a salvage until the new one is used ([`update_token_used`]).
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it is not this session's or has ended; see [`find_held`].
pub async fn resume(
    tx: &mut Tx,
    id: JobId,
    daemon: DaemonId,
    session: Sha256Digest,
    shown: Option<Sha256Digest>,
    token: Sha256Digest,
    now: Timestamp,
) -> Result<JobLease> {
    let row = tx.fetch_opt(&RESUME, values![id, daemon, session, now, token, shown]).await?;
    JobLease::from_row(&row.ok_or(STALE)?)
}

/// Gives the job's present session a token; its epoch stays.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the job is not this session's or has ended.
pub async fn update_token(
    tx: &mut Tx,
    id: JobId,
    daemon: DaemonId,
    session: Sha256Digest,
    token: Sha256Digest,
) -> Result<JobLease> {
    let row = tx.fetch_opt(&HOLD, values![id, daemon, session, token]).await?;
    JobLease::from_row(&row.ok_or(STALE)?)
}

/// How a job stands that this daemon holds or held; none when it never did.
///
/// # Errors
/// Only when the database fails.
pub async fn find_held(tx: &mut Tx, id: JobId, daemon: DaemonId) -> Result<Option<JobLease>> {
    tx.fetch_opt(&FIND_HELD, values![id, daemon]).await?.as_ref().map(JobLease::from_row).transpose()
}

/// The open jobs of a daemon.
///
/// # Errors
/// Only when the database fails.
pub async fn list_of_daemon(tx: &mut Tx, owner: DaemonId) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OWNED, values![owner]).await?.iter().map(|row| row.get("id")).collect()
}

/// The open jobs of a daemon, with who holds them.
///
/// # Errors
/// Only when the database fails.
pub async fn list_held(tx: &mut Tx, owner: DaemonId) -> Result<Vec<JobLease>> {
    tx.fetch(&LIST_HELD, values![owner]).await?.iter().map(JobLease::from_row).collect()
}

/// The open jobs of all daemons that joined with a key: they end when it does.
///
/// # Errors
/// Only when the database fails.
pub async fn list_of_key(tx: &mut Tx, key: KeyId) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OF_KEY, values![key]).await?.iter().map(|row| row.get("id")).collect()
}

/// The holder has used its newest token, so that an older one is of no use any more.
///
/// # Errors
/// Only when the database fails.
pub async fn update_token_used(tx: &mut Tx, id: JobId, holder: impl Into<Holder>) -> Result<()> {
    let Holder { daemon, epoch } = holder.into();
    tx.execute(&FORGET_PREVIOUS, values![id, daemon, epoch]).await.map(|_| ())
}

/// The holder says which program runs the job.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when this is not the present holder or the job has ended.
pub async fn update_program(
    tx: &mut Tx,
    id: JobId,
    holder: impl Into<Holder>,
    product: &str,
    version: &str,
) -> Result<()> {
    let Holder { daemon, epoch } = holder.into();
    tx.change_one(&SET_PROGRAM, values![id, daemon, epoch, product.to_owned(), version.to_owned()]).await
}

/// The open jobs of a session: they are lost when its process is known to be gone.
///
/// # Errors
/// Only when the database fails.
pub async fn list_of_session(tx: &mut Tx, session: Sha256Digest) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OF_SESSION, values![session]).await?.iter().map(|row| row.get("id")).collect()
}

/// The open jobs of all daemons of an organization that joined with a token of this user, for this user alone or for all.
///
/// # Errors
/// Only when the database fails.
pub async fn list_joined_by(
    tx: &mut Tx,
    user: UserId,
    organization: OrganizationId,
    is_personal: bool,
) -> Result<Vec<JobId>> {
    let parameters = values![user, KeyId::USER_AUTH, organization, is_personal];
    let rows = tx.fetch(&LIST_JOINED_BY, parameters).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// The open jobs of all daemons that joined with this token.
///
/// # Errors
/// Only when the database fails.
pub async fn list_of_token(tx: &mut Tx, token: &str) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OF_TOKEN, values![token.to_owned()]).await?.iter().map(|row| row.get("id")).collect()
}

/// The open jobs of all daemons of an organization.
///
/// # Errors
/// Only when the database fails.
pub async fn list_in_organization(tx: &mut Tx, organization: OrganizationId) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_IN_ORGANIZATION, values![organization]).await?.iter().map(|row| row.get("id")).collect()
}
