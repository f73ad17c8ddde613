//! Which jobs wait, twice over: as lines of the fair queue (`coder_domain::queue`) and as counts by age, for ranks.
//! Whoever makes a job wait, or ends its waiting, says so here in the same transaction. These rows are everybody's, so
//! they are written last: first the counts, then the line, always in this order.

use coder_domain::ids::{JobId, OrganizationId, UserId};
use jiff::Timestamp;

use crate::engine::{Tx, record, sql, statements, values};
use crate::tag_sets::TagSetId;
use crate::{Error, Result};

/// Turns of automatic lines begin here, those of people's lines end here.
pub(crate) const AUTOMATIC: i64 = 1 << 62;

/// Microseconds of a bucket of level 1, as a power of two: about a second.
pub(crate) const SHIFT: i64 = 20;
/// How many buckets of one level make one of the next, as a power of two.
pub(crate) const FAN: i64 = 6;
/// Levels of buckets; one of the last holds about 71 minutes.
pub(crate) const LEVELS: i64 = 3;
/// Rows per bucket at most, so that transactions on Postgres seldom wait for each other's.
const SHARDS: u8 = 4;

record! {
    /// What is written down of a waiting job.
    pub struct QueueEntry {
        /// The job.
        pub id: JobId,
        /// Its organization.
        pub organization_id: OrganizationId,
        /// Who caused it.
        pub initiator_id: UserId,
        /// Whether it queues after people's jobs.
        pub automatic: bool,
        /// The type it needs.
        pub provisioner: String,
        /// Its tags.
        pub tag_set_id: TagSetId,
        /// Whether the prebuilds user caused it; the official ranking knows only that.
        pub prebuild: bool,
        /// When it was made.
        pub created_at: Timestamp = "created_us",
    }
}

/// The columns of a [`QueueEntry`]: of the table itself, or of one with this name before each column.
macro_rules! standing_columns {
    () => {
        "id, organization_id, initiator_id, automatic, provisioner, tag_set_id, prebuild, created_us"
    };
    ($table:literal) => {
        concat!(
            $table,
            "id, ",
            $table,
            "organization_id, ",
            $table,
            "initiator_id, ",
            $table,
            "automatic, ",
            $table,
            "provisioner, ",
            $table,
            "tag_set_id, ",
            $table,
            "prebuild, ",
            $table,
            "created_us"
        )
    };
}
pub(crate) use standing_columns;

statements! { "queue_lines";
    /// A line in which nobody stands gets a fresh turn, greater than all of its class: rule 1 of the fair queue.
    ENTER = sql("insert into queue_lines (organization_id, initiator_id, automatic, provisioner, tag_set_id, turn, waiting)
        values ($1, $2, $3, $4, $5, (select case when coalesce(max(other.turn), 0) >= $6 then max(other.turn) + 1 else $6 end
            from queue_lines as other
            where other.organization_id = $1 and other.turn >= $7 and other.turn < $8), 1)
        on conflict (organization_id, initiator_id, automatic, provisioner, tag_set_id) do update
        set waiting = queue_lines.waiting + 1,
        turn = case when queue_lines.waiting = 0 then excluded.turn else queue_lines.turn end");
    LEAVE = sql("update queue_lines set waiting = waiting - 1 where organization_id = $1 and initiator_id = $2
        and automatic = $3 and provisioner = $4 and tag_set_id = $5");
    /// $1 to $3 the job's own kind, $4 prebuild, $5 to $7 its buckets of each level, $8 shard, $9 change; the whole
    /// deployment and the kind each count at every level.
    COUNT = sql("insert into queue_counts
        (organization_id, provisioner, tag_set_id, prebuild, level, bucket, shard, total)
        values ('', '', 0, $4, 1, $5, $8, $9), ('', '', 0, $4, 2, $6, $8, $9), ('', '', 0, $4, 3, $7, $8, $9),
        ($1, $2, $3, $4, 1, $5, $8, $9), ($1, $2, $3, $4, 2, $6, $8, $9), ($1, $2, $3, $4, 3, $7, $8, $9)
        on conflict (organization_id, provisioner, tag_set_id, level, prebuild, bucket, shard) do update
        set total = queue_counts.total + excluded.total");
    /// A job counts in the same rows when it comes and when it goes, so a row of 0 says nothing.
    TIDY_COUNTS = sql("delete from queue_counts where total = 0
        and ((level = 1 and bucket < $1) or (level = 2 and bucket < $2) or (level = 3 and bucket < $3))");
    TIDY_LINES = sql("delete from queue_lines where waiting = 0
        and (turn < $1 or (turn >= 4611686018427387904 and turn < $2))");
}

/// The bucket of a level that an instant falls into.
pub(crate) fn bucket(at: Timestamp, level: i64) -> i64 {
    at.as_microsecond() >> (SHIFT + (level - 1) * FAN)
}

/// Where the turns of a class begin and end.
pub(crate) const fn turns(automatic: bool) -> (i64, i64) {
    if automatic { (AUTOMATIC, i64::MAX) } else { (i64::MIN, AUTOMATIC) }
}

/// The least turn that a line of a class may get now; a greater one if there is one already.
pub(crate) fn turn_now(automatic: bool, now: Timestamp) -> i64 {
    let base = if automatic { AUTOMATIC } else { 0 };
    base + now.as_microsecond()
}

/// The job waits from now on.
pub(crate) fn enqueue(tx: &mut Tx, job: &QueueEntry, now: Timestamp) {
    let (from, to) = turns(job.automatic);
    let line = values![
        job.organization_id,
        job.initiator_id,
        job.automatic,
        job.provisioner,
        job.tag_set_id,
        turn_now(job.automatic, now),
        from,
        to,
    ];
    count(tx, job, 1);
    tx.defer(&ENTER, line);
}

/// The job does not wait any more, and nobody got it: its line keeps its turn.
pub(crate) fn dequeue(tx: &mut Tx, job: &QueueEntry) {
    let line = values![job.organization_id, job.initiator_id, job.automatic, job.provisioner, job.tag_set_id];
    count(tx, job, -1);
    tx.defer(&LEAVE, line);
}

/// Adds to the counts of all buckets in which the job lies.
pub(crate) fn count(tx: &mut Tx, job: &QueueEntry, change: i64) {
    let shard = i64::from(job.id.0.as_bytes()[15] % SHARDS);
    let mut row = values![job.organization_id, job.provisioner, job.tag_set_id, job.prebuild];
    for level in 1..=LEVELS {
        row.extend(values![bucket(job.created_at, level)]);
    }
    row.extend(values![shard, change]);
    tx.defer(&COUNT, row);
}

/// How long a bucket stays after its end: transactions that began in it are over by then, so that tidying waits for
/// none of them.
const SETTLED: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Removes rows that say nothing any more; returns how many. Now and then the claim does it in passing.
///
/// # Errors
/// Only when the database fails.
pub async fn purge(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    let Ok(before) = now.checked_sub(SETTLED) else { return Ok(0) };
    let counts = values![bucket(before, 1), bucket(before, 2), bucket(before, 3)];
    let lines = values![turn_now(false, before), turn_now(true, before)];
    Ok(tx.execute(&TIDY_COUNTS, counts).await? + tx.execute(&TIDY_LINES, lines).await?)
}

/// One claim in so many tidies up.
const TIDY_EVERY: u32 = 1024;

/// Tidies up after some of the jobs, chosen by chance.
pub(crate) async fn tidy(tx: &mut Tx, job: JobId, now: Timestamp) -> Result<()> {
    let [.., high, low] = job.0.into_bytes();
    if u32::from(u16::from_be_bytes([high, low])) % TIDY_EVERY != 0 {
        return Ok(());
    }
    match purge(tx, now).await {
        // Somebody else is at it.
        Err(Error::Unavailable { .. }) => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_turns_whatever_the_clock_says() {
        let (people, automatic) = (turns(false), turns(true));
        assert_eq!(people.1, automatic.0, "the classes meet where the check expects it");
        assert_eq!(automatic.0, 4_611_686_018_427_387_904);
        for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            for (class, (from, to)) in [(false, people), (true, automatic)] {
                // After the first instants of time an automatic turn is at least where its class begins.
                let turn = turn_now(class, if class { now.max(Timestamp::UNIX_EPOCH) } else { now });
                assert!(from <= turn && turn < to, "{class} {now}: {turn}");
                // Others may have come far beyond what the clock says.
                assert!(from <= turn && turn.saturating_add(1 << 60) < to, "{class} {now}: {turn}");
            }
        }
    }
}
