//! Handing out a job: the fair order of `coder_domain::queue`, atomic against cancels and other claims.

use std::time::Duration;

use coder_domain::ids::{DaemonId, JobId, OrganizationId, UserId};
use coder_domain::key::Hashed;
use jiff::Timestamp;

use super::lines::{self, Standing, standing_columns, turn_now, turns};
use crate::Result;
use crate::engine::{Class, Tx, Value, list as list_value, sql, statements, values};
use crate::tag_sets::TagSetId;

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
    /// Hash of its session, when it may resume jobs; such a job can only be held with its epoch.
    pub session: Option<Hashed>,
}

/// A job that was just taken. Its epoch is [`Job::attempt`](super::Job::attempt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
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
    /// cross join keeps SQLite from reading all lines of the organization for the latter.
    NEXT = sql(concat!("select line.initiator_id, line.automatic from (
            select min(head.turn) as turn from (
                select (select min(other.turn) from queue_lines as other
                    where other.organization_id = $1 and other.tag_set_id = cast(tags.value as bigint)
                    and other.provisioner = kind.value and other.waiting > 0) as turn
                from json_each($3) as tags cross join json_each($2) as kind) as head) as least
        cross join queue_lines as line where line.turn = least.turn and ", wanted!(), "
        order by line.initiator_id limit 1")).class(Class::Claim);
    /// That initiator's oldest job in the wanted lines; one look at the head of each.
    TAKE = sql(concat!("update provisioner_jobs set started_us = $6, updated_us = $6, worker_id = $7, session_hash = $8,
        attempt = attempt + 1
        where started_us is null and completed_us is null and canceled_us is null and id = (
            select head.id from provisioner_jobs as head where head.id in (
                select (select job.id from provisioner_jobs as job
                    where job.started_us is null and job.completed_us is null and job.canceled_us is null
                    and job.organization_id = line.organization_id and job.tag_set_id = line.tag_set_id
                    and job.provisioner = line.provisioner and job.automatic = line.automatic
                    and job.initiator_id = line.initiator_id order by job.created_us, job.id limit 1)
                from queue_lines as line where ", wanted!(), " and line.initiator_id = $4 and line.automatic = $5
            ) order by head.created_us, head.id limit 1)
        returning ", standing_columns!())).class(Class::Claim);
    /// The initiator goes to the back for this daemon; one job leaves its line.
    MOVE = sql("update queue_lines set turn = (
            select case when max(other.turn) >= $8 then max(other.turn) + 1 else $8 end from queue_lines as other
            where other.organization_id = $1 and other.turn >= $9 and other.turn < $10),
        waiting = waiting - case when provisioner = $6 and tag_set_id = $7 then 1 else 0 end
        where organization_id = $1 and waiting > 0 and initiator_id = $4 and automatic = $5
        and tag_set_id in (select cast(value as bigint) from json_each($3))
        and provisioner in (select value from json_each($2))").class(Class::Claim);
    MORE = sql("select exists (select 1 from json_each($3) as tags cross join json_each($2) as kind
        where exists (select 1 from queue_lines as line
        where line.organization_id = $1 and line.tag_set_id = cast(tags.value as bigint)
        and line.provisioner = kind.value and line.waiting > 0)) as found").class(Class::Claim);
}

/// How often the claim is tried while others take what it chose.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// Takes the matching job whose turn it is, or none when nothing waits. Give it a
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
        let Some(turn) = tx.fetch_opt(&NEXT, wanted.clone()).await? else { return Ok(None) };
        let next = Next { initiator: turn.get("initiator_id")?, automatic: turn.get("automatic")? };
        let entered = tx.enter().await?;
        let outcome = take(tx, claim, &wanted, next, now).await;
        match tx.exit(entered, outcome).await {
            Ok(Some(job)) => {
                // The job is taken: whatever fails now must not lose it. Asking once too often harms nobody.
                let more = match after(tx, job, wanted, now).await {
                    Ok(more) => more,
                    Err(error) => {
                        tracing::warn!(%job, %error, "whether more jobs wait cannot be seen now");
                        true
                    }
                };
                return Ok(Some(Claimed { job, more }));
            }
            // Somebody else was faster: it is another one's turn now.
            Ok(None) => {}
            Err(error) => {
                if !entered || !tx.take_conflict() {
                    return Err(error);
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(None)
}

/// Tidies up, and says whether another job waits that the same daemon could take.
async fn after(tx: &mut Tx, job: JobId, wanted: Vec<Value>, now: Timestamp) -> Result<bool> {
    lines::tidy(tx, job, now).await?;
    tx.fetch_one(&MORE, wanted).await?.get("found")
}

#[derive(Clone, Copy)]
struct Next {
    initiator: UserId,
    automatic: bool,
}

async fn take(
    tx: &mut Tx,
    claim: &Claim<'_>,
    wanted: &[Value],
    next: Next,
    now: Timestamp,
) -> Result<Option<JobId>> {
    let mut parameters = wanted.to_vec();
    parameters.extend(values![next.initiator, next.automatic, now, claim.daemon, claim.session]);
    let Some(row) = tx.fetch_opt(&TAKE, parameters).await? else { return Ok(None) };
    let job = Standing::from_row(&row)?;
    let (from, to) = turns(next.automatic);
    let mut parameters = wanted.to_vec();
    parameters.extend(values![next.initiator, next.automatic, job.provisioner, job.tag_set_id]);
    parameters.extend(values![turn_now(next.automatic, now), from, to]);
    lines::count(tx, &job, -1);
    tx.defer(&MOVE, parameters);
    Ok(Some(job.id))
}
