//! Where waiting jobs stand, by both rankings of the official API (http-api 5.5). Everything is counted from the
//! indexes of waiting jobs; nothing is stored.

use std::collections::{HashMap, HashSet};

use coder_domain::ids::{JobId, OrganizationId};

use super::Job;
use crate::Result;
use crate::engine::{Tx, list as list_value, record, sql, statements, values};
use crate::tag_sets::TagSetId;

/// A place in a queue; 0 of 0 when the job does not wait or nobody could take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub position: i64,
    /// How many wait.
    pub size: i64,
}

record! {
    /// How many jobs of one kind wait.
    pub struct Waiting {
        /// Their organization.
        pub organization_id: OrganizationId,
        /// Their provisioner type.
        pub provisioner: String,
        /// Their tags.
        pub tag_set_id: TagSetId,
        /// How many in all.
        pub total: i64,
        /// How many before the job in question.
        pub ahead: i64,
    }
}

/// What one connected daemon could take.
#[derive(Clone, Debug)]
pub struct Taker {
    /// Its organization.
    pub organization_id: OrganizationId,
    /// The types it serves.
    pub provisioners: Vec<String>,
    /// Ids of the tag sets it satisfies.
    pub tag_sets: HashSet<TagSetId>,
}

statements! { "provisioner_jobs";
    BY_SET = sql("select organization_id, provisioner, tag_set_id, count(*) as total,
        count(case when (prebuild, created_us, id) < ($1, $2, $3) then 1 end) as ahead
        from provisioner_jobs where started_us is null and completed_us is null and canceled_us is null
        group by organization_id, provisioner, tag_set_id");
    GLOBAL = sql("select job.id, (select count(*) from provisioner_jobs as other
        where other.started_us is null and other.completed_us is null and other.canceled_us is null
        and (other.prebuild, other.created_us, other.id) <= (job.prebuild, job.created_us, job.id)) as position
        from provisioner_jobs as job
        where job.started_us is null and job.completed_us is null and job.canceled_us is null
        and job.id in (select value from json_each($1))");
    COUNT = sql("select count(*) as total from provisioner_jobs
        where started_us is null and completed_us is null and canceled_us is null");
    RANKED = sql("select id, position from (
        select id, row_number() over (order by prebuild, created_us, id) as position from provisioner_jobs
        where started_us is null and completed_us is null and canceled_us is null
        ) as ranked where id in (select value from json_each($1))");
}

/// The place of one job as its own page shows it: for each daemon that could take it, its rank among the jobs that
/// daemon could take; the best rank, and the longest queue (scheduling-and-auth 1.6, CONF-19).
///
/// # Errors
/// Only when the database fails.
pub async fn place(tx: &mut Tx, job: &Job, takers: &[Taker]) -> Result<Place> {
    let is_candidate = |taker: &&Taker| {
        taker.organization_id == job.organization_id
            && taker.provisioners.contains(&job.provisioner)
            && taker.tag_sets.contains(&job.tag_set_id)
    };
    let candidates: Vec<_> = takers.iter().filter(is_candidate).collect();
    if candidates.is_empty() || job.status() != coder_domain::job::Status::Pending {
        return Ok(Place::default());
    }
    let rows = tx.fetch(&BY_SET, values![job.prebuild, job.created_at, job.id]).await?;
    let waiting: Vec<Waiting> = rows.iter().map(Waiting::from_row).collect::<Result<_>>()?;
    let mut place = Place { position: i64::MAX, size: 0 };
    for taker in candidates {
        let takes = |kind: &&Waiting| {
            kind.organization_id == taker.organization_id
                && taker.tag_sets.contains(&kind.tag_set_id)
                && taker.provisioners.contains(&kind.provisioner)
        };
        let (ahead, total) = waiting
            .iter()
            .filter(takes)
            .fold((0, 0), |(ahead, total), kind| (ahead + kind.ahead, total + kind.total));
        place.position = place.position.min(ahead + 1);
        place.size = place.size.max(total);
    }
    // Taken between the two reads.
    if place.size < place.position { Ok(Place::default()) } else { Ok(place) }
}

/// How many jobs wait in the whole deployment: the `queue_size` of every row of the jobs list.
///
/// # Errors
/// Only when the database fails.
pub async fn count(tx: &mut Tx) -> Result<i64> {
    tx.fetch_one(&COUNT, vec![]).await?.get("total")
}

/// Above this many jobs one pass over the whole queue is cheaper than counting for each.
const FEW: usize = 3;

/// The rank of each of these jobs in the whole deployment's queue, from 1; those that do not wait are missing.
///
/// # Errors
/// Only when the database fails.
pub async fn positions(tx: &mut Tx, ids: &[JobId]) -> Result<HashMap<JobId, i64>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let statement = if ids.len() <= FEW { &GLOBAL } else { &RANKED };
    let rows = tx.fetch(statement, vec![list_value(ids.iter().copied())]).await?;
    rows.iter().map(|row| Ok((row.get("id")?, row.get("position")?))).collect()
}
