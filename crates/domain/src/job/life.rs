//! The one state machine of a job: who owns it, what may happen to it when, and which messages come too late.
//!
//! A job is never queued twice (scheduling-and-auth JOB-2): it waits, is held by one owner, and ends. What clients see
//! of it is derived ([`Life::status`]). The database guards each transition with the same conditions.
//!
//! # Fencing
//!
//! Each time a job gets an owner, and each time its owner comes back, the job's *epoch* grows. A daemon of ours shows
//! the epoch with every message (its token carries it), so that whatever an earlier connection still says is refused
//! and changes nothing. Official daemons know no epoch: they are recognised by their row alone, as officially, and
//! only on jobs that an official daemon acquired; they cannot touch a job that a session of ours holds, whatever
//! their name.
//!
//! # A lost connection
//!
//! A session of ours has [`Limits::grace`] to come back with its nonce; when that is over the job fails as lost. An
//! official daemon says nothing when it comes back; its next message shows it. It keeps the official rule
//! ([`Limits::hung_after`] of silence), except for a job whose cancel nobody is there to hear, which ends after
//! [`Limits::unheard_after`].

use jiff::{SignedDuration, Timestamp};

use super::{Facts, InvalidTransition, Status};
use crate::ids::DaemonId;
use crate::key::Hashed;

/// How long what may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a session of ours may be away before its jobs fail.
    pub grace: SignedDuration,
    /// How long a connected or official owner may be silent (scheduling-and-auth REAP-1).
    pub hung_after: SignedDuration,
    /// How long nothing able to run a waiting job may have been seen.
    pub unserved_after: SignedDuration,
    /// How long a requested cancel waits for an official owner whose connection is gone. Official daemons give up on a
    /// message after 30 s and with it on the job.
    pub unheard_after: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            grace: SignedDuration::from_mins(2),
            hung_after: SignedDuration::from_mins(5),
            unserved_after: SignedDuration::from_mins(30),
            unheard_after: SignedDuration::from_secs(30),
        }
    }
}

/// Who holds, or held, a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The daemon's row.
    pub daemon: DaemonId,
    /// Hash of the session's nonce; none for official daemons.
    pub session: Option<Hashed>,
    /// Grows with each acquisition and return.
    pub epoch: u64,
}

/// Whether the owner is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It is connected, as far as is known.
    Connected,
    /// Its connection ended at this instant.
    Lost(Timestamp),
}

/// The life of a job so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// It waits for a daemon.
    Waiting,
    /// A daemon works on it.
    Held {
        /// Which.
        owner: Owner,
        /// Since when.
        since: Timestamp,
        /// The owner's last sign of life.
        alive_at: Timestamp,
        /// The owner's connection.
        link: Link,
        /// When a cancel was asked for.
        canceled_at: Option<Timestamp>,
    },
    /// Nothing changes any more.
    Ended {
        /// When.
        at: Timestamp,
        /// When it began, if it did.
        since: Option<Timestamp>,
        /// When a cancel was asked for.
        canceled_at: Option<Timestamp>,
        /// The last owner, if it had one.
        owner: Option<Owner>,
        /// Why it failed; empty when it did not.
        error: String,
    },
}

/// Who says something about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The daemon's row, from its credential and name.
    pub daemon: DaemonId,
    /// The epoch out of the message's token; none from official daemons.
    pub epoch: Option<u64>,
}

/// Something that happens to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A daemon takes it; `session` is the hash of its session's nonce, none for official daemons.
    Acquire {
        /// Which daemon.
        daemon: DaemonId,
        /// Its session.
        session: Option<Hashed>,
    },
    /// Its owner shows that it lives.
    Update(Sender),
    /// Its owner reports success.
    Complete(Sender),
    /// Its owner reports failure. Officially an empty text is none: such a job has succeeded, or was canceled.
    Fail(Sender, String),
    /// A person asks to stop it.
    Cancel,
    /// The connection over which this sender spoke has ended.
    ConnectionLost(Sender),
    /// A session comes back and proves with its nonce who it is.
    Resume {
        /// Which daemon.
        daemon: DaemonId,
        /// Hash of the nonce that it presents.
        session: Hashed,
    },
    /// Somebody looks whether the owner's grace is over.
    GraceOver,
    /// Somebody looks whether the owner has been silent for too long.
    Silent,
    /// Somebody looks whether a cancel reaches nobody.
    Unheard,
    /// Somebody looks whether anything able to run it has been seen, and knows why it waits.
    Unserved {
        /// When such a daemon was seen last ([`crate::explain::able_seen_at`]).
        able_seen_at: Timestamp,
        /// Why it waits, for people.
        reason: String,
    },
    /// The key with which this daemon joined was deleted, or has expired.
    KeyGone {
        /// Which daemon.
        daemon: DaemonId,
        /// Whether it expired.
        expired: bool,
    },
    /// The server cannot hand it over, or an operator ends it.
    GiveUp(String),
}

/// What a job fails with when its daemon did not come back in time.
pub const DAEMON_LOST: &str = "daemon lost: its connection ended and it did not come back in time";
/// What a job fails with when its owner's key is deleted.
pub const KEY_DELETED: &str = "the key of the provisioner daemon was deleted";
/// What a job fails with when its owner's key expires.
pub const KEY_EXPIRED: &str = "the key of the provisioner daemon has expired";
/// What a job fails with when its cancel reached nobody.
pub const CANCEL_UNHEARD: &str =
    "canceled while its provisioner daemon was away: what it was doing may be unfinished";

impl Life {
    /// Applies one happening at `now`. Refused ones change nothing.
    pub fn apply(self, what: Happening, now: Timestamp, limits: &Limits) -> Result<Self, InvalidTransition> {
        match what {
            Happening::Acquire { daemon, session } => self.acquire(daemon, session, now),
            Happening::Update(sender) => self.update(sender, now),
            Happening::Complete(sender) => {
                self.require(sender)?;
                self.end(now, String::new())
            }
            Happening::Fail(sender, error) => {
                self.require(sender)?;
                self.end(now, error)
            }
            Happening::Cancel => self.cancel(now),
            Happening::ConnectionLost(sender) => self.connection_lost(sender, now),
            Happening::Resume { daemon, session } => self.resume(daemon, session, now),
            Happening::GraceOver => match self {
                Self::Held { owner: Owner { session: Some(_), .. }, link: Link::Lost(at), .. }
                    if now.duration_since(at) >= limits.grace =>
                {
                    self.end(now, DAEMON_LOST.to_owned())
                }
                other => Err(other.not_yet()),
            },
            Happening::Silent => match &self {
                Self::Held { owner, link, alive_at, .. }
                    if (*link == Link::Connected || owner.session.is_none())
                        && now.duration_since(*alive_at) >= limits.hung_after =>
                {
                    self.end(now, terminated("hung", limits.hung_after))
                }
                other => Err(other.not_yet()),
            },
            Happening::Unheard => match self {
                Self::Held {
                    owner: Owner { session: None, .. },
                    link: Link::Lost(lost),
                    canceled_at: Some(asked),
                    ..
                } if now.duration_since(lost.max(asked)) >= limits.unheard_after => {
                    self.end(now, CANCEL_UNHEARD.to_owned())
                }
                other => Err(other.not_yet()),
            },
            Happening::Unserved { able_seen_at, reason } => match self {
                Self::Waiting if now.duration_since(able_seen_at) >= limits.unserved_after => {
                    let error = terminated("pending", limits.unserved_after);
                    self.end(now, format!("{error} {reason}"))
                }
                Self::Waiting => Err(InvalidTransition::NotYet),
                Self::Held { .. } => Err(InvalidTransition::NotPending),
                Self::Ended { .. } => Err(InvalidTransition::AlreadyCompleted),
            },
            Happening::KeyGone { daemon, expired } => {
                self.require_daemon(daemon)?;
                self.end(now, if expired { KEY_EXPIRED } else { KEY_DELETED }.to_owned())
            }
            Happening::GiveUp(error) => self.end(now, error),
        }
    }

    fn acquire(
        self,
        daemon: DaemonId,
        session: Option<Hashed>,
        now: Timestamp,
    ) -> Result<Self, InvalidTransition> {
        if self != Self::Waiting {
            return Err(InvalidTransition::NotPending);
        }
        let owner = Owner { daemon, session, epoch: 1 };
        Ok(Self::Held { owner, since: now, alive_at: now, link: Link::Connected, canceled_at: None })
    }

    fn update(mut self, sender: Sender, now: Timestamp) -> Result<Self, InvalidTransition> {
        self.require(sender)?;
        if let Self::Held { owner, alive_at, link, .. } = &mut self {
            *alive_at = now.max(*alive_at);
            // A session of ours comes back by its nonce only: this may be the last word of the connection that ended.
            if owner.session.is_none() {
                *link = Link::Connected;
            }
        }
        Ok(self)
    }

    fn cancel(mut self, now: Timestamp) -> Result<Self, InvalidTransition> {
        match &mut self {
            Self::Waiting => Ok(Self::Ended {
                at: now,
                since: None,
                canceled_at: Some(now),
                owner: None,
                error: String::new(),
            }),
            Self::Held { canceled_at: Some(_), .. } => Err(InvalidTransition::AlreadyCanceled),
            Self::Held { canceled_at, .. } => {
                *canceled_at = Some(now);
                Ok(self)
            }
            Self::Ended { .. } => Err(InvalidTransition::AlreadyCompleted),
        }
    }

    fn connection_lost(mut self, sender: Sender, now: Timestamp) -> Result<Self, InvalidTransition> {
        self.require(sender)?;
        if let Self::Held { link: link @ Link::Connected, .. } = &mut self {
            *link = Link::Lost(now);
        }
        Ok(self)
    }

    fn resume(
        mut self,
        daemon: DaemonId,
        session: Hashed,
        now: Timestamp,
    ) -> Result<Self, InvalidTransition> {
        self.require_daemon(daemon)?;
        match &mut self {
            Self::Held { owner, alive_at, link, .. } => {
                if !owner.session.is_some_and(|own| own.verify(&session)) {
                    return Err(InvalidTransition::NotOwner);
                }
                owner.epoch += 1;
                *alive_at = now.max(*alive_at);
                *link = Link::Connected;
                Ok(self)
            }
            Self::Waiting | Self::Ended { .. } => Err(InvalidTransition::NotRunning),
        }
    }

    fn end(self, at: Timestamp, error: String) -> Result<Self, InvalidTransition> {
        match self {
            // Officially a job that ends in failure has begun (scheduling-and-auth REAP-4).
            Self::Waiting => Ok(Self::Ended { at, since: Some(at), canceled_at: None, owner: None, error }),
            Self::Held { owner, since, canceled_at, .. } => {
                Ok(Self::Ended { at, since: Some(since), canceled_at, owner: Some(owner), error })
            }
            Self::Ended { .. } => Err(InvalidTransition::AlreadyCompleted),
        }
    }

    /// Whether this sender may report on the job now (scheduling-and-auth 3.3, CONF-16: ended jobs refuse).
    pub fn require(&self, sender: Sender) -> Result<(), InvalidTransition> {
        self.require_daemon(sender.daemon)?;
        match self {
            Self::Held { owner, .. } => match sender.epoch {
                Some(epoch) if epoch == owner.epoch => Ok(()),
                Some(_) => Err(InvalidTransition::Superseded),
                None if owner.session.is_none() => Ok(()),
                None => Err(InvalidTransition::NotOwner),
            },
            Self::Waiting | Self::Ended { .. } => Err(InvalidTransition::NotRunning),
        }
    }

    fn require_daemon(&self, daemon: DaemonId) -> Result<(), InvalidTransition> {
        match self {
            Self::Waiting => Err(InvalidTransition::NotRunning),
            Self::Held { owner, .. } | Self::Ended { owner: Some(owner), .. } if owner.daemon != daemon => {
                Err(InvalidTransition::NotOwner)
            }
            Self::Held { .. } => Ok(()),
            Self::Ended { .. } => Err(InvalidTransition::AlreadyCompleted),
        }
    }

    fn not_yet(&self) -> InvalidTransition {
        match self {
            Self::Waiting => InvalidTransition::NotRunning,
            Self::Held { .. } => InvalidTransition::NotYet,
            Self::Ended { .. } => InvalidTransition::AlreadyCompleted,
        }
    }

    /// The instants and texts that clients see.
    #[must_use]
    pub fn facts(&self) -> Facts {
        match self {
            Self::Waiting => Facts::default(),
            Self::Held { owner, since, canceled_at, .. } => Facts {
                started_at: Some(*since),
                canceled_at: *canceled_at,
                worker: Some(owner.daemon),
                ..Facts::default()
            },
            Self::Ended { at, since, canceled_at, owner, error } => Facts {
                started_at: *since,
                canceled_at: *canceled_at,
                completed_at: Some(*at),
                error: error.clone(),
                worker: owner.map(|owner| owner.daemon),
            },
        }
    }

    /// What clients see of the state.
    #[must_use]
    pub fn status(&self) -> Status {
        self.facts().status()
    }

    /// The epoch that the owner must show; none unless it is held.
    #[must_use]
    pub const fn epoch(&self) -> Option<u64> {
        match self {
            Self::Held { owner, .. } => Some(owner.epoch),
            Self::Waiting | Self::Ended { .. } => None,
        }
    }
}

/// The error text of a reaped job (scheduling-and-auth REAP-4).
#[must_use]
pub fn terminated(how: &str, after: SignedDuration) -> String {
    let minutes = after.as_mins();
    let length =
        if minutes > 0 { format!("{minutes} minutes") } else { format!("{} seconds", after.as_secs()) };
    format!("Coder: Build has been detected as {how} for {length} and has been terminated by the reaper.")
}
