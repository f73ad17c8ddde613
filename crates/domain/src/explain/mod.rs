//! Why a job waits: one pure function from inputs to the true reasons, the nearest first. `inputs.rs` has what it is asked
//! about, `checks.rs` which check a daemon fails, `reason.rs` the answers, `messages.rs` their texts.
//!
//! # The order of the checks
//!
//! A daemon runs a job after it has passed these checks, in this order:
//!
//! 1. organization and provisioner type,
//! 2. user: a `scope=user` daemon runs its owner's jobs only,
//! 3. tags: the predicate of [`crate::tags`],
//! 4. key: neither expired nor revoked,
//! 5. presence: connected, or seen within the stale interval,
//! 6. drain: it still accepts jobs,
//! 7. health: it can run jobs,
//! 8. slot: one is free.
//!
//! The first check that a daemon fails is the one that is reported. A later one would mislead people: a daemon whose key
//! was revoked has also not been seen for a while, but starting it again does not help, so the key comes before presence.
//! A busy daemon with the wrong tags would not run the job when a slot is free, so tags come before slots. A daemon that
//! drains, or that cannot run jobs now, will not run another job when its present one ends, so both come before slots.
//!
//! Of all daemons the *nearest* is the one that passes most checks, because the fewest things must change before the job
//! runs; its failed check is the first reason. If a daemon is free, that is the only reason: the job starts at once. The
//! reasons follow in the order of what people must do: nothing (busy), repair a daemon (unhealthy), start another one
//! (draining), start it again (not seen), replace its key, change tags of the job or of a daemon. Among daemons of wrong
//! tags a connected one precedes a disconnected one, then the one with fewer unmet tags. Another user's daemon comes after
//! all of those, unless the job is a user's own: then it comes before the tags, because no tag would help. It is left out
//! when it lacks the job's tags too, unless there is no other reason. There is one reason of each kind, with a count.

mod checks;
mod inputs;
mod messages;
mod reason;
mod reference_table;

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

pub use self::checks::capable_daemon_seen_at;
use self::checks::{CheckFailure, UnmetTags, unmet};
pub use self::inputs::{Daemon, KeyState, Presence, QueueState, WaitingJob};
pub use self::reason::{NamedDaemon, Reason, TagMismatch};
pub use self::reference_table::published_reasons;
use crate::tags::{SCOPE, SCOPE_USER};

/// Returns why a pending job waits: the true reasons, the nearest first, at least one.
///
/// `daemons` are all rows of the job's organization (others are ignored); `queue` is the job's position among those that
/// its daemons could run; `stale_after` is how old a daemon's last heartbeat may be (90 s, scheduling-and-auth 0).
#[must_use]
pub fn explain(
    job: &WaitingJob<'_>,
    daemons: &[Daemon<'_>],
    queue: QueueState,
    now: Timestamp,
    stale_after: SignedDuration,
) -> Vec<Reason> {
    let in_organization = || daemons.iter().filter(|daemon| daemon.organization == job.organization);
    let mut candidates: Vec<&Daemon<'_>> =
        in_organization().filter(|daemon| daemon.is_candidate(job)).collect();
    if candidates.is_empty() {
        let provisioner = job.provisioner.to_owned();
        return vec![Reason::NoDaemons { provisioner, of_other_types: in_organization().count() }];
    }
    // The order must not depend on the order of the rows.
    candidates.sort_by_key(|daemon| (daemon.name, daemon.id));
    let mut groups = Groups::default();
    for daemon in candidates {
        match daemon.first_failure(job, now, stale_after) {
            CheckFailure::None => return vec![Reason::Starting { daemon: daemon.named() }],
            CheckFailure::Busy => groups.busy.push(daemon),
            CheckFailure::Unhealthy => groups.unhealthy.push(daemon),
            CheckFailure::Draining => groups.draining.push(daemon),
            CheckFailure::NotSeen => groups.not_seen.push(daemon),
            CheckFailure::KeyExpired(at) => groups.expired.push((at, daemon)),
            CheckFailure::KeyRevoked(at) => groups.revoked.push((at, daemon)),
            CheckFailure::Tags(unmet_tags) => groups.tags.push((daemon, unmet_tags)),
            CheckFailure::OtherUser { tags_match } => groups.other_user.push((daemon, tags_match)),
        }
    }
    groups.tags.sort_by_key(|(daemon, unmet_tags)| {
        (!daemon.is_present(now, stale_after), unmet_tags.pairs(), unmet_tags.different)
    });
    groups.reasons(job, queue)
}

/// The daemons by the check that they fail.
#[derive(Default)]
struct Groups<'a, 'b> {
    busy: Vec<&'a Daemon<'b>>,
    unhealthy: Vec<&'a Daemon<'b>>,
    draining: Vec<&'a Daemon<'b>>,
    not_seen: Vec<&'a Daemon<'b>>,
    expired: Vec<(Timestamp, &'a Daemon<'b>)>,
    revoked: Vec<(Timestamp, &'a Daemon<'b>)>,
    tags: Vec<(&'a Daemon<'b>, UnmetTags)>,
    /// Each with whether its tags match.
    other_user: Vec<(&'a Daemon<'b>, bool)>,
}

impl Groups<'_, '_> {
    fn reasons(self, job: &WaitingJob<'_>, queue: QueueState) -> Vec<Reason> {
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
        // `min_by_key` of the reverse returns the first of equals, `max_by_key` would return the last.
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
        let others = self.of_other_users(|tags_match| tags_match);
        // No tag would help a user's own job: it waits for that user's daemon.
        let (before, after) =
            if job.tags.get(SCOPE) == Some(SCOPE_USER) { (others, None) } else { (None, others) };
        let is_first = reasons.is_empty();
        reasons.extend(before);
        self.tag_reasons(job, is_first, &mut reasons);
        reasons.extend(after);
        if reasons.is_empty() {
            reasons.extend(self.of_other_users(|_| true));
        }
        reasons
    }

    fn of_other_users(&self, is_included: impl Fn(bool) -> bool) -> Option<Reason> {
        let mut included = self.other_user.iter().filter(|(_, tags_match)| is_included(*tags_match));
        let (daemon, _) = included.next()?;
        Some(Reason::OtherUser { daemon: daemon.named(), daemons: 1 + included.count() })
    }

    fn tag_reasons(&self, job: &WaitingJob<'_>, is_first: bool, reasons: &mut Vec<Reason>) {
        // No unmet tag, and still no match: tagged daemons do not run untagged jobs.
        let with_all_tags = self.tags.iter().filter(|(_, unmet_tags)| unmet_tags.pairs() == 0).count();
        let all_untagged = is_first
            && job.tags.get(SCOPE) != Some(SCOPE_USER)
            && self.tags.iter().all(|(daemon, _)| daemon.tags.is_untagged());
        if all_untagged && !self.tags.is_empty() {
            reasons.push(Reason::TaggedJob { daemons: self.tags.len() });
            return;
        }
        let (mut has_untagged, mut has_nearest) = (false, false);
        for (daemon, unmet_tags) in &self.tags {
            if unmet_tags.pairs() == 0 {
                if !std::mem::replace(&mut has_untagged, true) {
                    let every = is_first && with_all_tags == self.tags.len();
                    reasons.push(Reason::UntaggedJob { daemons: with_all_tags, every });
                }
            } else if !std::mem::replace(&mut has_nearest, true) {
                reasons.push(nearest(job, daemon));
            }
        }
    }
}

/// The tags that the nearest daemon lacks, or has with another value.
fn nearest(job: &WaitingJob<'_>, daemon: &Daemon<'_>) -> Reason {
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
