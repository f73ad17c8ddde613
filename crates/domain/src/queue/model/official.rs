//! The queue positions that the official API shows (scheduling-and-auth 1.6): two rankings, both by age with prebuilds
//! last. The fair order does not count in them.

use jiff::Timestamp;

use crate::ids::{JobId, OrganizationId};
use crate::tags::{self, DaemonCapabilities, JobRequirements, TagSet};

/// A pending job. Jobs that are started, canceled or ended do not belong here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingJob<'a> {
    pub id: JobId,
    pub organization: OrganizationId,
    /// The type it needs.
    pub provisioner: &'a str,
    /// The tags it needs.
    pub tags: &'a TagSet,
    /// Whether the prebuilds user started it; such jobs sort last (QUE-1).
    pub prebuild: bool,
    pub created_at: Timestamp,
}

/// A position in a queue. The default, 0 of 0, belongs to jobs that do not wait or that no daemon could run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePosition {
    /// From 1 (QUE-6).
    pub position: u64,
    /// How many jobs wait.
    pub size: u64,
}

fn order(job: &PendingJob<'_>) -> (bool, Timestamp, JobId) {
    (job.prebuild, job.created_at, job.id)
}

/// The positions that builds, template versions and dry-runs show, in the order of `jobs`. Each daemon ranks the jobs it
/// could run; a job shows its best rank and its longest queue. Organization and type count as in matching (CONF-19).
/// `daemons` are those that were seen within the stale interval.
#[must_use]
pub fn by_daemon(jobs: &[PendingJob<'_>], daemons: &[DaemonCapabilities<'_>]) -> Vec<QueuePosition> {
    let mut positions = vec![QueuePosition::default(); jobs.len()];
    for daemon in daemons {
        let can_run = |job: &PendingJob<'_>| {
            let needs = JobRequirements {
                organization: job.organization,
                provisioner: job.provisioner,
                tags: job.tags,
            };
            tags::matches(daemon, &needs)
        };
        let mut queue: Vec<usize> = (0..jobs.len()).filter(|index| can_run(&jobs[*index])).collect();
        queue.sort_by_key(|index| order(&jobs[*index]));
        let size = queue.len() as u64;
        for (rank, index) in (1..).zip(queue) {
            let shown = &mut positions[index];
            shown.position = if shown.position == 0 { rank } else { shown.position.min(rank) };
            shown.size = shown.size.max(size);
        }
    }
    positions
}

/// The positions that the organization's list of jobs shows, in the order of `jobs`, which are all pending ones of the
/// deployment: one ranking, whichever daemons could run them.
#[must_use]
pub fn overall(jobs: &[PendingJob<'_>]) -> Vec<QueuePosition> {
    let mut queue: Vec<usize> = (0..jobs.len()).collect();
    queue.sort_by_key(|index| order(&jobs[*index]));
    let size = queue.len() as u64;
    let mut positions = vec![QueuePosition::default(); jobs.len()];
    for (rank, index) in (1..).zip(queue) {
        positions[index] = QueuePosition { position: rank, size };
    }
    positions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ids::UserId;

    /// Reads `a1b2` as `a=1 b=2`; `-` stands for no tags. The table's sets lack scope and owner.
    fn set(text: &str) -> TagSet {
        let letters: Vec<char> = text.chars().filter(|c| *c != '-').collect();
        let pairs = letters.chunks(2).map(|pair| (pair[0].to_string(), pair[1].to_string()));
        TagSet::from_stored(pairs.collect())
    }

    fn jobs<'a>(sets: &'a [TagSet], prebuilds: &[usize]) -> Vec<PendingJob<'a>> {
        let job = |(index, tags)| PendingJob {
            id: JobId::random(),
            organization: OrganizationId::NIL,
            provisioner: "terraform",
            tags,
            prebuild: prebuilds.contains(&index),
            created_at: Timestamp::from_second(i64::try_from(index).unwrap()).unwrap(),
        };
        sets.iter().enumerate().map(job).collect()
    }

    fn ranked(jobs: &[PendingJob<'_>], daemons: &str) -> Vec<(u64, u64)> {
        let types = ["terraform".to_owned()];
        let sets: Vec<TagSet> = daemons.split_whitespace().map(set).collect();
        let daemon =
            |tags| DaemonCapabilities { organization: OrganizationId::NIL, provisioners: &types, tags };
        let daemons: Vec<_> = sets.iter().map(daemon).collect();
        by_daemon(jobs, &daemons).into_iter().map(|shown| (shown.position, shown.size)).collect()
    }

    /// The table of 1.6: case, jobs oldest first, online daemons, indexes asked for, expected.
    type Case = (u8, &'static str, &'static str, &'static [usize], &'static [(u64, u64)]);
    const TABLE: &[Case] = &[
        (1, "a1b2 a1 a1c3", "a1b2 a1", &[0, 1, 2], &[(1, 2), (1, 2), (0, 0)]),
        (2, "a1b2 a1 a1c3", "a1b2 a1 a1b2c3", &[0, 1, 2], &[(1, 3), (1, 3), (3, 3)]),
        (3, "a1b2 a1 a1c3", "a1b2 a1 a1b2c3", &[1, 2], &[(1, 3), (3, 3)]),
        (4, "a1b2 a1 a1c3", "a1b2 a1 a1b2c3", &[0, 2], &[(1, 3), (3, 3)]),
        (5, "a1b2 a1 a1c3", "a1b2 a1 a1b2c3", &[0, 1], &[(1, 3), (1, 3)]),
        (6, "a1b2 a1 a1c3", "a1b2 a1 a1b2c3", &[1], &[(1, 3)]),
        (
            7,
            "- - a1b2 a1 a1c3",
            "a1b2 a1 a1b2c3",
            &[0, 1, 2, 3, 4],
            &[(1, 5), (2, 5), (3, 5), (3, 5), (5, 5)],
        ),
        (8, "- - a1b2 a1 a1c3", "a1b2 a1 a1b2c3", &[2, 3, 4], &[(3, 5), (3, 5), (5, 5)]),
        (9, "- a1 b2", "", &[0, 1, 2], &[(0, 0), (0, 0), (0, 0)]),
        (10, "- a1 b2", "- a1 b2", &[0, 1, 2], &[(1, 2), (2, 2), (2, 2)]),
        (11, "c3 - a1 b2", "- a1 b2", &[0, 1, 2, 3], &[(0, 0), (1, 2), (2, 2), (2, 2)]),
        (12, "", "", &[], &[]),
    ];

    #[test]
    fn que_6_the_published_table() {
        for (case, waiting, daemons, asked, expected) in TABLE {
            let sets: Vec<TagSet> = waiting.split_whitespace().map(set).collect();
            let all = ranked(&jobs(&sets, &[]), daemons);
            let got: Vec<_> = asked.iter().map(|index| all[*index]).collect();
            assert_eq!(&got, expected, "case {case}");
        }
    }

    #[test]
    fn que_7_after_an_acquisition_each_job_moves_up_by_one() {
        let sets = vec![set("a1"); 10];
        let mut waiting = jobs(&sets, &[]);
        for size in (1..=10).rev() {
            let expected: Vec<_> = (1..=size).map(|position| (position, size)).collect();
            assert_eq!(ranked(&waiting, "a1"), expected);
            let listed: Vec<_> =
                overall(&waiting).into_iter().map(|shown| (shown.position, shown.size)).collect();
            assert_eq!(listed, expected);
            waiting.remove(0);
        }
    }

    #[test]
    fn que_1_prebuilds_rank_last_in_both_rankings() {
        let sets = vec![set("a1"); 5];
        let waiting = jobs(&sets, &[0, 2, 4]);
        let expected = [(3, 5), (1, 5), (4, 5), (2, 5), (5, 5)];
        assert_eq!(ranked(&waiting, "a1"), expected);
        let listed: Vec<_> = overall(&waiting).iter().map(|shown| (shown.position, shown.size)).collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn conf_19_organization_and_type_count_per_daemon_and_not_overall() {
        let untagged = TagSet::canonical(UserId::NIL, [&BTreeMap::new()]);
        let sets = vec![untagged; 3];
        let mut waiting = jobs(&sets, &[]);
        waiting[0].organization = OrganizationId::random();
        waiting[1].provisioner = "echo";
        let types = ["terraform".to_owned()];
        let daemon =
            DaemonCapabilities { organization: OrganizationId::NIL, provisioners: &types, tags: &sets[0] };
        let positions = by_daemon(&waiting, &[daemon]);
        assert_eq!(
            positions,
            [QueuePosition::default(), QueuePosition::default(), QueuePosition { position: 1, size: 1 }]
        );
        assert_eq!(overall(&waiting)[2], QueuePosition { position: 3, size: 3 });
    }
}
