//! The first check that a daemon fails for a job.

use jiff::{SignedDuration, Timestamp};

use super::{Daemon, KeyState, NamedDaemon, Presence, WaitingJob};
use crate::tags::{self, DaemonCapabilities, JobRequirements, OWNER, SCOPE, TagSet};

/// How many tags of a job a daemon does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnmetTags {
    pub(super) missing: usize,
    pub(super) different: usize,
}

impl UnmetTags {
    fn between(job: &TagSet, daemon: &TagSet) -> Self {
        let mut unmet_tags = Self::default();
        for (_, _, has) in unmet(job, daemon) {
            if has.is_some() { unmet_tags.different += 1 } else { unmet_tags.missing += 1 }
        }
        unmet_tags
    }

    pub(super) const fn pairs(self) -> usize {
        self.missing + self.different
    }
}

/// The tags of a job that a daemon does not have, each with the value that it has instead.
pub(super) fn unmet<'a>(
    job: &'a TagSet,
    daemon: &'a TagSet,
) -> impl Iterator<Item = (&'a str, &'a str, Option<&'a str>)> {
    // The owner depends on the scope, so it is compared only if the scopes are equal.
    let same_scope = job.get(SCOPE) == daemon.get(SCOPE);
    let pairs = job.as_map().iter().filter(move |(key, _)| same_scope || *key != OWNER);
    pairs
        .map(|(key, wants)| (key.as_str(), wants.as_str(), daemon.get(key)))
        .filter(|(_, wants, has)| *has != Some(wants))
}

/// The first check that a daemon fails.
pub(super) enum CheckFailure {
    None,
    Busy,
    Unhealthy,
    Draining,
    NotSeen,
    KeyExpired(Timestamp),
    KeyRevoked(Timestamp),
    Tags(UnmetTags),
    /// It runs the jobs of another user only; whether it has the other tags of the job.
    OtherUser {
        tags_match: bool,
    },
}

impl Daemon<'_> {
    /// Whether it is present (check 5). A last heartbeat in the future, after a jump of the clock, counts as now.
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

    pub(super) fn is_candidate(&self, job: &WaitingJob<'_>) -> bool {
        self.organization == job.organization && self.provisioners.iter().any(|kind| kind == job.provisioner)
    }

    fn matches(&self, job: &WaitingJob<'_>) -> bool {
        let capabilities = DaemonCapabilities {
            organization: self.organization,
            provisioners: self.provisioners,
            tags: self.tags,
        };
        let requirements =
            JobRequirements { organization: job.organization, provisioner: job.provisioner, tags: job.tags };
        tags::matches(&capabilities, &requirements)
    }

    fn serves_another_user(&self, job: &WaitingJob<'_>) -> bool {
        let user = if job.tags.is_user_scoped() { job.tags.owner() } else { job.initiator.to_string() };
        self.tags.is_user_scoped() && self.tags.owner() != user
    }

    pub(super) fn first_failure(
        &self,
        job: &WaitingJob<'_>,
        now: Timestamp,
        stale_after: SignedDuration,
    ) -> CheckFailure {
        if !self.matches(job) {
            return if self.serves_another_user(job) {
                let tags_match = unmet(job.tags, self.tags).all(|(key, ..)| key == SCOPE || key == OWNER);
                CheckFailure::OtherUser { tags_match }
            } else {
                CheckFailure::Tags(UnmetTags::between(job.tags, self.tags))
            };
        }
        match self.key {
            KeyState::Expired(at) => CheckFailure::KeyExpired(at),
            KeyState::Revoked(at) => CheckFailure::KeyRevoked(at),
            KeyState::None | KeyState::Live if !self.is_present(now, stale_after) => CheckFailure::NotSeen,
            KeyState::None | KeyState::Live if self.draining => CheckFailure::Draining,
            KeyState::None | KeyState::Live if !self.problem.is_empty() => CheckFailure::Unhealthy,
            KeyState::None | KeyState::Live if self.busy >= self.slots => CheckFailure::Busy,
            KeyState::None | KeyState::Live => CheckFailure::None,
        }
    }

    pub(super) fn named(&self) -> NamedDaemon {
        NamedDaemon { id: self.id, name: self.name.to_owned() }
    }
}

/// The last instant at which a daemon was seen that could run the job. The reaper ends a waiting job only if this is
/// longer ago than the configured time, however long the queue is.
///
/// A daemon could run it if organization, type and tags match and its key is live, busy and draining daemons included.
/// The result is never before the job was created, nor before `watched_since`, from when on this server could have seen a
/// daemon: after a server's downtime daemons get the whole time to come back.
#[must_use]
pub fn capable_daemon_seen_at(
    job: &WaitingJob<'_>,
    daemons: &[Daemon<'_>],
    watched_since: Timestamp,
    now: Timestamp,
) -> Timestamp {
    let could_run =
        |daemon: &&Daemon<'_>| daemon.matches(job) && matches!(daemon.key, KeyState::None | KeyState::Live);
    let last_seen = |daemon: &Daemon<'_>| match daemon.presence {
        Presence::Connected => Some(now),
        Presence::Disconnected | Presence::Unknown => daemon.last_seen_at,
    };
    daemons
        .iter()
        .filter(could_run)
        .filter_map(last_seen)
        .fold(job.created_at.max(watched_since), Timestamp::max)
}
