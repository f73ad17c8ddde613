//! The row of a job, and its insertion.

use std::collections::BTreeMap;

use coder_domain::ids::{BuildId, DaemonId, FileId, JobId, OrganizationId, TemplateVersionId, UserId};
use coder_domain::job::lifecycle::{Connection, Lifecycle};
use coder_domain::job::{Record, Status, Type};
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use jiff::Timestamp;

use super::queue_tables::{self, QueueEntry};
use crate::engine::{Column as _, Document, Tx, Value, list as list_value, record, sql, statements, values};
use crate::tag_sets::{self, TagSetId};
use crate::{Error, Result};

record! {
    pub struct Job {
        pub id: JobId,
        pub organization_id: OrganizationId,
        /// The initiator.
        pub initiator_id: UserId,
        /// The type of the job.
        pub kind: Type = "type",
        /// `terraform` or `echo`.
        pub provisioner: String,
        /// The archive with the template's source.
        pub file_id: FileId,
        /// The id of the interned tags.
        pub tag_set_id: TagSetId,
        pub tags: TagSet,
        /// Whether the prebuilds user initiated it. The official queue order considers only this.
        pub prebuild: bool,
        /// Whether it is served after the jobs of people ([`coder_domain::queue::is_automatic`]).
        pub automatic: bool,
        /// The version that is imported, dry-run or built.
        pub template_version_id: Option<TemplateVersionId>,
        /// Set for build jobs.
        pub workspace_build_id: Option<BuildId>,
        /// Private input; may hold secrets.
        pub input: Document,
        /// Trace propagation.
        pub trace_metadata: BTreeMap<String, String>,
        pub created_at: Timestamp = "created_us",
        /// The last heartbeat.
        pub updated_at: Timestamp = "updated_us",
        /// When a daemon acquired it.
        pub started_at: Option<Timestamp> = "started_us",
        /// When it was canceled.
        pub canceled_at: Option<Timestamp> = "canceled_us",
        /// When it ended.
        pub completed_at: Option<Timestamp> = "completed_us",
        /// Error text, possibly empty.
        pub error: String,
        /// Error code, possibly empty.
        pub error_code: String,
        /// The daemon that holds or held it.
        pub worker_id: Option<DaemonId>,
        /// The hash of the session that acquired it; none for official daemons.
        pub session_hash: Option<Sha256Digest>,
        /// The hash of the newest token of its holder.
        pub token_hash: Option<Sha256Digest>,
        /// The epoch of its holder. Grows with each acquisition and each resumption.
        pub attempt: i64,
        /// When its holder's connection was lost; none while it is connected.
        pub lost_at: Option<Timestamp> = "lost_us",
        /// The number of the last stored line among those that its daemon numbers.
        pub logs_sequence: i64,
        /// The id of the last log line; 0 when there is none.
        pub logs_last_id: i64,
        /// The bytes of log output.
        pub logs_bytes: i64,
        /// Whether log lines were dropped at the cap.
        pub logs_overflowed: bool,
        /// `terraform` or `opentofu`, as its daemon reported; empty when unknown.
        pub program_product: String,
        pub program_version: String,
    }
}

impl Job {
    /// The fields from which its status is derived.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            started_at: self.started_at,
            canceled_at: self.canceled_at,
            completed_at: self.completed_at,
            error: self.error.clone(),
            worker: self.worker_id,
        }
    }

    /// The status that clients see.
    #[must_use]
    pub fn status(&self) -> Status {
        self.record().status()
    }

    /// The state that decides which events are allowed.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        let epoch = u64::try_from(self.attempt).unwrap_or_default();
        let mut state = self.record().lifecycle(self.session_hash, epoch, self.updated_at);
        if let (Lifecycle::Held { connection, .. }, Some(at)) = (&mut state, self.lost_at) {
            *connection = Connection::Lost(at);
        }
        state
    }
}

/// A job to be inserted.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub id: JobId,
    pub organization_id: OrganizationId,
    /// The initiator.
    pub initiator_id: UserId,
    /// Whether it is served after the jobs of people ([`coder_domain::queue::is_automatic`]). This is always so for
    /// jobs of the prebuilds user.
    pub automatic: bool,
    /// The type of the job.
    pub kind: Type,
    /// `terraform` or `echo`.
    pub provisioner: String,
    /// The archive with the template's source.
    pub file_id: FileId,
    /// Canonical tags.
    pub tags: TagSet,
    /// The version that is imported, dry-run or built.
    pub template_version_id: Option<TemplateVersionId>,
    /// Set for build jobs.
    pub workspace_build_id: Option<BuildId>,
    /// Private input.
    pub input: Document,
    /// Trace propagation.
    pub trace_metadata: BTreeMap<String, String>,
}

macro_rules! job_columns {
    () => {
        "job.id, job.organization_id, job.initiator_id, job.type, job.provisioner, job.file_id, job.tag_set_id, \
         interned.tags, job.prebuild, job.automatic, job.template_version_id, job.workspace_build_id, job.input, \
         job.trace_metadata, job.created_us, job.updated_us, job.started_us, job.canceled_us, job.completed_us, \
         job.error, job.error_code, job.worker_id, job.session_hash, job.token_hash, job.attempt, job.lost_us, \
         job.logs_sequence, job.logs_last_id, job.logs_bytes, job.logs_overflowed, \
         job.program_product, job.program_version"
    };
}
pub(crate) use job_columns;

statements! { "provisioner_jobs";
    INSERT = sql("insert into provisioner_jobs (id, organization_id, initiator_id, type, provisioner, storage_method,
        file_id, tag_set_id, prebuild, template_version_id, workspace_build_id, input, trace_metadata, created_us,
        updated_us, automatic, error, error_code, attempt, logs_last_id, logs_bytes, logs_overflowed)
        values ($1, $2, $3, $4, $5, 'file', $6, $7, $8, $9, $10, $11, $12, $13, $13, $14, '', '', 0, 0, 0, false)");
    GET = sql(concat!("select ", job_columns!(), " from provisioner_jobs as job
        join tag_sets as interned on interned.id = job.tag_set_id where job.id = $1"));
    FIND_MANY = sql(concat!("select ", job_columns!(), " from provisioner_jobs as job
        join tag_sets as interned on interned.id = job.tag_set_id
        where job.id in (select value from json_each($1)) order by job.created_us, job.id"));
    SET_INPUT = sql("update provisioner_jobs set input = $2 where id = $1");
    PAGE_BY_ID = sql(concat!("select ", job_columns!(), " from provisioner_jobs as job
        join tag_sets as interned on interned.id = job.tag_set_id where job.id > $1 order by job.id limit $2"));
}

/// Adds a waiting job. Notify the scheduler after the commit.
///
/// # Errors
/// [`Error::Reference`](crate::Error::Reference) when the file is missing.
pub async fn insert(tx: &mut Tx, job: &NewJob, now: Timestamp) -> Result<()> {
    insert_with_tag_set(tx, job, None, now).await
}

/// Like [`insert`], for a caller that knows the id of the job's tag set.
///
/// # Errors
/// Those of [`insert`].
pub async fn insert_with_tag_set(
    tx: &mut Tx,
    job: &NewJob,
    tag_set: Option<TagSetId>,
    now: Timestamp,
) -> Result<()> {
    let tag_set = match tag_set {
        Some(known) => known,
        None => tag_sets::intern(tx, &job.tags).await?,
    };
    let prebuild = job.initiator_id == UserId::PREBUILDS;
    let entry = QueueEntry {
        id: job.id,
        organization_id: job.organization_id,
        initiator_id: job.initiator_id,
        automatic: job.automatic || prebuild,
        provisioner: job.provisioner.clone(),
        tag_set_id: tag_set,
        prebuild,
        created_at: now,
    };
    let mut row = values![
        job.id,
        job.organization_id,
        job.initiator_id,
        job.kind,
        job.provisioner,
        job.file_id,
        tag_set,
        prebuild,
        job.template_version_id,
        job.workspace_build_id,
    ];
    row.push(sealed_input(tx, job.id, &job.input));
    row.extend(values![job.trace_metadata, now, entry.automatic]);
    let entered = tx.enter().await?;
    let outcome = tx.execute_pipelined(&INSERT, row, false).await;
    if outcome.is_ok() {
        queue_tables::enqueue(tx, &entry, now);
    }
    Ok(tx.exit(entered, outcome).await?)
}

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

/// The existing jobs of `ids`, oldest first.
pub async fn find_many(tx: &mut Tx, ids: &[JobId]) -> Result<Vec<Job>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())]).await?.iter().map(Job::from_row).collect()
}

pub(super) const STALE: Error = Error::Stale { table: "provisioner_jobs" };

/// Replaces the private input, for example to remove secrets that are no longer needed.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the job does not exist.
pub async fn update_input(tx: &mut Tx, id: JobId, input: &Document) -> Result<()> {
    let input = sealed_input(tx, id, input);
    tx.change_one(&SET_INPUT, vec![id.to_value(), input]).await
}

/// The private input as it is stored.
pub(super) fn sealed_input(tx: &Tx, id: JobId, input: &Document) -> Value {
    tx.sealed("provisioner_jobs", "input", &id.to_string(), input.to_value())
}
