//! From lists of jobs and daemons to what each pool needs to know; pure.

use std::collections::BTreeMap;

use coder_api::daemons::{DaemonStatus, ProvisionerDaemon};
use coder_api::jobs::{ProvisionerJob, Status};
use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use coder_domain::tags::TagSet;

use super::{Interest, PoolId};
use crate::rules::demand::{Idle, PoolCapacity, distribute};

/// What a pool needs to know about its queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Demand {
    /// Jobs that run on its daemons.
    pub(crate) busy: usize,
    /// Waiting jobs that it has to run.
    pub(crate) waiting: usize,
    /// Waiting jobs that it could run; other pools may run them, too.
    pub(crate) matching: usize,
    /// When the oldest job that it could run was created.
    pub(crate) oldest: Option<Timestamp>,
    /// Its daemons.
    pub(crate) daemons: Vec<ProvisionerDaemon>,
    /// Why the queue cannot be read; the rest is what was known before.
    pub(crate) error: Option<String>,
}

impl Demand {
    /// Whether the difference to `other` is one that somebody would see.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let essence = |demand: &Self| {
            let daemon = |daemon: &ProvisionerDaemon| {
                let job = daemon.current_job.as_ref().map(|job| job.id);
                let extras = daemon.extras.as_ref().map(|extras| (extras.draining, extras.problem.clone()));
                (daemon.id, daemon.status.clone(), job, extras, daemon.version.clone())
            };
            let daemons: Vec<_> = demand.daemons.iter().map(daemon).collect();
            (demand.busy, demand.waiting, demand.error.is_some(), daemons)
        };
        essence(self) != essence(other)
    }
}

/// What each pool needs to know.
#[must_use]
pub(crate) fn demands(
    pools: &BTreeMap<PoolId, Interest>,
    jobs: &[ProvisionerJob],
    daemons: &[ProvisionerDaemon],
) -> BTreeMap<PoolId, Demand> {
    let of_pool = |daemon: &ProvisionerDaemon| {
        let key = daemon.key_id.to_string();
        pools.values().position(|pool| pool.keys.contains(&key))
    };
    let mut found = vec![Demand::default(); pools.len()];
    let mut idle = Vec::new();
    for daemon in daemons {
        let pool = of_pool(daemon);
        if let Some(pool) = pool {
            found[pool].daemons.push(daemon.clone());
        }
        if let Some(slots) = free_slots(daemon) {
            idle.push(Idle { pool, tags: daemon.tags.clone(), slots });
        }
    }
    let running = jobs.iter().filter(|job| matches!(job.status, Status::Running | Status::Canceling));
    for job in running {
        let daemon = job.worker_id.and_then(|id| daemons.iter().find(|daemon| daemon.id == id));
        if let Some(pool) = daemon.and_then(of_pool) {
            found[pool].busy += 1;
        }
    }
    let mut pending: Vec<_> = jobs.iter().filter(|job| job.status == Status::Pending).collect();
    pending.sort_by_key(|job| job.created_at);
    // Jobs of organizations are canonical already; a filter on the way must not change which daemon they fit.
    let tags: Vec<TagSet> = pending.iter().map(|job| canonical(&job.tags)).collect();
    let views: Vec<PoolCapacity> = pools
        .values()
        .zip(&found)
        .map(|(pool, demand)| PoolCapacity {
            tags: pool.tags.clone(),
            room: pool.max.saturating_sub(demand.busy),
        })
        .collect();
    let waiting = distribute(&views, &idle, &tags);
    for ((demand, waiting), pool) in found.iter_mut().zip(waiting).zip(pools.values()) {
        demand.waiting = waiting;
        demand.matching = tags.iter().filter(|tags| pool.tags.satisfies(tags)).count();
        let first = pending.iter().zip(&tags).find(|(_, tags)| pool.tags.satisfies(tags));
        demand.oldest = first.map(|(job, _)| job.created_at);
        demand.daemons.sort_by(|one, other| one.name.cmp(&other.name));
    }
    pools.keys().cloned().zip(found).collect()
}

/// How many jobs a daemon can take at once; none if it takes no more.
fn free_slots(daemon: &ProvisionerDaemon) -> Option<usize> {
    if daemon.status == Some(DaemonStatus::Offline) {
        return None;
    }
    match &daemon.extras {
        Some(extras) if extras.draining || !extras.problem.is_empty() => None,
        Some(extras) => {
            usize::try_from(extras.slots.max(1) - extras.busy_slots).ok().filter(|free| *free > 0)
        }
        None => (daemon.status == Some(DaemonStatus::Idle)).then_some(1),
    }
}

/// Official servers send the tags of jobs without an owner as they are stored.
fn canonical(tags: &TagSet) -> TagSet {
    if tags.is_user_scoped() {
        return tags.clone();
    }
    TagSet::canonical(UserId::NIL, [tags.as_map()])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId};
    use serde_json::json;

    use super::*;

    fn daemon(id: DaemonId, key: KeyId, status: &str, tags: &[(&str, &str)]) -> ProvisionerDaemon {
        let tags: BTreeMap<_, _> =
            tags.iter().copied().chain([("scope", "organization"), ("owner", "")]).collect();
        serde_json::from_value(json!({
            "id": id, "organization_id": OrganizationId::random(), "key_id": key, "created_at": "2026-01-01T00:00:00Z",
            "name": "pod-1", "status": status, "tags": tags,
        }))
        .unwrap()
    }

    fn job(status: &str, worker: Option<DaemonId>, tags: &[(&str, &str)]) -> ProvisionerJob {
        let tags: BTreeMap<_, _> =
            tags.iter().copied().chain([("scope", "organization"), ("owner", "")]).collect();
        serde_json::from_value(json!({
            "id": JobId::random(), "created_at": "2026-01-01T00:00:00Z", "status": status, "tags": tags,
            "type": "template_version_import", "worker_id": worker,
        }))
        .unwrap()
    }

    fn interest(key: KeyId, tags: &[(&str, &str)], max: usize) -> Interest {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Interest {
            tags: TagSet::canonical(UserId::NIL, [&tags]),
            keys: vec![key.to_string()],
            max,
            every: Duration::from_secs(1),
        }
    }

    fn pool(name: &str) -> PoolId {
        ("builds".to_owned(), name.to_owned())
    }

    #[test]
    fn running_jobs_count_for_the_pool_of_their_daemon() {
        let (key, busy, idle) = (KeyId::random(), DaemonId::random(), DaemonId::random());
        let linux = [("os", "linux")];
        let daemons = [
            daemon(busy, key, "busy", &linux),
            daemon(idle, key, "idle", &linux),
            daemon(DaemonId::random(), KeyId::random(), "idle", &linux),
        ];
        let jobs = [
            job("running", Some(busy), &linux),
            job("running", Some(DaemonId::random()), &linux),
            job("pending", None, &linux),
            job("pending", None, &[("os", "plan9")]),
        ];
        let pools = BTreeMap::from([(pool("linux"), interest(key, &linux, 5))]);
        let found = &demands(&pools, &jobs, &daemons)[&pool("linux")];
        assert_eq!((found.busy, found.matching, found.daemons.len()), (1, 1, 2));
        assert_eq!(found.waiting, 1, "its own idle daemon takes the job, and is needed for it");
        assert!(found.oldest.is_some());
    }

    #[test]
    fn the_greatest_number_of_a_pool_bounds_what_it_gets() {
        let (one, two) = (KeyId::random(), KeyId::random());
        let jobs = vec![job("pending", None, &[("os", "linux")]); 5];
        let pools = BTreeMap::from([
            (pool("plain"), interest(one, &[("os", "linux")], 2)),
            (pool("gpu"), interest(two, &[("os", "linux"), ("gpu", "yes")], 2)),
        ]);
        let found = demands(&pools, &jobs, &[]);
        assert_eq!((found[&pool("plain")].waiting, found[&pool("gpu")].waiting), (2, 2));
        assert_eq!(found[&pool("plain")].matching, 5);
    }

    #[test]
    fn draining_and_unhealthy_daemons_take_no_jobs() {
        let mut draining = daemon(DaemonId::random(), KeyId::random(), "idle", &[]);
        assert_eq!(free_slots(&draining), Some(1));
        let extras = |text| serde_json::from_value(text).unwrap();
        draining.extras = extras(
            json!({"slots": 3, "busy_slots": 1, "draining": false, "version_skew": "same", "api_version_skew": "same"}),
        );
        assert_eq!(free_slots(&draining), Some(2));
        draining.extras = extras(
            json!({"slots": 3, "busy_slots": 1, "draining": true, "version_skew": "same", "api_version_skew": "same"}),
        );
        assert_eq!(free_slots(&draining), None);
        draining.extras = extras(
            json!({"slots": 3, "busy_slots": 0, "draining": false, "problem": "no Terraform", "version_skew": "same", "api_version_skew": "same"}),
        );
        assert_eq!(free_slots(&draining), None);
    }

    #[test]
    fn only_differences_that_somebody_sees_start_a_pass() {
        let key = KeyId::random();
        let mut before =
            Demand { daemons: vec![daemon(DaemonId::random(), key, "idle", &[])], ..Demand::default() };
        let mut after = before.clone();
        after.daemons[0].last_seen_at = Some(after.daemons[0].created_at);
        assert!(!before.differs(&after));
        after.waiting = 1;
        assert!(before.differs(&after));
        before.waiting = 1;
        after.daemons[0].status = Some(DaemonStatus::Busy);
        assert!(before.differs(&after));
    }
}
