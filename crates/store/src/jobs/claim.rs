//! Handing out a job: the fair order of `coder_domain::queue`, atomic against cancels and other claims.

use std::time::Duration;

use coder_domain::ids::{DaemonId, JobId, OrganizationId, UserId};
use coder_domain::key::Sha256Digest;
use jiff::Timestamp;

use super::queue_tables::{self, QueueEntry, standing_columns, turn_now, turns};
use crate::engine::{Failure, Purpose, Tx, Value, list as list_value, sql, statements, values};
use crate::tag_sets::TagSetId;
use crate::{Error, Result};

/// What a daemon can take.
#[derive(Clone, Debug)]
pub struct ClaimRequest<'a> {
    /// Its organization.
    pub organization_id: OrganizationId,
    /// The types it serves.
    pub provisioners: &'a [String],
    /// Ids of the tag sets it satisfies.
    pub tag_sets: &'a [TagSetId],
    /// Its row.
    pub daemon: DaemonId,
    /// Hash of its session, when it may resume jobs; such a job can only be held with its epoch.
    pub session: Option<Sha256Digest>,
}

/// A job that was just taken. Its epoch is [`Job::attempt`](super::Job::attempt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedJob {
    /// The job.
    pub job: JobId,
    /// Whether another one waited that the same daemon could take.
    pub more: bool,
}

/// The condition that a line is one of those wanted: $1 organization, $2 provisioner types, $3 tag set ids.
macro_rules! wanted {
    () => {
        "line.organization_id = $1 and line.waiting > 0
        and line.tag_set_id in (select cast(value as bigint) from json_each($3))
        and line.provisioner in (select value from json_each($2))"
    };
}

statements! { "provisioner_jobs";
    /// Whose turn it is: one look at the head of each wanted set, and one for the line that has the least turn. The
    /// cross join keeps SQLite from reading all lines of the organization for the latter. A row comes in any case, with
    /// the newest tag set.
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
    /// That initiator's oldest job in the wanted lines, by one look at the head of each; and whether another job waits.
    /// Not one statement with the one above: Postgres would read all lines of the initiator.
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
    /// The initiator goes to the back for this daemon; one job leaves its line.
    MOVE = sql("update queue_lines set turn = (
            select case when max(other.turn) >= $8 then max(other.turn) + 1 else $8 end from queue_lines as other
            where other.organization_id = $1 and other.turn >= $9 and other.turn < $10),
        waiting = waiting - case when provisioner = $6 and tag_set_id = $7 then 1 else 0 end
        where organization_id = $1 and waiting > 0 and initiator_id = $4 and automatic = $5
        and tag_set_id in (select cast(value as bigint) from json_each($3))
        and provisioner in (select value from json_each($2))").purpose(Purpose::Claim);
}

/// How often the claim is tried while others take what it chose.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// What came of a claim that knows the tag sets up to some id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// A job, taken.
    Job(ClaimedJob),
    /// Nothing that matches waits.
    Nothing,
    /// There are newer tag sets; nothing was taken.
    NewerTagSets,
}

/// Takes the matching job whose turn it is, or none when nothing waits. Give it a
/// [`Store::single`](crate::Store::single), so that nothing stays locked while the job's payload is made.
///
/// # Errors
/// Only when the database fails.
pub async fn claim(tx: &mut Tx, claim: &ClaimRequest<'_>, now: Timestamp) -> Result<Option<ClaimedJob>> {
    match try_claim(tx, claim, TagSetId::MAX, now).await? {
        ClaimOutcome::Job(claimed) => Ok(Some(claimed)),
        ClaimOutcome::Nothing | ClaimOutcome::NewerTagSets => Ok(None),
    }
}

/// As [`claim`], for somebody who knows the tag sets up to `newest`: one question, and one more and one change when a job
/// waits.
///
/// # Errors
/// Only when the database fails.
pub async fn try_claim(
    tx: &mut Tx,
    claim: &ClaimRequest<'_>,
    newest: TagSetId,
    now: Timestamp,
) -> Result<ClaimOutcome> {
    let mut wanted = values![claim.organization_id];
    wanted.push(list_value(claim.provisioners.iter().cloned()));
    wanted.push(list_value(claim.tag_sets.iter().copied()));
    for _ in 0..ATTEMPTS {
        let row = tx.fetch_one(&NEXT, wanted.clone()).await?;
        if row.get::<TagSetId>("newest")? > newest {
            return Ok(ClaimOutcome::NewerTagSets);
        }
        let Some(initiator) = row.get::<Option<UserId>>("initiator_id")? else {
            return Ok(ClaimOutcome::Nothing);
        };
        let mut parameters = wanted.clone();
        parameters.extend(values![initiator, row.get::<bool>("automatic")?]);
        // None when somebody else was faster.
        let Some(row) = tx.fetch_opt(&PICK, parameters).await? else { continue };
        let (job, more) = (QueueEntry::from_row(&row)?, row.get("more")?);
        let entered = tx.enter().await?;
        let outcome = take(tx, claim, &wanted, &job, now).await;
        match tx.exit(entered, outcome).await {
            Ok(()) => {
                // The job is taken: whatever fails now must not lose it.
                if let Err(error) = queue_tables::tidy(tx, job.id, now).await {
                    tracing::warn!(job = %job.id, %error, "counts of the queue could not be tidied up");
                }
                return Ok(ClaimOutcome::Job(ClaimedJob { job: job.id, more }));
            }
            // Another claim was faster, so it is another initiator's turn now.
            Err(Failure { error: Error::Stale { .. }, .. }) if entered => {}
            Err(Failure { conflicted: true, .. }) => tokio::time::sleep(PAUSE).await,
            Err(failure) => return Err(failure.error),
        }
    }
    Ok(ClaimOutcome::Nothing)
}

/// The job gets its owner, leaves its line, and its initiator goes to the back.
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
