//! Two tables derived from the waiting jobs: the sub-queues of the fair queue (`queue_lines`, `coder_domain::queue`)
//! and counts by age, for queue positions (`queue_counts`). Every transaction that adds or removes a waiting job
//! updates them. Many transactions change these rows, so they are written last, always in this order: first the counts,
//! then the sub-queue.

use coder_domain::ids::{JobId, OrganizationId, UserId};
use jiff::Timestamp;

use crate::engine::{Tx, record, sql, statements, values};
use crate::tag_sets::TagSetId;
use crate::{Error, Result};

/// Turns of automatic sub-queues are at least this; turns of people's sub-queues are less.
pub(crate) const FIRST_AUTOMATIC_TURN: i64 = 1 << 62;

/// The length of a level 1 bucket in microseconds, as a power of two: about a second.
pub(crate) const BUCKET_BITS: i64 = 20;
/// How many buckets of one level form one of the next, as a power of two.
pub(crate) const LEVEL_BITS: i64 = 6;
/// The number of levels. A bucket of the last one holds about 71 minutes.
pub(crate) const LEVELS: i64 = 3;
/// The maximum number of rows per bucket. Several rows avoid that transactions on Postgres wait for each other.
const MAX_BUCKET_ROWS: u8 = 4;

record! {
    /// What the tables record of a waiting job.
    pub struct QueueEntry {
        pub id: JobId,
        pub organization_id: OrganizationId,
        /// The initiator.
        pub initiator_id: UserId,
        /// Whether it is served after the jobs of people.
        pub automatic: bool,
        /// The provisioner type it needs.
        pub provisioner: String,
        /// The id of its tag set.
        pub tag_set_id: TagSetId,
        /// Whether the prebuilds user initiated it. The official queue order considers only this.
        pub prebuild: bool,
        pub created_at: Timestamp = "created_us",
    }
}

/// The columns of a [`QueueEntry`], without or with a table name before each column.
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
    /// An empty sub-queue gets a new turn, greater than all turns of its class: rule 1 of the fair queue.
    ENTER = sql("insert into queue_lines (organization_id, initiator_id, automatic, provisioner, tag_set_id, turn, waiting)
        values ($1, $2, $3, $4, $5, (select case when coalesce(max(other.turn), 0) >= $6 then max(other.turn) + 1 else $6 end
            from queue_lines as other
            where other.organization_id = $1 and other.turn >= $7 and other.turn < $8), 1)
        on conflict (organization_id, initiator_id, automatic, provisioner, tag_set_id) do update
        set waiting = queue_lines.waiting + 1,
        turn = case when queue_lines.waiting = 0 then excluded.turn else queue_lines.turn end");
    LEAVE = sql("update queue_lines set waiting = waiting - 1 where organization_id = $1 and initiator_id = $2
        and automatic = $3 and provisioner = $4 and tag_set_id = $5");
    /// $1 to $3 the job's requirements, $4 prebuild, $5 to $7 its buckets of each level, $8 shard, $9 change. At every
    /// level one row counts for the whole deployment and one for the requirements.
    COUNT = sql("insert into queue_counts
        (organization_id, provisioner, tag_set_id, prebuild, level, bucket, shard, total)
        values ('', '', 0, $4, 1, $5, $8, $9), ('', '', 0, $4, 2, $6, $8, $9), ('', '', 0, $4, 3, $7, $8, $9),
        ($1, $2, $3, $4, 1, $5, $8, $9), ($1, $2, $3, $4, 2, $6, $8, $9), ($1, $2, $3, $4, 3, $7, $8, $9)
        on conflict (organization_id, provisioner, tag_set_id, level, prebuild, bucket, shard) do update
        set total = queue_counts.total + excluded.total");
    /// A job is added to and removed from the same rows, so a row with total 0 can be deleted.
    TIDY_COUNTS = sql("delete from queue_counts where total = 0
        and ((level = 1 and bucket < $1) or (level = 2 and bucket < $2) or (level = 3 and bucket < $3))");
    TIDY_LINES = sql("delete from queue_lines where waiting = 0
        and (turn < $1 or (turn >= 4611686018427387904 and turn < $2))");
}

/// The bucket of an instant at a level.
pub(crate) fn bucket(at: Timestamp, level: i64) -> i64 {
    at.as_microsecond() >> (BUCKET_BITS + (level - 1) * LEVEL_BITS)
}

/// The range of the turns of a class.
pub(crate) const fn turns(automatic: bool) -> (i64, i64) {
    if automatic { (FIRST_AUTOMATIC_TURN, i64::MAX) } else { (i64::MIN, FIRST_AUTOMATIC_TURN) }
}

/// The least turn that a sub-queue of a class may get now. It gets a greater one if another sub-queue already has this
/// turn.
pub(crate) fn turn_now(automatic: bool, now: Timestamp) -> i64 {
    let base = if automatic { FIRST_AUTOMATIC_TURN } else { 0 };
    base + now.as_microsecond()
}

/// Adds a waiting job.
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

/// Removes a waiting job that no daemon acquired. Its sub-queue keeps its turn.
pub(crate) fn dequeue(tx: &mut Tx, job: &QueueEntry) {
    let line = values![job.organization_id, job.initiator_id, job.automatic, job.provisioner, job.tag_set_id];
    count(tx, job, -1);
    tx.defer(&LEAVE, line);
}

/// Adds to the counts of all buckets of the job.
pub(crate) fn count(tx: &mut Tx, job: &QueueEntry, change: i64) {
    let shard = i64::from(job.id.0.as_bytes()[15] % MAX_BUCKET_ROWS);
    let mut row = values![job.organization_id, job.provisioner, job.tag_set_id, job.prebuild];
    for level in 1..=LEVELS {
        row.extend(values![bucket(job.created_at, level)]);
    }
    row.extend(values![shard, change]);
    tx.defer(&COUNT, row);
}

/// How long an empty bucket stays after its end. Transactions that began in it have ended by then, so the cleanup does
/// not wait for them.
const EMPTY_BUCKET_TTL: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Removes rows with count 0. Returns how many. Some claims call it.
pub async fn purge(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    let Ok(before) = now.checked_sub(EMPTY_BUCKET_TTL) else { return Ok(0) };
    let counts = values![bucket(before, 1), bucket(before, 2), bucket(before, 3)];
    let lines = values![turn_now(false, before), turn_now(true, before)];
    Ok(tx.execute(&TIDY_COUNTS, counts).await? + tx.execute(&TIDY_LINES, lines).await?)
}

/// One claim in this many runs the cleanup.
const CLEAN_UP_EVERY: u32 = 1024;

/// Runs the cleanup for a random part of the claims.
pub(crate) async fn clean_up(tx: &mut Tx, job: JobId, now: Timestamp) -> Result<()> {
    let [.., high, low] = job.0.into_bytes();
    if u32::from(u16::from_be_bytes([high, low])) % CLEAN_UP_EVERY != 0 {
        return Ok(());
    }
    match purge(tx, now).await {
        // Another transaction is doing the cleanup.
        Err(Error::Unavailable { .. }) => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The statements of `queue.rs` and of the check divide by the same numbers.
        #[test]
        fn a_bucket_of_a_level_holds_64_of_the_level_below(micros in -1_i64 << 50..1 << 50) {
            let at = Timestamp::from_microsecond(micros).unwrap();
            prop_assert_eq!(bucket(at, 1), micros.div_euclid(1 << 20));
            for level in 1..LEVELS {
                prop_assert_eq!(bucket(at, level + 1), bucket(at, level).div_euclid(64));
            }
        }
    }

    #[test]
    fn each_class_has_its_own_turns_whatever_the_clock_says() {
        let (people, automatic) = (turns(false), turns(true));
        assert_eq!(people.1, automatic.0, "the classes meet where the check expects it");
        assert_eq!(automatic.0, 4_611_686_018_427_387_904);
        for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            for (class, (from, to)) in [(false, people), (true, automatic)] {
                // Also at the first instants of the epoch, an automatic turn is at least the beginning of its class.
                let turn = turn_now(class, if class { now.max(Timestamp::UNIX_EPOCH) } else { now });
                assert!(from <= turn && turn < to, "{class} {now}: {turn}");
                // Turns of other sub-queues may be far greater than the time.
                assert!(from <= turn && turn.saturating_add(1 << 60) < to, "{class} {now}: {turn}");
            }
        }
    }
}
