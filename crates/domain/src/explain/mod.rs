//! Why a job waits: one pure function from facts to the true reasons, the nearest first. What it is asked about is in `facts.rs`,
//! how far a daemon gets in `obstacle.rs`, the answers in `reason.rs`, their words in `text.rs`.
//!
//! # The order of the gates
//!
//! A daemon runs a job after it has passed these gates, in this order:
//!
//! 1. organization and provisioner type,
//! 2. user: a `scope=user` daemon takes its owner's jobs only,
//! 3. tags: the predicate of [`crate::tags`],
//! 4. key: neither expired nor revoked,
//! 5. presence: connected, or seen within the stale interval,
//! 6. drain: it still takes jobs,
//! 7. health: it can run jobs,
//! 8. slot: one is free.
//!
//! A daemon's *obstacle* is the first gate that it fails. Naming a later one would send people the wrong way: a
//! daemon whose key was revoked has also not been seen for a while, but starting it again helps nobody, so the key
//! comes before presence; a daemon of the wrong tags that is busy would not take the job when it is free, so tags
//! come before slots; a daemon that drains and is busy will not take another job when that one ends, and neither will one
//! that can run no jobs now.
//!
//! Of all daemons the *nearest* is the one that gets furthest, since the fewest things must change before the job
//! runs; its obstacle is the first reason. A free daemon ends the matter: the job starts at once. Busy needs nobody's
//! help, a daemon that can run no jobs is there and must be repaired, a draining daemon is there but was told to stop, an absent one must be started, a lost key must be replaced,
//! and wrong tags must be changed on the job or on a daemon. Among daemons of wrong tags one that is there precedes
//! one that is not, then the one that fails fewer pairs. Another user's daemon is no candidate at all, so it
//! comes after those, unless the job is a user's own: then it comes before them, since no tag would help. One that lacks the
//! job's tags besides is passed over, unless there is nothing else to say. The other obstacles follow in that order, one
//! reason of each kind, counted.

mod facts;
mod guide;
mod obstacle;
mod reason;
mod text;

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

pub use self::facts::{Daemon, Job, KeyState, Presence, QueueState};
pub use self::guide::published_reasons;
pub use self::obstacle::capable_daemon_seen_at;
use self::obstacle::{Gap, Obstacle, unmet};
pub use self::reason::{NamedDaemon, Reason, TagMismatch};
use crate::tags::{SCOPE, SCOPE_USER};

/// Says why a pending job waits: the true reasons, the nearest first, at least one. The module's text argues the order.
///
/// `daemons` are all rows of the job's organization (others are passed over); `queue` is the job's place among those
/// that its daemons could take; `stale_after` is how old a daemon's last sign of life may be (90 s,
/// scheduling-and-auth 0).
#[must_use]
pub fn explain(
    job: &Job<'_>,
    daemons: &[Daemon<'_>],
    queue: QueueState,
    now: Timestamp,
    stale_after: SignedDuration,
) -> Vec<Reason> {
    let ours = || daemons.iter().filter(|daemon| daemon.organization == job.organization);
    let mut candidates: Vec<&Daemon<'_>> = ours().filter(|daemon| daemon.is_candidate(job)).collect();
    if candidates.is_empty() {
        let provisioner = job.provisioner.to_owned();
        return vec![Reason::NoDaemons { provisioner, of_other_types: ours().count() }];
    }
    // Equal daemons are named in the same order each time.
    candidates.sort_by_key(|daemon| (daemon.name, daemon.id));
    let mut groups = Groups::default();
    for daemon in candidates {
        match daemon.obstacle(job, now, stale_after) {
            Obstacle::None => return vec![Reason::Starting { daemon: daemon.named() }],
            Obstacle::Busy => groups.busy.push(daemon),
            Obstacle::Unhealthy => groups.unhealthy.push(daemon),
            Obstacle::Draining => groups.draining.push(daemon),
            Obstacle::NotSeen => groups.not_seen.push(daemon),
            Obstacle::KeyExpired(at) => groups.expired.push((at, daemon)),
            Obstacle::KeyRevoked(at) => groups.revoked.push((at, daemon)),
            Obstacle::Tags(gap) => groups.tags.push((daemon, gap)),
            Obstacle::OtherUser { fits } => groups.other_user.push((daemon, fits)),
        }
    }
    groups
        .tags
        .sort_by_key(|(daemon, gap)| (!daemon.is_present(now, stale_after), gap.pairs(), gap.different));
    groups.reasons(job, queue)
}

/// The daemons by their obstacle, each group with its nearest daemon first or found by the group's own rule.
#[derive(Default)]
struct Groups<'a, 'b> {
    busy: Vec<&'a Daemon<'b>>,
    unhealthy: Vec<&'a Daemon<'b>>,
    draining: Vec<&'a Daemon<'b>>,
    not_seen: Vec<&'a Daemon<'b>>,
    expired: Vec<(Timestamp, &'a Daemon<'b>)>,
    revoked: Vec<(Timestamp, &'a Daemon<'b>)>,
    tags: Vec<(&'a Daemon<'b>, Gap)>,
    /// Each with whether its tags would fit.
    other_user: Vec<(&'a Daemon<'b>, bool)>,
}

impl Groups<'_, '_> {
    fn reasons(self, job: &Job<'_>, queue: QueueState) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if !self.busy.is_empty() {
            let slots = self.busy.iter().map(|daemon| u64::from(daemon.slots)).sum();
            reasons.push(Reason::Busy { daemons: self.busy.len(), slots, queue });
        }
        if let Some(daemon) = self.unhealthy.first() {
            reasons.push(Reason::Unhealthy {
                daemon: daemon.named(),
                problem: daemon.problem.to_owned(),
                daemons: self.unhealthy.len(),
            });
        }
        if let Some(daemon) = self.draining.first() {
            reasons.push(Reason::Draining { daemon: daemon.named(), daemons: self.draining.len() });
        }
        // `min_by_key` of the reverse takes the first of equals, `max_by_key` would take the last.
        if let Some(daemon) = self.not_seen.iter().min_by_key(|daemon| Reverse(daemon.last_seen_at)) {
            reasons.push(Reason::NotSeen {
                daemon: daemon.named(),
                last_seen_at: daemon.last_seen_at,
                daemons: self.not_seen.len(),
            });
        }
        if let Some((at, daemon)) = self.expired.iter().min_by_key(|(at, _)| Reverse(*at)) {
            reasons.push(Reason::KeyExpired { daemon: daemon.named(), at: *at, daemons: self.expired.len() });
        }
        if let Some((at, daemon)) = self.revoked.iter().min_by_key(|(at, _)| Reverse(*at)) {
            reasons.push(Reason::KeyRevoked { daemon: daemon.named(), at: *at, daemons: self.revoked.len() });
        }
        let others = self.of_other_users(|fits| fits);
        // A user's own job waits for that user's daemon: of the others, those of other users are of its kind.
        let (before, after) =
            if job.tags.get(SCOPE) == Some(SCOPE_USER) { (others, None) } else { (None, others) };
        let alone = reasons.is_empty();
        reasons.extend(before);
        self.tag_reasons(job, alone, &mut reasons);
        reasons.extend(after);
        if reasons.is_empty() {
            reasons.extend(self.of_other_users(|_| true));
        }
        reasons
    }

    fn of_other_users(&self, is_meant: impl Fn(bool) -> bool) -> Option<Reason> {
        let mut meant = self.other_user.iter().filter(|(_, fits)| is_meant(*fits));
        let (daemon, _) = meant.next()?;
        Some(Reason::OtherUser { daemon: daemon.named(), daemons: 1 + meant.count() })
    }

    fn tag_reasons(&self, job: &Job<'_>, alone: bool, reasons: &mut Vec<Reason>) {
        // Nothing unmet, and still no match: the one special case of the predicate.
        let of_untagged = self.tags.iter().filter(|(_, gap)| gap.pairs() == 0).count();
        let all_untagged = alone
            && job.tags.get(SCOPE) != Some(SCOPE_USER)
            && self.tags.iter().all(|(daemon, _)| daemon.tags.is_untagged());
        if all_untagged && !self.tags.is_empty() {
            reasons.push(Reason::TaggedJob { daemons: self.tags.len() });
            return;
        }
        let (mut said_untagged, mut said_nearest) = (false, false);
        for (daemon, gap) in &self.tags {
            if gap.pairs() == 0 {
                if !std::mem::replace(&mut said_untagged, true) {
                    let every = alone && of_untagged == self.tags.len();
                    reasons.push(Reason::UntaggedJob { daemons: of_untagged, every });
                }
            } else if !std::mem::replace(&mut said_nearest, true) {
                reasons.push(nearest(job, daemon));
            }
        }
    }
}

/// Says what the daemon lacks or has otherwise.
fn nearest(job: &Job<'_>, daemon: &Daemon<'_>) -> Reason {
    let (mut missing, mut different) = (Vec::new(), Vec::new());
    for (key, wants, has) in unmet(job.tags, daemon.tags) {
        let (key, wants) = (key.to_owned(), wants.to_owned());
        match has {
            Some(has) => different.push(TagMismatch { key, wants, has: has.to_owned() }),
            None => missing.push((key, wants)),
        }
    }
    let daemon = daemon.named();
    if different.is_empty() {
        Reason::MissingTag { daemon, missing }
    } else {
        Reason::DifferentTag { daemon, different, missing }
    }
}
