//! Which pool has to run which waiting job.

use coder_domain::tags::TagSet;

/// A pool as the distribution of jobs sees it.
#[derive(Clone, Debug)]
pub struct PoolCapacity {
    /// The tags of its key.
    pub tags: TagSet,
    /// How many further daemons it may have for waiting jobs.
    pub room: usize,
}

/// Daemons that wait for a job.
#[derive(Clone, Debug)]
pub struct Idle {
    /// The index of their pool; none for daemons that belong to no pool here.
    pub pool: Option<usize>,
    /// Their tags.
    pub tags: TagSet,
    /// How many jobs they can take.
    pub slots: usize,
}

/// How many of the waiting jobs each pool needs a daemon for. `jobs` holds the tags of the waiting jobs, the oldest first.
///
/// A job is given to a daemon that is idle already if there is one, because the server will do the same; a daemon of no
/// pool costs nothing here. Otherwise it goes to the matching pool with the fewest tags, so that pools with more tags stay
/// free for the jobs that need them. A pool without room leaves the job to the next one. A job that no pool can run
/// holds nothing up.
#[must_use]
pub fn distribute(pools: &[PoolCapacity], idle: &[Idle], jobs: &[TagSet]) -> Vec<usize> {
    let mut waiting = vec![0_usize; pools.len()];
    let mut free: Vec<usize> = idle.iter().map(|daemons| daemons.slots).collect();
    let mut by_tags: Vec<usize> = (0..pools.len()).collect();
    by_tags.sort_by_key(|&pool| (pools[pool].tags.as_map().len(), pool));
    for job in jobs {
        let candidates = idle
            .iter()
            .enumerate()
            .filter(|(index, daemons)| free[*index] > 0 && daemons.tags.satisfies(job));
        let taken = candidates.min_by_key(|(index, daemons)| (daemons.tags.as_map().len(), *index));
        if let Some((index, daemons)) = taken {
            free[index] -= 1;
            if let Some(pool) = daemons.pool {
                waiting[pool] += 1;
            }
            continue;
        }
        let pool = by_tags
            .iter()
            .copied()
            .find(|&pool| pools[pool].tags.satisfies(job) && waiting[pool] < pools[pool].room);
        if let Some(pool) = pool {
            waiting[pool] += 1;
        }
    }
    waiting
}

/// The number of daemons that a pool should have: absolute, so that daemons which are starting are not counted twice.
#[must_use]
pub fn desired(busy: usize, waiting: usize, min_idle: usize, min: usize, max: usize) -> usize {
    (busy + waiting + min_idle).max(min).min(max)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use coder_domain::ids::UserId;
    use proptest::prelude::*;

    use super::*;

    fn tags(text: &str) -> TagSet {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        let map: BTreeMap<String, String> =
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        TagSet::canonical(UserId::NIL, [&map])
    }

    fn pool(text: &str, room: usize) -> PoolCapacity {
        PoolCapacity { tags: tags(text), room }
    }

    #[test]
    fn a_job_goes_to_the_pool_with_the_fewest_tags() {
        let pools = [pool("os=linux gpu=yes", 9), pool("os=linux", 9), pool("os=windows", 9)];
        assert_eq!(distribute(&pools, &[], &[tags("os=linux"), tags("os=linux gpu=yes")]), [1, 1, 0]);
    }

    #[test]
    fn a_full_pool_leaves_jobs_to_the_next() {
        let pools = [pool("os=linux gpu=yes", 9), pool("os=linux", 1)];
        assert_eq!(distribute(&pools, &[], &vec![tags("os=linux"); 3]), [2, 1]);
    }

    #[test]
    fn jobs_without_tags_need_a_pool_without_tags() {
        let pools = [pool("os=linux", 9), pool("", 9)];
        assert_eq!(distribute(&pools, &[], &[tags("")]), [0, 1]);
        assert_eq!(distribute(&pools[..1], &[], &[tags("")]), [0]);
    }

    #[test]
    fn unmatchable_jobs_hold_nothing_up() {
        let pools = [pool("os=linux", 2)];
        let jobs = [tags("os=plan9"), tags("os=plan9"), tags("os=linux")];
        assert_eq!(distribute(&pools, &[], &jobs), [1]);
    }

    #[test]
    fn idle_daemons_elsewhere_are_subtracted() {
        let pools = [pool("os=linux", 9)];
        let idle = [Idle { pool: None, tags: tags("os=linux"), slots: 2 }];
        assert_eq!(distribute(&pools, &idle, &vec![tags("os=linux"); 3]), [1]);
        let idle = [Idle { pool: Some(0), tags: tags("os=linux"), slots: 2 }];
        assert_eq!(
            distribute(&pools, &idle, &vec![tags("os=linux"); 3]),
            [3],
            "own idle daemons stay needed"
        );
    }

    #[test]
    fn desired_is_clamped() {
        assert_eq!(desired(2, 3, 1, 0, 10), 6);
        assert_eq!(desired(2, 30, 1, 0, 10), 10);
        assert_eq!(desired(0, 0, 0, 0, 10), 0);
        assert_eq!(desired(0, 0, 0, 4, 10), 4);
        assert_eq!(desired(0, 0, 0, 4, 3), 3, "the greatest number holds");
    }

    proptest! {
        #[test]
        fn each_job_counts_at_most_once_and_no_pool_exceeds_its_room(
            rooms in proptest::collection::vec((0_usize..5, 0_usize..3), 1..5),
            jobs in proptest::collection::vec(0_usize..4, 0..20),
            spare in 0_usize..4,
        ) {
            let names = ["", "a=1", "a=1 b=1", "c=1"];
            let pools: Vec<_> = rooms.iter().map(|(room, kind)| pool(names[*kind], *room)).collect();
            let jobs: Vec<_> = jobs.into_iter().map(|kind| tags(names[kind])).collect();
            let idle = [Idle { pool: None, tags: tags("a=1"), slots: spare }];
            let waiting = distribute(&pools, &idle, &jobs);
            prop_assert!(waiting.iter().sum::<usize>() <= jobs.len());
            for (count, pool) in waiting.iter().zip(&pools) {
                prop_assert!(*count <= pool.room);
                let matching = jobs.iter().filter(|job| pool.tags.satisfies(job)).count();
                prop_assert!(*count <= matching);
            }
        }
    }
}
