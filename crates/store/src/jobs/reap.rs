//! Finds jobs that may not end by themselves: hung, lost, or waiting for a daemon that does not exist
//! (scheduling-and-auth 3.6). `coder_domain::job::lifecycle` decides about them; [`give_up`](super::give_up) ends them.

use coder_domain::ids::{DaemonId, JobId, OrganizationId};
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};
use crate::tag_sets::TagSetId;

record! {
    /// A held job without a recent heartbeat.
    pub struct StaleJob {
        pub id: JobId,
        /// The daemon that holds it.
        pub worker_id: DaemonId,
        /// The hash of the session that holds it; none for official daemons.
        pub session_hash: Option<Sha256Digest>,
        /// Its last heartbeat.
        pub updated_at: Timestamp = "updated_us",
        /// When its holder's connection was lost; none while it is connected.
        pub lost_at: Option<Timestamp> = "lost_us",
        /// When it was canceled.
        pub canceled_at: Option<Timestamp> = "canceled_us",
    }
}

record! {
    /// Waiting jobs with equal requirements.
    pub struct WaitingGroup {
        /// Their organization.
        pub organization_id: OrganizationId,
        /// The type they need.
        pub provisioner: String,
        /// Their tags.
        pub tag_set_id: TagSetId,
        /// Their tags.
        pub tags: TagSet,
        /// The number of waiting jobs.
        pub waiting: i64,
        /// When the oldest of them was created.
        pub oldest_at: Timestamp = "oldest_us",
    }
}

/// Where a page of stale jobs begins: after this one, or at the start.
pub type Cursor = Option<(Timestamp, JobId)>;

statements! { "provisioner_jobs";
    /// In random order, so that one row that fails does not block the others.
    CANDIDATES = sql("select id from (
            select id from provisioner_jobs where started_us is not null and completed_us is null and updated_us < $1
            union all select id from provisioner_jobs where started_us is null and completed_us is null
                and canceled_us is null and updated_us < $2) as found
        order by random() limit $3");
    SILENT = sql("select id, worker_id, session_hash, updated_us, lost_us, canceled_us from provisioner_jobs
        where started_us is not null and completed_us is null and updated_us < $1 and (updated_us, id) > ($2, $3)
        order by updated_us, id limit $4");
    GROUPS = sql("select counted.organization_id, counted.provisioner, counted.tag_set_id, interned.tags,
        counted.waiting, counted.oldest_us from (
            select line.organization_id, line.provisioner, line.tag_set_id, cast(sum(line.waiting) as bigint) as waiting,
                min((select min(job.created_us) from provisioner_jobs as job
                    where job.started_us is null and job.completed_us is null and job.canceled_us is null
                    and job.organization_id = line.organization_id and job.tag_set_id = line.tag_set_id
                    and job.provisioner = line.provisioner and job.automatic = line.automatic
                    and job.initiator_id = line.initiator_id)) as oldest_us
            from queue_lines as line where line.waiting > 0
            group by line.organization_id, line.provisioner, line.tag_set_id) as counted
        join tag_sets as interned on interned.id = counted.tag_set_id
        where counted.oldest_us < $1 order by counted.oldest_us, counted.tag_set_id");
}

/// Open jobs that are held with the last heartbeat before `running_before`, or waiting since before `pending_before`.
/// [`list_stale`] and [`list_waiting`] return more details.
pub async fn list_candidates(
    tx: &mut Tx,
    running_before: Timestamp,
    pending_before: Timestamp,
    limit: i64,
) -> Result<Vec<JobId>> {
    let rows = tx.fetch(&CANDIDATES, values![running_before, pending_before, limit]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// Held jobs whose last heartbeat is older than `before`, oldest heartbeat first, in pages.
pub async fn list_stale(tx: &mut Tx, before: Timestamp, after: Cursor, limit: i64) -> Result<Vec<StaleJob>> {
    let (at, id) = after.unwrap_or((Timestamp::MIN, JobId::NIL));
    let rows = tx.fetch(&SILENT, values![before, at, id, limit]).await?;
    rows.iter().map(StaleJob::from_row).collect()
}

/// The groups of waiting jobs with equal requirements whose oldest job has waited since before `before`, longest
/// waiting first. [`daemon_facts::list`](crate::daemons::facts::list) tells when a daemon that can run them was last
/// seen.
pub async fn list_waiting(tx: &mut Tx, before: Timestamp) -> Result<Vec<WaitingGroup>> {
    tx.fetch(&GROUPS, values![before]).await?.iter().map(WaitingGroup::from_row).collect()
}
