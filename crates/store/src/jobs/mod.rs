//! Provisioner jobs. Each transition is one statement guarded by the state it starts from; zero changed rows means
//! [`Error::Stale`](crate::Error::Stale), and the caller rereads and asks `coder_domain::job::Facts` why.
//!
//! Invariant: a job is held by at most one daemon, and only that daemon can finish it.

pub mod list;
pub mod queue;
pub mod reap;

use std::collections::BTreeMap;
use std::time::Duration;

use coder_domain::ids::{BuildId, DaemonId, FileId, JobId, OrganizationId, TemplateVersionId, UserId};
use coder_domain::job::{Facts, Status, Type};
use coder_domain::tags::TagSet;
use jiff::Timestamp;

use crate::engine::forks::claim::CLAIM;
use crate::engine::{Class, Document, Tx, list as list_value, record, sql, statements, values};
use crate::tag_sets::{self, TagSetId};
use crate::{Error, Result};

record! {
    /// A job.
    pub struct Job {
        /// Id.
        pub id: JobId,
        /// Organization.
        pub organization_id: OrganizationId,
        /// Who caused it.
        pub initiator_id: UserId,
        /// What it does.
        pub kind: Type = "type",
        /// `terraform` or `echo`.
        pub provisioner: String,
        /// The template's sources.
        pub file_id: FileId,
        /// Interned tags.
        pub tag_set_id: TagSetId,
        /// Tags.
        pub tags: TagSet,
        /// Whether it queues after people's jobs.
        pub prebuild: bool,
        /// The version that is imported, tried out, or built.
        pub template_version_id: Option<TemplateVersionId>,
        /// The build, of build jobs.
        pub workspace_build_id: Option<BuildId>,
        /// Private input; may hold secrets.
        pub input: Document,
        /// Trace propagation.
        pub trace_metadata: BTreeMap<String, String>,
        /// When it was made.
        pub created_at: Timestamp = "created_us",
        /// Last sign of life.
        pub updated_at: Timestamp = "updated_us",
        /// When a daemon took it.
        pub started_at: Option<Timestamp> = "started_us",
        /// When a cancel was asked for.
        pub canceled_at: Option<Timestamp> = "canceled_us",
        /// When it ended.
        pub completed_at: Option<Timestamp> = "completed_us",
        /// Error text, possibly empty.
        pub error: String,
        /// Error code, possibly empty.
        pub error_code: String,
        /// The daemon that has, or had, it.
        pub worker_id: Option<DaemonId>,
        /// The session that took it (`extensions.md`, resume).
        pub session_nonce: Option<String>,
        /// How often it was taken.
        pub attempt: i64,
        /// Id of the last log line, 0 when there is none.
        pub logs_last_id: i64,
        /// Bytes of log output.
        pub logs_bytes: i64,
        /// Whether log lines were dropped at the cap.
        pub logs_overflowed: bool,
    }
}

impl Job {
    /// The facts that decide what may happen next.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts {
            started_at: self.started_at,
            canceled_at: self.canceled_at,
            completed_at: self.completed_at,
            error: self.error.clone(),
            worker: self.worker_id,
        }
    }

    /// What clients see of the state.
    #[must_use]
    pub fn status(&self) -> Status {
        self.facts().status()
    }
}

/// A job to be made.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Id.
    pub id: JobId,
    /// Organization.
    pub organization_id: OrganizationId,
    /// Who caused it; the prebuilds user's jobs queue last.
    pub initiator_id: UserId,
    /// What it does.
    pub kind: Type,
    /// `terraform` or `echo`.
    pub provisioner: String,
    /// The template's sources.
    pub file_id: FileId,
    /// Canonical tags.
    pub tags: TagSet,
    /// The version that is imported, tried out, or built.
    pub template_version_id: Option<TemplateVersionId>,
    /// The build, of build jobs.
    pub workspace_build_id: Option<BuildId>,
    /// Private input.
    pub input: Document,
    /// Trace propagation.
    pub trace_metadata: BTreeMap<String, String>,
}

macro_rules! job_columns {
    () => {
        "job.id, job.organization_id, job.initiator_id, job.type, job.provisioner, job.file_id, job.tag_set_id, \
         interned.tags, job.prebuild, job.template_version_id, job.workspace_build_id, job.input, \
         job.trace_metadata, job.created_us, job.updated_us, job.started_us, job.canceled_us, job.completed_us, \
         job.error, job.error_code, job.worker_id, job.session_nonce, job.attempt, job.logs_last_id, \
         job.logs_bytes, job.logs_overflowed"
    };
}
pub(crate) use job_columns;

statements! { "provisioner_jobs";
    INSERT = sql("insert into provisioner_jobs (id, organization_id, initiator_id, type, provisioner, storage_method,
        file_id, tag_set_id, prebuild, template_version_id, workspace_build_id, input, trace_metadata, created_us,
        updated_us, error, error_code, attempt, logs_last_id, logs_bytes, logs_overflowed)
        values ($1, $2, $3, $4, $5, 'file', $6, $7, $8, $9, $10, $11, $12, $13, $13, '', '', 0, 0, 0, false)");
    GET = sql(concat!("select ", job_columns!(), " from provisioner_jobs as job
        join tag_sets as interned on interned.id = job.tag_set_id where job.id = $1"));
    FIND_MANY = sql(concat!("select ", job_columns!(), " from provisioner_jobs as job
        join tag_sets as interned on interned.id = job.tag_set_id
        where job.id in (select value from json_each($1)) order by job.created_us, job.id"));
    /// Whether anything waits that the claim would take: the claim skips rows that another session is looking at.
    WAITING = sql("select exists (select 1 from json_each($3) as tags cross join json_each($2) as kind
        where exists (select 1 from provisioner_jobs as job
        where job.started_us is null and job.completed_us is null and job.canceled_us is null
        and job.organization_id = $1 and job.provisioner = kind.value
        and job.tag_set_id = cast(tags.value as bigint))) as found").class(Class::Claim);
    TOUCH = sql("update provisioner_jobs set updated_us = $3
        where id = $1 and worker_id = $2 and completed_us is null returning canceled_us").class(Class::Heartbeat);
    CANCEL = sql("update provisioner_jobs set canceled_us = $2,
        completed_us = case when worker_id is null then $2 else completed_us end
        where id = $1 and completed_us is null and canceled_us is null
        and (cast($3 as boolean) is null or ($3 and started_us is null) or (not $3 and started_us is not null))
        returning completed_us");
    FINISH = sql("update provisioner_jobs set completed_us = $3, updated_us = $3, error = $4, error_code = $5
        where id = $1 and worker_id = $2 and completed_us is null");
    FINISH_WITH_INPUT = sql("update provisioner_jobs set completed_us = $3, updated_us = $3, input = $4
        where id = $1 and worker_id = $2 and completed_us is null");
    FINISH_UNCLAIMED = sql("update provisioner_jobs set started_us = $2, completed_us = $2, updated_us = $2, error = $3
        where id = $1 and worker_id is null and completed_us is null and canceled_us is null");
    SET_NONCE = sql("update provisioner_jobs set session_nonce = $3, attempt = attempt + 1
        where id = $1 and worker_id = $2 and completed_us is null");
    SET_INPUT = sql("update provisioner_jobs set input = $2 where id = $1");
    PAGE_BY_ID = sql(concat!("select ", job_columns!(), " from provisioner_jobs as job
        join tag_sets as interned on interned.id = job.tag_set_id where job.id > $1 order by job.id limit $2"));
    LIST_OWNED = sql("select id from provisioner_jobs where worker_id = $1 and completed_us is null order by started_us");
}

/// Adds a waiting job. Announce it to the scheduler after the commit.
///
/// # Errors
/// [`Error::Reference`](crate::Error::Reference) when the file is missing.
pub async fn insert(tx: &mut Tx, job: &NewJob, now: Timestamp) -> Result<()> {
    let tag_set = tag_sets::intern(tx, &job.tags).await?;
    let row = values![
        job.id,
        job.organization_id,
        job.initiator_id,
        job.kind,
        job.provisioner,
        job.file_id,
        tag_set,
        job.initiator_id == UserId::PREBUILDS,
        job.template_version_id,
        job.workspace_build_id,
        job.input,
        job.trace_metadata,
        now,
    ];
    tx.execute(&INSERT, row).await.map(|_| ())
}

/// By id.
///
/// # Errors
/// Only when the database fails.
pub async fn find(tx: &mut Tx, id: JobId) -> Result<Option<Job>> {
    tx.fetch_opt(&GET, values![id]).await?.as_ref().map(Job::from_row).transpose()
}

/// By id.
///
/// # Errors
/// [`Error::NotFound`](crate::Error::NotFound).
pub async fn get(tx: &mut Tx, id: JobId) -> Result<Job> {
    Job::from_row(&tx.fetch_one(&GET, values![id]).await?)
}

/// Those of `ids` that exist, oldest first.
///
/// # Errors
/// Only when the database fails.
pub async fn find_many(tx: &mut Tx, ids: &[JobId]) -> Result<Vec<Job>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())]).await?.iter().map(Job::from_row).collect()
}

/// What a daemon can take.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Its organization.
    pub organization_id: OrganizationId,
    /// The types it serves.
    pub provisioners: &'a [String],
    /// Ids of the tag sets it satisfies.
    pub tag_sets: &'a [TagSetId],
    /// Its row.
    pub daemon: DaemonId,
    /// Its session, when it may resume jobs.
    pub session_nonce: Option<&'a str>,
}

/// A job that was just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The job.
    pub job: JobId,
    /// Whether another one waited that the same daemon could take.
    pub more: bool,
}

/// How often the claim is tried while rows that could be taken are locked by others.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Takes the oldest matching job, people's before prebuilds', or none when nothing waits. Give it a
/// [`Store::single`](crate::Store::single), so that nothing stays locked while the job's payload is made.
///
/// # Errors
/// Only when the database fails.
pub async fn claim(tx: &mut Tx, claim: &Claim<'_>, now: Timestamp) -> Result<Option<Claimed>> {
    if claim.tag_sets.is_empty() || claim.provisioners.is_empty() {
        return Ok(None);
    }
    let mut wanted = values![claim.organization_id];
    wanted.push(list_value(claim.provisioners.iter().cloned()));
    wanted.push(list_value(claim.tag_sets.iter().copied()));
    for _ in 0..ATTEMPTS {
        let mut parameters = wanted.clone();
        parameters.extend(values![claim.daemon, now, claim.session_nonce.map(str::to_owned)]);
        if let Some(row) = tx.fetch_opt(&CLAIM, parameters).await? {
            return Ok(Some(Claimed { job: row.get("id")?, more: row.get("more")? }));
        }
        if !tx.is_postgres() || !tx.fetch_one(&WAITING, wanted.clone()).await?.get("found")? {
            return Ok(None);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(None)
}

/// A sign of life from the owner; says whether a cancel was asked for.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the daemon does not own the job or it has ended.
pub async fn update_alive(tx: &mut Tx, id: JobId, owner: DaemonId, now: Timestamp) -> Result<bool> {
    let row = tx.fetch_opt(&TOUCH, values![id, owner, now]).await?;
    let canceled_at: Option<Timestamp> = row.ok_or(STALE)?.get("canceled_us")?;
    Ok(canceled_at.is_some())
}

const STALE: Error = Error::Stale { table: "provisioner_jobs" };

/// In which state a job must be to be canceled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nobody has taken it.
    Pending,
    /// A daemon has it.
    Running,
}

/// Asks to stop a job. A job that no daemon has taken ends at once; the answer says whether it did.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it has ended, was canceled before, or is not as expected.
pub async fn cancel(tx: &mut Tx, id: JobId, expected: Option<Expected>, now: Timestamp) -> Result<bool> {
    let pending = expected.map(|expected| expected == Expected::Pending);
    let row = tx.fetch_opt(&CANCEL, values![id, now, pending]).await?;
    let completed_at: Option<Timestamp> = row.ok_or(STALE)?.get("completed_us")?;
    Ok(completed_at.is_some())
}

/// Ends a job well. Write its results in the same transaction.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the daemon does not own the job or it has ended.
pub async fn complete(tx: &mut Tx, id: JobId, owner: DaemonId, now: Timestamp) -> Result<()> {
    fail(tx, id, owner, "", "", now).await
}

/// Ends a job well and replaces its private input, where the accepted result is remembered so that a repeat of it is
/// recognised.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the daemon does not own the job or it has ended.
pub async fn complete_with_input(
    tx: &mut Tx,
    id: JobId,
    owner: DaemonId,
    input: &Document,
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&FINISH_WITH_INPUT, values![id, owner, now, *input]).await
}

/// Ends a job with an error; an empty text counts as success, as it does on the wire (wire-protocol 5.6).
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the daemon does not own the job or it has ended.
pub async fn fail(
    tx: &mut Tx,
    id: JobId,
    owner: DaemonId,
    error: &str,
    error_code: &str,
    now: Timestamp,
) -> Result<()> {
    let row = values![id, owner, now, error.to_owned(), error_code.to_owned()];
    tx.change_one(&FINISH, row).await
}

/// Ends a waiting job without a daemon (orphan delete, scheduling-and-auth BLD-3).
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when a daemon has it or it has ended.
pub async fn finish_unclaimed(tx: &mut Tx, id: JobId, error: &str, now: Timestamp) -> Result<()> {
    tx.change_one(&FINISH_UNCLAIMED, values![id, now, error.to_owned()]).await
}

/// Fences a job for a new session of its owner.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the daemon does not own the job or it has ended.
pub async fn update_session(tx: &mut Tx, id: JobId, owner: DaemonId, nonce: &str) -> Result<()> {
    tx.change_one(&SET_NONCE, values![id, owner, nonce.to_owned()]).await
}

/// Replaces the private input, for example to forget secrets once they are not needed any more.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the job is gone.
pub async fn update_input(tx: &mut Tx, id: JobId, input: &Document) -> Result<()> {
    tx.change_one(&SET_INPUT, values![id, *input]).await
}

/// The open jobs of a daemon.
///
/// # Errors
/// Only when the database fails.
pub async fn list_owned(tx: &mut Tx, owner: DaemonId) -> Result<Vec<JobId>> {
    tx.fetch(&LIST_OWNED, values![owner]).await?.iter().map(|row| row.get("id")).collect()
}
