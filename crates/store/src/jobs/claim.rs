//! Claims a job in the fair order of `coder_domain::queue`, atomically against cancels and other claims.

use std::time::Duration;

use coder_domain::ids::{DaemonId, JobId, OrganizationId, UserId};
use coder_domain::key::Sha256Digest;
use jiff::Timestamp;

use super::queue_tables::{self, QueueEntry, standing_columns, turn_now, turns};
use crate::engine::{Failure, Purpose, Tx, Value, list as list_value, sql, statements, values};
use crate::tag_sets::TagSetId;
use crate::{Error, Result};

/// A daemon's request for a job.
#[derive(Clone, Debug)]
pub struct ClaimRequest<'a> {
    pub organization_id: OrganizationId,
    /// The types it serves.
    pub provisioners: &'a [String],
    /// The ids of the tag sets that it satisfies.
    pub tag_sets: &'a [TagSetId],
    /// The id of its row.
    pub daemon: DaemonId,
    /// The hash of its session if it may resume jobs. A job of a session can only be held with its epoch.
    pub session: Option<Sha256Digest>,
}

/// A claimed job. Its epoch is [`Job::attempt`](super::Job::attempt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedJob {
    pub job: JobId,
    /// Whether another job waits that the same daemon can take.
    pub more: bool,
}

/// The condition for a sub-queue (a row of `queue_lines`) that the daemon can serve: $1 organization, $2 provisioner
/// types, $3 tag set ids.
macro_rules! wanted {
    () => {
        "line.organization_id = $1 and line.waiting > 0
        and line.tag_set_id in (select cast(value as bigint) from json_each($3))
        and line.provisioner in (select value from json_each($2))"
    };
}

statements! { "provisioner_jobs";
    /// Finds the initiator with the least turn: one index lookup for each requested tag set. The cross join prevents
    /// SQLite from reading all sub-queues of the organization. Always returns one row, which has the newest tag set.
    NEXT = sql(concat!("select turn.initiator_id, turn.automatic, newest.id as newest
        from (select coalesce(max(id), 0) as id from tag_sets) as newest left join (
            select line.initiator_id, line.automatic from (
                select min(head.turn) as turn from (
                    select (select min(other.turn) from queue_lines as other
                        where other.organization_id = $1 and other.tag_set_id = cast(tags.value as bigint)
                        and other.provisioner = kind.value and other.waiting > 0) as turn
                    from json_each($3) as tags cross join json_each($2) as kind) as head) as least
            cross join queue_lines as line where line.turn = least.turn and ", wanted!(), "
            order by line.initiator_id limit 1) as turn on true")).purpose(Purpose::Claim);
    /// Finds that initiator's oldest job in the requested sub-queues by one index lookup for each, and whether another
    /// job waits. As one statement with the one above, Postgres would read all sub-queues of the initiator.
    PICK = sql(concat!("select ", standing_columns!("first."), ", coalesce((select sum(heads.waiting) from (
                select (select cast(sum(other.waiting) as bigint) from queue_lines as other
                    where other.organization_id = $1 and other.tag_set_id = cast(tags.value as bigint)
                    and other.provisioner = kind.value and other.waiting > 0) as waiting
                from json_each($3) as tags cross join json_each($2) as kind) as heads), 0) > 1 as more
        from provisioner_jobs as first where first.id in (
            select (select job.id from provisioner_jobs as job
                where job.started_us is null and job.completed_us is null and job.canceled_us is null
                and job.organization_id = line.organization_id and job.tag_set_id = line.tag_set_id
                and job.provisioner = line.provisioner and job.automatic = line.automatic
                and job.initiator_id = line.initiator_id order by job.created_us, job.id limit 1)
            from queue_lines as line where ", wanted!(), " and line.initiator_id = $4 and line.automatic = $5)
        order by first.created_us, first.id limit 1")).purpose(Purpose::Claim);
    TAKE = sql("update provisioner_jobs set started_us = $2, updated_us = $2, worker_id = $3, session_hash = $4,
        attempt = attempt + 1
        where id = $1 and started_us is null and completed_us is null and canceled_us is null").purpose(Purpose::Claim);
    /// Moves the initiator behind all others, and removes one job from its sub-queue.
    MOVE = sql("update queue_lines set turn = (
            select case when max(other.turn) >= $8 then max(other.turn) + 1 else $8 end from queue_lines as other
            where other.organization_id = $1 and other.turn >= $9 and other.turn < $10),
        waiting = waiting - case when provisioner = $6 and tag_set_id = $7 then 1 else 0 end
        where organization_id = $1 and waiting > 0 and initiator_id = $4 and automatic = $5
        and tag_set_id in (select cast(value as bigint) from json_each($3))
        and provisioner in (select value from json_each($2))").purpose(Purpose::Claim);
}

/// How often a claim is tried again when other claims take the chosen job.
const CLAIM_ATTEMPTS: u32 = 200;
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// The outcome of a claim by a caller that knows the tag sets up to some id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// A job was claimed.
    Job(ClaimedJob),
    /// No matching job waits.
    Nothing,
    /// There are newer tag sets. No job was claimed.
    NewerTagSets,
}

/// Claims the matching job whose turn it is. Returns none when no matching job waits. Pass a
/// [`Store::single`](crate::Store::single), so that nothing stays locked while the job's message is made.
pub async fn claim(tx: &mut Tx, claim: &ClaimRequest<'_>, now: Timestamp) -> Result<Option<ClaimedJob>> {
    match try_claim(tx, claim, TagSetId::MAX, now).await? {
        ClaimOutcome::Job(claimed) => Ok(Some(claimed)),
        ClaimOutcome::Nothing | ClaimOutcome::NewerTagSets => Ok(None),
    }
}

/// Like [`claim`], for a caller that knows the tag sets up to `newest`. One query; a second query and one change when a
/// job waits.
pub async fn try_claim(
    tx: &mut Tx,
    claim: &ClaimRequest<'_>,
    newest: TagSetId,
    now: Timestamp,
) -> Result<ClaimOutcome> {
    let mut wanted = values![claim.organization_id];
    wanted.push(list_value(claim.provisioners.iter().cloned()));
    wanted.push(list_value(claim.tag_sets.iter().copied()));
    for _ in 0..CLAIM_ATTEMPTS {
        let row = tx.fetch_one(&NEXT, wanted.clone()).await?;
        if row.get::<TagSetId>("newest")? > newest {
            return Ok(ClaimOutcome::NewerTagSets);
        }
        let Some(initiator) = row.get::<Option<UserId>>("initiator_id")? else {
            return Ok(ClaimOutcome::Nothing);
        };
        let mut parameters = wanted.clone();
        parameters.extend(values![initiator, row.get::<bool>("automatic")?]);
        // None when another claim took the job.
        let Some(row) = tx.fetch_opt(&PICK, parameters).await? else { continue };
        let (job, more) = (QueueEntry::from_row(&row)?, row.get("more")?);
        let entered = tx.enter().await?;
        let outcome = take(tx, claim, &wanted, &job, now).await;
        match tx.exit(entered, outcome).await {
            Ok(()) => {
                // The job is claimed, so a failure from here on must not return an error.
                if let Err(error) = queue_tables::clean_up(tx, job.id, now).await {
                    tracing::warn!(job_id = %job.id, %error, "empty rows of the queue could not be removed");
                }
                return Ok(ClaimOutcome::Job(ClaimedJob { job: job.id, more }));
            }
            // Another claim took the job, so it may be another initiator's turn now.
            Err(Failure { error: Error::Stale { .. }, .. }) if entered => {}
            Err(Failure { conflicted: true, .. }) => tokio::time::sleep(RETRY_DELAY).await,
            Err(failure) => return Err(failure.error),
        }
    }
    Ok(ClaimOutcome::Nothing)
}

/// Gives the job its owner, removes it from its sub-queue, and moves its initiator behind all others.
async fn take(
    tx: &mut Tx,
    claim: &ClaimRequest<'_>,
    wanted: &[Value],
    job: &QueueEntry,
    now: Timestamp,
) -> Result<()> {
    tx.execute_pipelined(&TAKE, values![job.id, now, claim.daemon, claim.session], true).await?;
    let (from, to) = turns(job.automatic);
    let mut parameters = wanted.to_vec();
    parameters.extend(values![job.initiator_id, job.automatic, job.provisioner, job.tag_set_id]);
    parameters.extend(values![turn_now(job.automatic, now), from, to]);
    queue_tables::count(tx, job, -1);
    tx.defer(&MOVE, parameters);
    Ok(())
}
