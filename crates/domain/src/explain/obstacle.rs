//! How far a daemon gets on its way to a job: the first gate that it fails.

use jiff::{SignedDuration, Timestamp};

use super::{Daemon, Job, KeyState, NamedDaemon, Presence};
use crate::tags::{self, DaemonCapabilities, JobRequirements, OWNER, SCOPE, TagSet};

/// How many pairs of a job a daemon does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    pub(super) missing: usize,
    pub(super) different: usize,
}

impl Gap {
    fn between(job: &TagSet, daemon: &TagSet) -> Self {
        let mut gap = Self::default();
        for (_, _, has) in unmet(job, daemon) {
            if has.is_some() { gap.different += 1 } else { gap.missing += 1 }
        }
        gap
    }

    pub(super) const fn pairs(self) -> usize {
        self.missing + self.different
    }
}

/// The pairs of a job that a daemon does not have, each with the value it has instead.
pub(super) fn unmet<'a>(
    job: &'a TagSet,
    daemon: &'a TagSet,
) -> impl Iterator<Item = (&'a str, &'a str, Option<&'a str>)> {
    // The owner follows from the scope; it is worth a word only where the scopes agree.
    let same_scope = job.get(SCOPE) == daemon.get(SCOPE);
    let pairs = job.as_map().iter().filter(move |(key, _)| same_scope || *key != OWNER);
    pairs
        .map(|(key, wants)| (key.as_str(), wants.as_str(), daemon.get(key)))
        .filter(|(_, wants, has)| *has != Some(wants))
}

/// The first gate that a daemon fails.
pub(super) enum Obstacle {
    None,
    Busy,
    Unhealthy,
    Draining,
    NotSeen,
    KeyExpired(Timestamp),
    KeyRevoked(Timestamp),
    Tags(Gap),
    /// The jobs of another user only; whether it has the job's tags beside that.
    OtherUser {
        fits: bool,
    },
}

impl Daemon<'_> {
    /// Whether it is there (gate 5). A last sign of life in the future, after a jump of the clock, counts as now.
    #[must_use]
    pub fn is_present(&self, now: Timestamp, stale_after: SignedDuration) -> bool {
        match self.presence {
            Presence::Connected => true,
            Presence::Disconnected => false,
            Presence::Unknown => {
                self.last_seen_at.is_some_and(|seen| now.duration_since(seen) <= stale_after)
            }
        }
    }

    pub(super) fn is_candidate(&self, job: &Job<'_>) -> bool {
        self.organization == job.organization && self.provisioners.iter().any(|kind| kind == job.provisioner)
    }

    fn matches(&self, job: &Job<'_>) -> bool {
        let offer = DaemonCapabilities {
            organization: self.organization,
            provisioners: self.provisioners,
            tags: self.tags,
        };
        let demand =
            JobRequirements { organization: job.organization, provisioner: job.provisioner, tags: job.tags };
        tags::matches(&offer, &demand)
    }

    fn serves_another_user(&self, job: &Job<'_>) -> bool {
        let user = if job.tags.is_user_scoped() { job.tags.owner() } else { job.initiator.to_string() };
        self.tags.is_user_scoped() && self.tags.owner() != user
    }

    pub(super) fn obstacle(&self, job: &Job<'_>, now: Timestamp, stale_after: SignedDuration) -> Obstacle {
        if !self.matches(job) {
            return if self.serves_another_user(job) {
                let fits = unmet(job.tags, self.tags).all(|(key, ..)| key == SCOPE || key == OWNER);
                Obstacle::OtherUser { fits }
            } else {
                Obstacle::Tags(Gap::between(job.tags, self.tags))
            };
        }
        match self.key {
            KeyState::Expired(at) => Obstacle::KeyExpired(at),
            KeyState::Revoked(at) => Obstacle::KeyRevoked(at),
            KeyState::None | KeyState::Live if !self.is_present(now, stale_after) => Obstacle::NotSeen,
            KeyState::None | KeyState::Live if self.draining => Obstacle::Draining,
            KeyState::None | KeyState::Live if !self.problem.is_empty() => Obstacle::Unhealthy,
            KeyState::None | KeyState::Live if self.busy >= self.slots => Obstacle::Busy,
            KeyState::None | KeyState::Live => Obstacle::None,
        }
    }

    pub(super) fn named(&self) -> NamedDaemon {
        NamedDaemon { id: self.id, name: self.name.to_owned() }
    }
}

/// The last instant at which something able to run the job was seen, for the reaper of waiting jobs: it fails a job
/// only when this lies further back than the configured time, whatever the length of the queue.
///
/// Able is a daemon of the job's organization, type and tags whose key is live; busy and draining ones are. The result
/// is never before the job began to wait, nor before `watched_since`, the instant from which this server could have
/// seen a daemon: after a server's downtime daemons get the whole time to come back.
#[must_use]
pub fn capable_daemon_seen_at(
    job: &Job<'_>,
    daemons: &[Daemon<'_>],
    watched_since: Timestamp,
    now: Timestamp,
) -> Timestamp {
    let able =
        |daemon: &&Daemon<'_>| daemon.matches(job) && matches!(daemon.key, KeyState::None | KeyState::Live);
    let seen_at = |daemon: &Daemon<'_>| match daemon.presence {
        Presence::Connected => Some(now),
        Presence::Disconnected | Presence::Unknown => daemon.last_seen_at,
    };
    daemons.iter().filter(able).filter_map(seen_at).fold(job.created_at.max(watched_since), Timestamp::max)
}
