//! Queue positions of waiting jobs: by both orders of the official API (http-api 5.5) and in the fair order. Positions
//! are computed from the counts by age of `queue_tables.rs`. Only jobs of the same second are counted one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use coder_domain::ids::{JobId, OrganizationId, UserId};
use coder_domain::job::Status;
use jiff::Timestamp;

use super::job::Job;
use super::queue_tables::{LEVEL_BITS, LEVELS, bucket};
use crate::Result;
use crate::engine::{Row, Tx, list as list_value, record, sql, statements, values};
use crate::tag_sets::TagSetId;

/// A position in a queue. 0 of 0 when the job does not wait or no daemon can take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePosition {
    /// From 1.
    pub position: i64,
    /// The number of waiting jobs.
    pub size: i64,
}

record! {
    /// The number of waiting jobs with equal requirements.
    pub struct WaitingCount {
        /// Their provisioner type.
        pub provisioner: String,
        /// Their tags.
        pub tag_set_id: TagSetId,
        /// How many in all.
        pub total: i64,
        /// How many of them are before the given job.
        pub ahead: i64,
    }
}

/// A connected daemon, described by the jobs it can take.
#[derive(Clone, Debug)]
pub struct WaitingDaemon {
    pub organization_id: OrganizationId,
    /// The types it serves.
    pub provisioners: Vec<String>,
    /// The ids of the tag sets that it satisfies.
    pub tag_sets: HashSet<TagSetId>,
}

statements! { "queue_counts";
    /// $1 organization, $2 tag set ids, $3 provisioner types, $4 prebuild, $5 to $7 the job's buckets from the largest,
    /// $8 its creation time, $9 its id.
    BY_SET = sql("select provisioner, tag_set_id, cast(sum(total) as bigint) as total, cast(sum(ahead) as bigint) as ahead from (
            select count.provisioner, count.tag_set_id, count.total, case when count.prebuild = $4 and count.bucket < $5
                or $4 and not count.prebuild then count.total else 0 end as ahead
                from json_each($2) as tags cross join json_each($3) as kind cross join queue_counts as count
                where count.organization_id = $1 and count.provisioner = kind.value
                and count.tag_set_id = cast(tags.value as bigint) and count.level = 3
            union all select count.provisioner, count.tag_set_id, 0 as total, count.total as ahead
                from json_each($2) as tags cross join json_each($3) as kind cross join queue_counts as count
                where count.organization_id = $1 and count.provisioner = kind.value
                and count.tag_set_id = cast(tags.value as bigint) and count.level = 2 and count.prebuild = $4
                and count.bucket >= $5 * 64 and count.bucket < $6
            union all select count.provisioner, count.tag_set_id, 0 as total, count.total as ahead
                from json_each($2) as tags cross join json_each($3) as kind cross join queue_counts as count
                where count.organization_id = $1 and count.provisioner = kind.value
                and count.tag_set_id = cast(tags.value as bigint) and count.level = 1 and count.prebuild = $4
                and count.bucket >= $6 * 64 and count.bucket < $7
            union all select job.provisioner, job.tag_set_id, 0 as total, 1 as ahead from provisioner_jobs as job
                where job.started_us is null and job.completed_us is null and job.canceled_us is null
                and job.prebuild = $4 and job.created_us >= $7 * 1048576 and job.created_us <= $8
                and (job.created_us, job.id) < ($8, $9) and job.organization_id = $1
        ) as counted group by provisioner, tag_set_id having sum(total) > 0");
    /// All buckets of level 3, the buckets of level 2 inside of $1, and those of level 1 inside of $2.
    BUCKETS = sql("select level, prebuild, bucket, cast(sum(total) as bigint) as total from (
            select count.level, count.prebuild, count.bucket, count.total from queue_counts as count
                where count.organization_id = '' and count.provisioner = '' and count.tag_set_id = 0 and count.level = 3
            union all select count.level, count.prebuild, count.bucket, count.total
                from json_each($1) as parent cross join queue_counts as count
                where count.organization_id = '' and count.provisioner = '' and count.tag_set_id = 0 and count.level = 2
                and count.prebuild in (false, true) and count.bucket >= cast(parent.value as bigint) * 64
                and count.bucket < cast(parent.value as bigint) * 64 + 64
            union all select count.level, count.prebuild, count.bucket, count.total
                from json_each($2) as parent cross join queue_counts as count
                where count.organization_id = '' and count.provisioner = '' and count.tag_set_id = 0 and count.level = 1
                and count.prebuild in (false, true) and count.bucket >= cast(parent.value as bigint) * 64
                and count.bucket < cast(parent.value as bigint) * 64 + 64
        ) as counted group by level, prebuild, bucket having sum(total) <> 0");
    COUNT = sql("select cast(coalesce(sum(total), 0) as bigint) as total from queue_counts
        where organization_id = '' and provisioner = '' and tag_set_id = 0 and level = 3");
    WAITING = sql("select id, prebuild, created_us from provisioner_jobs
        where started_us is null and completed_us is null and canceled_us is null
        and id in (select value from json_each($1))");
    /// The ranks of the jobs $2 inside of the level 1 buckets $1.
    RANKED = sql("select id, position from (
            select job.id, row_number() over (partition by job.prebuild, job.created_us / 1048576
                order by job.created_us, job.id) as position
            from json_each($1) as part cross join provisioner_jobs as job
            where job.started_us is null and job.completed_us is null and job.canceled_us is null
            and job.prebuild in (false, true) and job.created_us >= cast(part.value as bigint) * 1048576
            and job.created_us < cast(part.value as bigint) * 1048576 + 1048576
        ) as ranked where id in (select value from json_each($2))");
    /// The initiators with waiting jobs in the requested sub-queues of a class, in the order of their turns.
    INITIATORS = sql("select line.initiator_id, min(line.turn) as turn, cast(sum(line.waiting) as bigint) as waiting
        from json_each($3) as tags cross join json_each($2) as kind cross join queue_lines as line
        where line.organization_id = $1 and line.tag_set_id = cast(tags.value as bigint)
        and line.provisioner = kind.value and line.waiting > 0 and line.automatic = $4
        group by line.initiator_id");
    OWN_AHEAD = sql("select count(*) as total
        from json_each($3) as tags cross join json_each($2) as kind cross join provisioner_jobs as job
        where job.started_us is null and job.completed_us is null and job.canceled_us is null
        and job.organization_id = $1 and job.tag_set_id = cast(tags.value as bigint) and job.provisioner = kind.value
        and job.automatic = $4 and job.initiator_id = $5 and job.created_us <= $6 and (job.created_us, job.id) < ($6, $7)");
}

/// The position of one job as the job's own endpoint shows it. For each daemon that can take it, the job has a rank
/// among the jobs that this daemon can take; the result is the best rank and the longest queue (scheduling-and-auth
/// 1.6, CONF-19).
pub async fn position(tx: &mut Tx, job: &Job, daemons: &[WaitingDaemon]) -> Result<QueuePosition> {
    let is_candidate = |daemon: &&WaitingDaemon| {
        daemon.organization_id == job.organization_id
            && daemon.provisioners.contains(&job.provisioner)
            && daemon.tag_sets.contains(&job.tag_set_id)
    };
    let candidates: Vec<_> = daemons.iter().filter(is_candidate).collect();
    if candidates.is_empty() || job.status() != Status::Pending {
        return Ok(QueuePosition::default());
    }
    let sets: BTreeSet<_> = candidates.iter().flat_map(|daemon| daemon.tag_sets.iter().copied()).collect();
    let kinds: BTreeSet<_> =
        candidates.iter().flat_map(|daemon| daemon.provisioners.iter().cloned()).collect();
    let mut parameters = values![job.organization_id];
    parameters.extend([list_value(sets), list_value(kinds)]);
    parameters.extend(values![job.prebuild]);
    for level in (1..=LEVELS).rev() {
        parameters.extend(values![bucket(job.created_at, level)]);
    }
    parameters.extend(values![job.created_at, job.id]);
    let rows = tx.fetch(&BY_SET, parameters).await?;
    let waiting: Vec<WaitingCount> = rows.iter().map(WaitingCount::from_row).collect::<Result<_>>()?;
    let mut place = QueuePosition { position: i64::MAX, size: 0 };
    for daemon in candidates {
        let takes = |kind: &&WaitingCount| {
            daemon.tag_sets.contains(&kind.tag_set_id) && daemon.provisioners.contains(&kind.provisioner)
        };
        let (ahead, total) = waiting
            .iter()
            .filter(takes)
            .fold((0, 0), |(ahead, total), kind| (ahead + kind.ahead, total + kind.total));
        place.position = place.position.min(ahead + 1);
        place.size = place.size.max(total);
    }
    // The job was acquired between the two reads.
    if place.size < place.position { Ok(QueuePosition::default()) } else { Ok(place) }
}

/// The number of waiting jobs in the whole deployment: the `queue_size` in the jobs list.
pub async fn count(tx: &mut Tx) -> Result<i64> {
    tx.fetch_one(&COUNT, vec![]).await?.get("total")
}

/// The number of waiting jobs in each bucket, by level, class and bucket number.
struct Buckets(BTreeMap<(i64, bool, i64), i64>);

impl Buckets {
    fn read(rows: &[Row]) -> Result<Self> {
        let read = |row: &Row| {
            let key = (row.get("level")?, row.get("prebuild")?, row.get("bucket")?);
            Ok((key, row.get("total")?))
        };
        rows.iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// The number of waiting jobs in the buckets before the level 1 bucket of a job with this class and creation time.
    fn before(&self, prebuild: bool, at: Timestamp) -> i64 {
        let sum = |from, to| self.0.range(from..to).map(|(_, total)| total).sum::<i64>();
        let mut before = sum((LEVELS, false, i64::MIN), (LEVELS, prebuild, bucket(at, LEVELS)));
        for level in 1..LEVELS {
            let first = bucket(at, level + 1) << LEVEL_BITS;
            before += sum((level, prebuild, first), (level, prebuild, bucket(at, level)));
        }
        before
    }
}

/// The rank of each of these jobs in the queue of the whole deployment, from 1. Jobs that do not wait are missing.
/// Three statements, whose cost does not grow with the queue, nor with the number of requested jobs when they are
/// neighbors.
pub async fn positions(tx: &mut Tx, ids: &[JobId]) -> Result<HashMap<JobId, i64>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let mut jobs: HashMap<JobId, (bool, Timestamp)> = HashMap::new();
    for row in tx.fetch(&WAITING, vec![list_value(ids.iter().copied())]).await? {
        jobs.insert(row.get("id")?, (row.get("prebuild")?, row.get("created_us")?));
    }
    if jobs.is_empty() {
        return Ok(HashMap::new());
    }
    let parts = |level| -> BTreeSet<i64> { jobs.values().map(|(_, at)| bucket(*at, level)).collect() };
    let rows = tx.fetch(&BUCKETS, vec![list_value(parts(3)), list_value(parts(2))]).await?;
    let buckets = Buckets::read(&rows)?;
    let asked = list_value(jobs.keys().copied());
    let mut found = HashMap::new();
    for row in tx.fetch(&RANKED, vec![list_value(parts(1)), asked]).await? {
        let (id, inside): (JobId, i64) = (row.get("id")?, row.get("position")?);
        if let Some((prebuild, at)) = jobs.get(&id) {
            found.insert(id, buckets.before(*prebuild, *at) + inside);
        }
    }
    Ok(found)
}

/// The position of a waiting job in the fair order of the daemons that serve these types and tag sets, if no further
/// job arrived: `coder_domain::queue::model::FairQueue::position`. For the explanation only, because the official
/// fields have another order. 0 of 0 when the job does not wait in these sub-queues.
pub async fn fair_position(
    tx: &mut Tx,
    job: &Job,
    provisioners: &[String],
    tag_sets: &[TagSetId],
) -> Result<QueuePosition> {
    let mut wanted = values![job.organization_id];
    wanted.extend([list_value(provisioners.iter().cloned()), list_value(tag_sets.iter().copied())]);
    let mut people = wanted.clone();
    people.extend(values![false]);
    let people = initiators(&tx.fetch(&INITIATORS, people).await?)?;
    let mut automatic = wanted.clone();
    automatic.extend(values![true]);
    let automatic = initiators(&tx.fetch(&INITIATORS, automatic).await?)?;
    let total = |all: &[Initiator]| all.iter().map(|initiator| initiator.waiting).sum::<i64>();
    let size = total(&people) + total(&automatic);
    let (class, before) = if job.automatic { (&automatic, total(&people)) } else { (&people, 0) };
    let Some(own) = class.iter().find(|initiator| initiator.id == job.initiator_id) else {
        return Ok(QueuePosition::default());
    };
    let mut parameters = wanted;
    parameters.extend(values![job.automatic, job.initiator_id, job.created_at, job.id]);
    let own_ahead: i64 = tx.fetch_one(&OWN_AHEAD, parameters).await?.get("total")?;
    // Initiators are served in turn: before this initiator's n-th job, each other one gets n or n-1 jobs.
    let others = class.iter().filter(|other| other.id != own.id);
    let ahead: i64 = others
        .map(|other| other.waiting.min(own_ahead + i64::from((other.turn, other.id) < (own.turn, own.id))))
        .sum();
    let position = before + own_ahead + ahead + 1;
    if position > size { Ok(QueuePosition::default()) } else { Ok(QueuePosition { position, size }) }
}

struct Initiator {
    id: UserId,
    turn: i64,
    waiting: i64,
}

fn initiators(rows: &[Row]) -> Result<Vec<Initiator>> {
    let read = |row: &Row| {
        Ok(Initiator { id: row.get("initiator_id")?, turn: row.get("turn")?, waiting: row.get("waiting")? })
    };
    rows.iter().map(read).collect()
}
