//! Why a job waits: one pure function from facts to the true reasons, the nearest first. Their words are in `text.rs`.
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
//! 7. slot: one is free.
//!
//! A daemon's *obstacle* is the first gate that it fails. Naming a later one would send people the wrong way: a
//! daemon whose key was revoked has also not been seen for a while, but starting it again helps nobody, so the key
//! comes before presence; a daemon of the wrong tags that is busy would not take the job when it is free, so tags
//! come before slots; a daemon that drains and is busy will not take another job when that one ends.
//!
//! Of all daemons the *nearest* is the one that gets furthest, since the fewest things must change before the job
//! runs; its obstacle is the first reason. A free daemon ends the matter: the job starts at once. Busy needs nobody's
//! help, a draining daemon is there but was told to stop, an absent one must be started, a lost key must be replaced,
//! and wrong tags must be changed on the job or on a daemon. Among daemons of wrong tags one that is there precedes
//! one that is not, then the one that fails fewer pairs. Another user's daemon is no candidate at all, so it
//! comes after those. The other obstacles follow in that order, one reason of each kind, counted.

mod text;

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::ids::{DaemonId, OrganizationId, UserId};
use crate::tags::{self, Demand, OWNER, Offer, SCOPE, TagSet};

/// The waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job<'a> {
    /// The organization it belongs to.
    pub organization: OrganizationId,
    /// The provisioner type it needs.
    pub provisioner: &'a str,
    /// Its tags as stored.
    pub tags: &'a TagSet,
    /// When it began to wait.
    pub created_at: Timestamp,
    /// Who asked for it.
    pub initiator: UserId,
}

/// What is known of a daemon's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// It has one.
    Connected,
    /// It has none, which is certain: this server is the only one, or each was asked.
    Gone,
    /// Another replica may hold it: the time of the last sign of life decides.
    Unknown,
}

/// The state of the key that a daemon joined with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// It joined with a session, with the pre-shared key, or runs inside the server.
    None,
    /// It may join again.
    Live,
    /// It can not join again since this instant.
    Expired(Timestamp),
    /// It was deleted at this instant.
    Revoked(Timestamp),
}

/// A daemon as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Daemon<'a> {
    /// Its row.
    pub id: DaemonId,
    /// Its name.
    pub name: &'a str,
    /// The organization it joined; daemons of another one are passed over.
    pub organization: OrganizationId,
    /// The types it serves.
    pub provisioners: &'a [String],
    /// Its effective tags; the owner of a user-scoped daemon is in them.
    pub tags: &'a TagSet,
    /// Its last sign of life; none when it never came.
    pub last_seen_at: Option<Timestamp>,
    /// Its connection.
    pub session: Session,
    /// The key it joined with.
    pub key: Key,
    /// Whether it was told to take no more jobs.
    pub draining: bool,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// How many it runs now.
    pub busy: u32,
}

/// Where the job stands among those that the same daemons could take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its place, from 1; 0 when unknown.
    pub position: u64,
    /// How many wait.
    pub size: u64,
    /// Start of the oldest job that those daemons run.
    pub oldest_running_since: Option<Timestamp>,
}

/// A daemon that a reason names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its row.
    pub id: DaemonId,
    /// Its name.
    pub name: String,
}

/// A pair that a daemon has with another value than the job wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Different {
    /// The tag's key.
    pub key: String,
    /// The job's value.
    pub wants: String,
    /// The daemon's value.
    pub has: String,
}

/// Why a job waits. [`Reason::code`], [`Reason::message`] and [`Reason::next_step`] put it into words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A free daemon exists: the job starts at once.
    Starting {
        /// One that is free.
        daemon: Named,
    },
    /// Every daemon that could take it has its hands full.
    Busy {
        /// How many daemons could take it.
        daemons: usize,
        /// How many jobs these run at once.
        slots: u64,
        /// The job's place in their queue.
        queue: Queue,
    },
    /// The daemons that could take it were told to take no more.
    Draining {
        /// One of them.
        daemon: Named,
        /// How many.
        daemons: usize,
    },
    /// The daemons that could take it are away.
    NotSeen {
        /// The one seen last.
        daemon: Named,
        /// When that was.
        last_seen_at: Option<Timestamp>,
        /// How many are away.
        daemons: usize,
    },
    /// The key of the daemons that could take it has expired.
    KeyExpired {
        /// The one whose key lived longest.
        daemon: Named,
        /// When its key expired.
        at: Timestamp,
        /// How many.
        daemons: usize,
    },
    /// The key of the daemons that could take it was deleted.
    KeyRevoked {
        /// The one whose key lived longest.
        daemon: Named,
        /// When its key was deleted.
        at: Timestamp,
        /// How many.
        daemons: usize,
    },
    /// The job has tags and every daemon is untagged.
    TaggedJob {
        /// How many daemons.
        daemons: usize,
    },
    /// The job is untagged, and these daemons have tags.
    UntaggedJob {
        /// How many daemons have tags.
        daemons: usize,
        /// Whether these are all daemons that come into question.
        every: bool,
    },
    /// The nearest daemon lacks pairs of the job.
    MissingTag {
        /// The nearest daemon.
        daemon: Named,
        /// Pairs it lacks, at least one.
        missing: Vec<(String, String)>,
    },
    /// The nearest daemon has another value for a tag of the job.
    DifferentTag {
        /// The nearest daemon.
        daemon: Named,
        /// Tags of which it has another value, at least one.
        different: Vec<Different>,
        /// Pairs it lacks besides.
        missing: Vec<(String, String)>,
    },
    /// The daemons there are serve another user only.
    OtherUser {
        /// One of them.
        daemon: Named,
        /// How many.
        daemons: usize,
    },
    /// No daemon of this organization serves the job's provisioner type.
    NoDaemons {
        /// The type.
        provisioner: String,
        /// How many daemons the organization has, all of other types.
        of_other_types: usize,
    },
}

/// The pairs of a job that a daemon does not have.
#[derive(Clone, Debug, Default)]
struct Unmet {
    missing: Vec<(String, String)>,
    different: Vec<Different>,
}

impl Unmet {
    fn of(job: &TagSet, daemon: &TagSet) -> Self {
        let mut unmet = Self::default();
        // The owner follows from the scope; it is worth a word only where the scopes agree.
        let same_scope = job.get(SCOPE) == daemon.get(SCOPE);
        let pairs = job.as_map().iter().filter(|(key, _)| same_scope || *key != OWNER);
        for (key, wants) in pairs {
            match daemon.get(key) {
                Some(has) if has == wants => {}
                Some(has) => unmet.different.push(Different {
                    key: key.clone(),
                    wants: wants.clone(),
                    has: has.to_owned(),
                }),
                None => unmet.missing.push((key.clone(), wants.clone())),
            }
        }
        unmet
    }

    fn len(&self) -> usize {
        self.missing.len() + self.different.len()
    }
}

/// The first gate that a daemon fails.
enum Obstacle {
    None,
    Busy,
    Draining,
    NotSeen,
    KeyExpired(Timestamp),
    KeyRevoked(Timestamp),
    Tags(Unmet),
    OtherUser,
}

impl Daemon<'_> {
    /// Whether it is there (gate 5). A last sign of life in the future, after a jump of the clock, counts as now.
    #[must_use]
    pub fn is_present(&self, now: Timestamp, stale_after: SignedDuration) -> bool {
        match self.session {
            Session::Connected => true,
            Session::Gone => false,
            Session::Unknown => self.last_seen_at.is_some_and(|seen| now.duration_since(seen) <= stale_after),
        }
    }

    fn is_candidate(&self, job: &Job<'_>) -> bool {
        self.organization == job.organization && self.provisioners.iter().any(|kind| kind == job.provisioner)
    }

    fn matches(&self, job: &Job<'_>) -> bool {
        let offer =
            Offer { organization: self.organization, provisioners: self.provisioners, tags: self.tags };
        let demand = Demand { organization: job.organization, provisioner: job.provisioner, tags: job.tags };
        tags::matches(&offer, &demand)
    }

    fn serves_another_user(&self, job: &Job<'_>) -> bool {
        let user = if job.tags.is_user_scoped() { job.tags.owner() } else { job.initiator.to_string() };
        self.tags.is_user_scoped() && self.tags.owner() != user
    }

    fn obstacle(&self, job: &Job<'_>, now: Timestamp, stale_after: SignedDuration) -> Obstacle {
        if !self.matches(job) {
            return if self.serves_another_user(job) {
                Obstacle::OtherUser
            } else {
                Obstacle::Tags(Unmet::of(job.tags, self.tags))
            };
        }
        match self.key {
            Key::Expired(at) => Obstacle::KeyExpired(at),
            Key::Revoked(at) => Obstacle::KeyRevoked(at),
            Key::None | Key::Live if !self.is_present(now, stale_after) => Obstacle::NotSeen,
            Key::None | Key::Live if self.draining => Obstacle::Draining,
            Key::None | Key::Live if self.busy >= self.slots => Obstacle::Busy,
            Key::None | Key::Live => Obstacle::None,
        }
    }

    fn named(&self) -> Named {
        Named { id: self.id, name: self.name.to_owned() }
    }
}

/// Says why a pending job waits: the true reasons, the nearest first, at least one. The module's text argues the order.
///
/// `daemons` are all rows of the job's organization (others are passed over); `queue` is the job's place among those
/// that its daemons could take; `stale_after` is how old a daemon's last sign of life may be (90 s,
/// scheduling-and-auth 0).
#[must_use]
pub fn explain(
    job: &Job<'_>,
    daemons: &[Daemon<'_>],
    queue: Queue,
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
            Obstacle::Draining => groups.draining.push(daemon),
            Obstacle::NotSeen => groups.not_seen.push(daemon),
            Obstacle::KeyExpired(at) => groups.expired.push((at, daemon)),
            Obstacle::KeyRevoked(at) => groups.revoked.push((at, daemon)),
            Obstacle::Tags(unmet) => groups.tags.push((daemon, unmet)),
            Obstacle::OtherUser => groups.other_user.push(daemon),
        }
    }
    groups.tags.sort_by_key(|(daemon, unmet)| {
        (!daemon.is_present(now, stale_after), unmet.len(), unmet.different.len())
    });
    groups.reasons(job, queue)
}

/// The daemons by their obstacle, each group with its nearest daemon first or found by the group's own rule.
#[derive(Default)]
struct Groups<'a, 'b> {
    busy: Vec<&'a Daemon<'b>>,
    draining: Vec<&'a Daemon<'b>>,
    not_seen: Vec<&'a Daemon<'b>>,
    expired: Vec<(Timestamp, &'a Daemon<'b>)>,
    revoked: Vec<(Timestamp, &'a Daemon<'b>)>,
    tags: Vec<(&'a Daemon<'b>, Unmet)>,
    other_user: Vec<&'a Daemon<'b>>,
}

impl Groups<'_, '_> {
    fn reasons(self, job: &Job<'_>, queue: Queue) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if !self.busy.is_empty() {
            let slots = self.busy.iter().map(|daemon| u64::from(daemon.slots)).sum();
            reasons.push(Reason::Busy { daemons: self.busy.len(), slots, queue });
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
        self.tag_reasons(job, &mut reasons);
        if let Some(daemon) = self.other_user.first() {
            reasons.push(Reason::OtherUser { daemon: daemon.named(), daemons: self.other_user.len() });
        }
        reasons
    }

    fn tag_reasons(&self, job: &Job<'_>, reasons: &mut Vec<Reason>) {
        // Nothing unmet, and still no match: the one special case of the predicate.
        let of_untagged = self.tags.iter().filter(|(_, unmet)| unmet.len() == 0).count();
        let alone = reasons.is_empty();
        let all_untagged = alone
            && job.tags.get(SCOPE) != Some(tags::SCOPE_USER)
            && self.tags.iter().all(|(daemon, _)| daemon.tags.is_untagged());
        if all_untagged && !self.tags.is_empty() {
            reasons.push(Reason::TaggedJob { daemons: self.tags.len() });
            return;
        }
        let (mut said_untagged, mut said_nearest) = (false, false);
        for (daemon, unmet) in &self.tags {
            if unmet.len() == 0 {
                if !std::mem::replace(&mut said_untagged, true) {
                    let every = alone && of_untagged == self.tags.len();
                    reasons.push(Reason::UntaggedJob { daemons: of_untagged, every });
                }
            } else if !std::mem::replace(&mut said_nearest, true) {
                let (daemon, Unmet { missing, different }) = (daemon.named(), unmet.clone());
                reasons.push(if different.is_empty() {
                    Reason::MissingTag { daemon, missing }
                } else {
                    Reason::DifferentTag { daemon, different, missing }
                });
            }
        }
    }
}

/// The last instant at which something able to run the job was seen, for the reaper of waiting jobs: it fails a job
/// only when this lies further back than the configured time, whatever the length of the queue.
///
/// Able is a daemon of the job's organization, type and tags whose key is live; busy and draining ones are. The result
/// is never before the job began to wait, nor before `watched_since`, the instant from which this server could have
/// seen a daemon: after a server's downtime daemons get the whole time to come back.
#[must_use]
pub fn able_seen_at(
    job: &Job<'_>,
    daemons: &[Daemon<'_>],
    watched_since: Timestamp,
    now: Timestamp,
) -> Timestamp {
    let able = |daemon: &&Daemon<'_>| daemon.matches(job) && matches!(daemon.key, Key::None | Key::Live);
    let seen_at = |daemon: &Daemon<'_>| match daemon.session {
        Session::Connected => Some(now),
        Session::Gone | Session::Unknown => daemon.last_seen_at,
    };
    daemons.iter().filter(able).filter_map(seen_at).fold(job.created_at.max(watched_since), Timestamp::max)
}
