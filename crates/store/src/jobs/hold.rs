//! Held jobs: heartbeats, lost connections and resumed sessions (`coder_domain::job::lifecycle`). A job that a session
//! holds is protected by its epoch. Official daemons have no sessions and are identified by their row alone.

use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use coder_domain::job::lifecycle::Sender;
use coder_domain::key::Sha256Digest;
use jiff::Timestamp;

use super::job::STALE;
use crate::Result;
use crate::engine::{Purpose, Tx, batch, record, sql, statements, values};

/// The sender of a message about a job: the daemon and the epoch under which it holds the job. Official daemons have no
/// epoch and cannot change a job that a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The daemon's row.
    pub daemon: DaemonId,
    /// The job's [`attempt`](super::Job::attempt) when this connection acquired it.
    pub epoch: Option<i64>,
}

impl Holder {
    /// A sender with a session.
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

/// The guard for every change by a holder: $1 job, $2 daemon, $3 epoch.
macro_rules! held_by {
    () => {
        "id = $1 and worker_id = $2 and completed_us is null
        and (attempt = $3 or (cast($3 as bigint) is null and session_hash is null))"
    };
}
pub(crate) use held_by;

record! {
    /// A job that a daemon holds or held.
    pub struct JobLease {
        pub id: JobId,
        /// The epoch of its holder.
        pub attempt: i64,
        /// The hash of the session that holds it; none for official daemons.
        pub session_hash: Option<Sha256Digest>,
        /// The hash of its newest token; none before the first one.
        pub token_hash: Option<Sha256Digest>,
        /// The hash of the previous token. The daemon may still have it, because the newest token has not been used.
        pub previous_token_hash: Option<Sha256Digest>,
        /// When a daemon acquired it.
        pub started_at: Option<Timestamp> = "started_us",
        /// When it was canceled.
        pub canceled_at: Option<Timestamp> = "canceled_us",
        /// When it ended.
        pub completed_at: Option<Timestamp> = "completed_us",
        /// The number of the last stored line among those that its daemon numbers.
        pub logs_sequence: i64,
    }
}

macro_rules! held_columns {
    () => {
        "id, attempt, session_hash, token_hash, previous_token_hash, started_us, canceled_us, completed_us, logs_sequence"
    };
}

statements! { "provisioner_jobs";
    /// A message of an official daemon ends the loss of its connection. A session must prove itself instead
    /// ([`resume`]).
    TOUCH = sql(concat!("update provisioner_jobs set updated_us = $4,
        lost_us = case when session_hash is null then null else lost_us end where ", held_by!(), " returning canceled_us"))
        .purpose(Purpose::Heartbeat);
    LOSE = sql("update provisioner_jobs set lost_us = $3 where worker_id = $1 and completed_us is null and lost_us is null
        and exists (select 1 from json_each($2) as item
            where json_extract(item.value, '$.id') = provisioner_jobs.id
            and case when json_extract(item.value, '$.epoch') is null then provisioner_jobs.session_hash is null
                else cast(json_extract(item.value, '$.epoch') as bigint) = provisioner_jobs.attempt end)");
    /// The previous token is the one that the session presented. Without one, it is the last token that was issued.
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

/// Records a heartbeat of the holder. Returns whether the job was canceled.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the sender does not hold the job or the job has ended.
pub async fn update_alive(tx: &mut Tx, id: JobId, holder: impl Into<Holder>, now: Timestamp) -> Result<bool> {
    let Holder { daemon, epoch } = holder.into();
    let row = tx.fetch_opt(&TOUCH, values![id, daemon, epoch, now]).await?;
    let canceled_at: Option<Timestamp> = row.ok_or(STALE)?.get("canceled_us")?;
    Ok(canceled_at.is_some())
}

/// Records that the connection over which `daemon` held these jobs, each under its epoch, has ended. Jobs that have
/// ended or were resumed are not changed. Returns how many jobs are lost now.
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

/// Gives a job to its returning session under a new epoch with a new token. `shown` is the hash of the token that the
/// session presented, if any. That token stays valid for a salvaged state until the new one is used
/// ([`update_token_used`]).
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when this session does not hold it or it has ended; see [`find_held`].
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

/// Gives the job's present session a token. The epoch stays the same.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when this session does not hold the job or it has ended.
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

/// Finds a job that this daemon holds or held; none when it never held it.
pub async fn find_held(tx: &mut Tx, id: JobId, daemon: DaemonId) -> Result<Option<JobLease>> {
    tx.fetch_opt(&FIND_HELD, values![id, daemon]).await?.as_ref().map(JobLease::from_row).transpose()
}

/// The open jobs of a daemon.
pub async fn list_of_daemon(tx: &mut Tx, owner: DaemonId) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OWNED, values![owner]).await?.iter().map(|row| row.get("id")).collect()
}

/// The open jobs of a daemon, with their leases.
pub async fn list_held(tx: &mut Tx, owner: DaemonId) -> Result<Vec<JobLease>> {
    tx.fetch(&LIST_HELD, values![owner]).await?.iter().map(JobLease::from_row).collect()
}

/// The open jobs of all daemons that joined with a key. They end together with the key.
pub async fn list_of_key(tx: &mut Tx, key: KeyId) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OF_KEY, values![key]).await?.iter().map(|row| row.get("id")).collect()
}

/// Records that the holder has used its newest token. The previous token becomes invalid.
pub async fn update_token_used(tx: &mut Tx, id: JobId, holder: impl Into<Holder>) -> Result<()> {
    let Holder { daemon, epoch } = holder.into();
    tx.execute(&FORGET_PREVIOUS, values![id, daemon, epoch]).await.map(|_| ())
}

/// Stores which program runs the job, as its holder reports.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the sender does not hold the job or the job has ended.
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

/// The open jobs of a session. They are lost when the process of the session has ended.
pub async fn list_of_session(tx: &mut Tx, session: Sha256Digest) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OF_SESSION, values![session]).await?.iter().map(|row| row.get("id")).collect()
}

/// The open jobs of all daemons of an organization that joined with a token of this user and whose scope is this user
/// or the organization.
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
pub async fn list_of_token(tx: &mut Tx, token: &str) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OF_TOKEN, values![token.to_owned()]).await?.iter().map(|row| row.get("id")).collect()
}

/// The open jobs of all daemons of an organization.
pub async fn list_in_organization(tx: &mut Tx, organization: OrganizationId) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_IN_ORGANIZATION, values![organization]).await?.iter().map(|row| row.get("id")).collect()
}
