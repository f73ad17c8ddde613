//! The one state machine of a job: who owns it, what may happen to it when, and which messages come too late.
//!
//! A job is never queued twice (scheduling-and-auth JOB-2): it waits, is held by one owner, and ends. What clients see
//! of it is derived ([`Lifecycle::status`]). The database guards each transition with the same conditions.
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
//! [`Limits::cancel_undelivered_after`].

use jiff::{SignedDuration, Timestamp};

use super::{Record, Status, TransitionError};
use crate::ids::DaemonId;
use crate::key::Sha256Digest;

/// How long what may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a session of ours may be away before its jobs fail.
    pub grace: SignedDuration,
    /// How long a connected or official owner may be silent (scheduling-and-auth REAP-1).
    pub hung_after: SignedDuration,
    /// How long nothing able to run a waiting job may have been seen.
    pub pending_after: SignedDuration,
    /// How long a requested cancel waits for an official owner whose connection is gone. Official daemons give up on a
    /// message after 30 s and with it on the job.
    pub cancel_undelivered_after: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            grace: SignedDuration::from_mins(2),
            hung_after: SignedDuration::from_mins(5),
            pending_after: SignedDuration::from_mins(30),
            cancel_undelivered_after: SignedDuration::from_secs(30),
        }
    }
}

/// Who holds, or held, a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The daemon's row.
    pub daemon: DaemonId,
    /// Hash of the session's nonce; none for official daemons.
    pub session: Option<Sha256Digest>,
    /// Grows with each acquisition and return.
    pub epoch: u64,
}

/// Whether the owner is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It is connected, as far as is known.
    Connected,
    /// Its connection ended at this instant.
    Lost(Timestamp),
}

/// The life of a job so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifecycle {
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
        connection: Connection,
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
pub enum JobEvent {
    /// A daemon takes it; `session` is the hash of its session's nonce, none for official daemons.
    Acquire {
        /// Which daemon.
        daemon: DaemonId,
        /// Its session.
        session: Option<Sha256Digest>,
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
        session: Sha256Digest,
    },
    /// Somebody looks whether the owner's grace is over.
    GraceOver,
    /// Somebody looks whether the owner has been silent for too long.
    Silent,
    /// Somebody looks whether a cancel reaches nobody.
    Unheard,
    /// Somebody looks whether anything able to run it has been seen, and knows why it waits.
    Unserved {
        /// When such a daemon was seen last ([`crate::explain::capable_daemon_seen_at`]).
        capable_daemon_seen_at: Timestamp,
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
pub const CANCEL_UNDELIVERED: &str =
    "canceled while its provisioner daemon was away: what it was doing may be unfinished";

impl Lifecycle {
    /// Applies one happening at `now`. Refused ones change nothing.
    pub fn apply(self, what: JobEvent, now: Timestamp, limits: &Limits) -> Result<Self, TransitionError> {
        match what {
            JobEvent::Acquire { daemon, session } => self.acquire(daemon, session, now),
            JobEvent::Update(sender) => self.update(sender, now),
            JobEvent::Complete(sender) => {
                self.require(sender)?;
                self.end(now, String::new())
            }
            JobEvent::Fail(sender, error) => {
                self.require(sender)?;
                self.end(now, error)
            }
            JobEvent::Cancel => self.cancel(now),
            JobEvent::ConnectionLost(sender) => self.connection_lost(sender, now),
            JobEvent::Resume { daemon, session } => self.resume(daemon, session, now),
            JobEvent::GraceOver => match self {
                Self::Held {
                    owner: Owner { session: Some(_), .. },
                    connection: Connection::Lost(at),
                    ..
                } if now.duration_since(at) >= limits.grace => self.end(now, DAEMON_LOST.to_owned()),
                other => Err(other.not_yet()),
            },
            JobEvent::Silent => match &self {
                Self::Held { owner, connection, alive_at, .. }
                    if (*connection == Connection::Connected || owner.session.is_none())
                        && now.duration_since(*alive_at) >= limits.hung_after =>
                {
                    self.end(now, terminated("hung", limits.hung_after))
                }
                other => Err(other.not_yet()),
            },
            JobEvent::Unheard => match self {
                Self::Held {
                    owner: Owner { session: None, .. },
                    connection: Connection::Lost(lost),
                    canceled_at: Some(asked),
                    ..
                } if now.duration_since(lost.max(asked)) >= limits.cancel_undelivered_after => {
                    self.end(now, CANCEL_UNDELIVERED.to_owned())
                }
                other => Err(other.not_yet()),
            },
            JobEvent::Unserved { capable_daemon_seen_at, reason } => match self {
                Self::Waiting if now.duration_since(capable_daemon_seen_at) >= limits.pending_after => {
                    let error = terminated("pending", limits.pending_after);
                    self.end(now, format!("{error} {reason}"))
                }
                Self::Waiting => Err(TransitionError::NotYet),
                Self::Held { .. } => Err(TransitionError::NotPending),
                Self::Ended { .. } => Err(TransitionError::AlreadyCompleted),
            },
            JobEvent::KeyGone { daemon, expired } => {
                self.require_daemon(daemon)?;
                self.end(now, if expired { KEY_EXPIRED } else { KEY_DELETED }.to_owned())
            }
            JobEvent::GiveUp(error) => self.end(now, error),
        }
    }

    fn acquire(
        self,
        daemon: DaemonId,
        session: Option<Sha256Digest>,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        if self != Self::Waiting {
            return Err(TransitionError::NotPending);
        }
        let owner = Owner { daemon, session, epoch: 1 };
        Ok(Self::Held {
            owner,
            since: now,
            alive_at: now,
            connection: Connection::Connected,
            canceled_at: None,
        })
    }

    fn update(mut self, sender: Sender, now: Timestamp) -> Result<Self, TransitionError> {
        self.require(sender)?;
        if let Self::Held { owner, alive_at, connection, .. } = &mut self {
            *alive_at = now.max(*alive_at);
            // A session of ours comes back by its nonce only: this may be the last word of the connection that ended.
            if owner.session.is_none() {
                *connection = Connection::Connected;
            }
        }
        Ok(self)
    }

    fn cancel(mut self, now: Timestamp) -> Result<Self, TransitionError> {
        match &mut self {
            Self::Waiting => Ok(Self::Ended {
                at: now,
                since: None,
                canceled_at: Some(now),
                owner: None,
                error: String::new(),
            }),
            Self::Held { canceled_at: Some(_), .. } => Err(TransitionError::AlreadyCanceled),
            Self::Held { canceled_at, .. } => {
                *canceled_at = Some(now);
                Ok(self)
            }
            Self::Ended { .. } => Err(TransitionError::AlreadyCompleted),
        }
    }

    fn connection_lost(mut self, sender: Sender, now: Timestamp) -> Result<Self, TransitionError> {
        self.require(sender)?;
        if let Self::Held { connection: connection @ Connection::Connected, .. } = &mut self {
            *connection = Connection::Lost(now);
        }
        Ok(self)
    }

    fn resume(
        mut self,
        daemon: DaemonId,
        session: Sha256Digest,
        now: Timestamp,
    ) -> Result<Self, TransitionError> {
        self.require_daemon(daemon)?;
        match &mut self {
            Self::Held { owner, alive_at, connection, .. } => {
                if !owner.session.is_some_and(|own| own.verify(&session)) {
                    return Err(TransitionError::NotOwner);
                }
                owner.epoch += 1;
                *alive_at = now.max(*alive_at);
                *connection = Connection::Connected;
                Ok(self)
            }
            Self::Waiting | Self::Ended { .. } => Err(TransitionError::NotRunning),
        }
    }

    fn end(self, at: Timestamp, error: String) -> Result<Self, TransitionError> {
        match self {
            // Officially a job that ends in failure has begun (scheduling-and-auth REAP-4).
            Self::Waiting => Ok(Self::Ended { at, since: Some(at), canceled_at: None, owner: None, error }),
            Self::Held { owner, since, canceled_at, .. } => {
                Ok(Self::Ended { at, since: Some(since), canceled_at, owner: Some(owner), error })
            }
            Self::Ended { .. } => Err(TransitionError::AlreadyCompleted),
        }
    }

    /// Whether this sender may report on the job now (scheduling-and-auth 3.3, CONF-16: ended jobs refuse).
    pub fn require(&self, sender: Sender) -> Result<(), TransitionError> {
        self.require_daemon(sender.daemon)?;
        match self {
            Self::Held { owner, .. } => match sender.epoch {
                Some(epoch) if epoch == owner.epoch => Ok(()),
                Some(_) => Err(TransitionError::Superseded),
                None if owner.session.is_none() => Ok(()),
                None => Err(TransitionError::NotOwner),
            },
            Self::Waiting | Self::Ended { .. } => Err(TransitionError::NotRunning),
        }
    }

    fn require_daemon(&self, daemon: DaemonId) -> Result<(), TransitionError> {
        match self {
            Self::Waiting => Err(TransitionError::NotRunning),
            Self::Held { owner, .. } | Self::Ended { owner: Some(owner), .. } if owner.daemon != daemon => {
                Err(TransitionError::NotOwner)
            }
            Self::Held { .. } => Ok(()),
            Self::Ended { .. } => Err(TransitionError::AlreadyCompleted),
        }
    }

    fn not_yet(&self) -> TransitionError {
        match self {
            Self::Waiting => TransitionError::NotRunning,
            Self::Held { .. } => TransitionError::NotYet,
            Self::Ended { .. } => TransitionError::AlreadyCompleted,
        }
    }

    /// The instants and texts that clients see.
    #[must_use]
    pub fn record(&self) -> Record {
        match self {
            Self::Waiting => Record::default(),
            Self::Held { owner, since, canceled_at, .. } => Record {
                started_at: Some(*since),
                canceled_at: *canceled_at,
                worker: Some(owner.daemon),
                ..Record::default()
            },
            Self::Ended { at, since, canceled_at, owner, error } => Record {
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
        self.record().status()
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
