//! The state machine of a job: who holds it, which events may change it, and when the server ends it.
//!
//! A job is never queued twice (scheduling-and-auth JOB-2): it waits, is held by one owner, and ends. What clients see
//! of it is derived ([`Lifecycle::status`]). The database guards each transition with the same conditions; a test of the
//! store runs random events against this machine and both database engines.
//!
//! # Fencing
//!
//! Each time a job gets an owner, and each time its owner resumes it, the job's *epoch* grows. Our daemons send the
//! epoch with every message (it is part of the job's token), so that messages of an earlier connection are refused.
//! Official daemons know no epoch: they are recognised by their row alone, as officially, and only on jobs that an
//! official daemon acquired. They cannot change a job that one of our sessions holds, whatever their name.
//!
//! # A lost connection
//!
//! One of our sessions has [`Limits::reconnect_grace`] to resume its jobs with its nonce; after that they fail as lost.
//! An official daemon cannot resume; its next message shows that it is back. It keeps the official rule
//! ([`Limits::hung_after`] of silence). A canceled job whose official daemon is disconnected ends earlier, after
//! [`Limits::cancel_undelivered_after`].
//!
//! # When the server ends a job
//!
//! [`Lifecycle::deadline`] and [`Lifecycle::due_pending`] decide it, for every caller: the reaper, the timers of lost
//! connections and the cancel of a job. The [`Ending`] that they return carries a [`Guard`], so that a job that changed
//! in between is left alone.

use jiff::{SignedDuration, Timestamp};

use super::{Record, Status, TransitionError};
use crate::ids::DaemonId;
use crate::key::Sha256Digest;

/// After which time the server ends a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long one of our sessions may be disconnected before its jobs fail.
    pub reconnect_grace: SignedDuration,
    /// How long a connected or official owner may be silent (scheduling-and-auth REAP-1).
    pub hung_after: SignedDuration,
    /// How long a job may wait without any daemon that could run it.
    pub pending_after: SignedDuration,
    /// How long a requested cancel waits for an official owner whose connection ended. Official daemons give up on a
    /// message after 30 s and with it on the job.
    pub cancel_undelivered_after: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reconnect_grace: SignedDuration::from_mins(2),
            hung_after: SignedDuration::from_mins(5),
            pending_after: SignedDuration::from_mins(30),
            cancel_undelivered_after: SignedDuration::from_secs(30),
        }
    }
}

impl Limits {
    /// No held job is due before its owner was silent for this long, so a query may skip the others.
    #[must_use]
    pub fn shortest_silence(&self) -> SignedDuration {
        self.reconnect_grace.min(self.hung_after).min(self.cancel_undelivered_after)
    }
}

/// Who holds, or held, a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The id of the daemon's row.
    pub daemon: DaemonId,
    /// Hash of the session's nonce; none for official daemons.
    pub session: Option<Sha256Digest>,
    /// Grows with each acquisition and resumption.
    pub epoch: u64,
}

/// The connection of a job's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It is open, as far as is known.
    Connected,
    /// It ended at this instant.
    Lost(Timestamp),
    /// The server started at this instant and has not heard of the owner. The connection may have ended with the
    /// server's previous process, or another replica may have it. Never stored.
    Unknown(Timestamp),
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// It waits for a daemon.
    Waiting,
    /// A daemon works on it.
    Held {
        /// The daemon.
        owner: Owner,
        /// When the daemon acquired it.
        since: Timestamp,
        /// The owner's last heartbeat.
        alive_at: Timestamp,
        /// The owner's connection.
        connection: Connection,
        /// When a cancel was requested.
        canceled_at: Option<Timestamp>,
    },
    /// It has ended; this state is final.
    Ended {
        /// When it ended.
        at: Timestamp,
        /// When a daemon acquired it, if one did.
        since: Option<Timestamp>,
        /// When a cancel was requested.
        canceled_at: Option<Timestamp>,
        /// The last owner, if it had one.
        owner: Option<Owner>,
        /// Why it failed; empty when it did not.
        error: String,
    },
}

/// The sender of a message about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The daemon's row, from its credential and name.
    pub daemon: DaemonId,
    /// The epoch in the message's token; none from official daemons.
    pub epoch: Option<u64>,
}

/// An event that may change a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// A daemon acquires it.
    Acquire {
        daemon: DaemonId,
        /// Hash of its session's nonce; none for official daemons.
        session: Option<Sha256Digest>,
    },
    /// A heartbeat of its owner.
    Update(Sender),
    /// Its owner reports success.
    Complete(Sender),
    /// Its owner reports failure. Officially an empty text means success, or, after a cancel, that it was canceled.
    Fail(Sender, String),
    /// A person requests a cancel.
    Cancel,
    /// The connection of this sender ended.
    ConnectionLost(Sender),
    /// A session resumes the job and proves with its nonce who it is.
    Resume {
        daemon: DaemonId,
        /// Hash of the nonce that it presents.
        session: Sha256Digest,
    },
    /// The server ends it.
    End(Ending),
}

/// The error of a job that was handed to a daemon and never reached it, in the official words.
pub const NOT_DELIVERED: &str = "connection to provisioner daemon broken";

/// What must still be true of a job when the server ends it. The store puts it into the statement that ends the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It has not ended.
    Open,
    /// No daemon has acquired it.
    Pending,
    /// This daemon holds it.
    HeldBy(DaemonId),
    /// Its owner's last heartbeat is this one.
    SilentSince(Timestamp),
    /// Its owner's connection ended then and was not restored.
    LostSince(Timestamp),
}

impl Guard {
    /// Whether it holds for a job in this state.
    #[must_use]
    pub fn holds(self, job: &Lifecycle) -> bool {
        match (self, job) {
            (_, Lifecycle::Ended { .. }) => false,
            (Self::Open, _) | (Self::Pending, Lifecycle::Waiting) => true,
            (Self::HeldBy(daemon), Lifecycle::Held { owner, .. }) => owner.daemon == daemon,
            (Self::SilentSince(at), Lifecycle::Held { alive_at, .. }) => *alive_at == at,
            (Self::LostSince(at), Lifecycle::Held { connection, .. }) => *connection == Connection::Lost(at),
            _ => false,
        }
    }
}

/// Why the server ends a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its daemon's connection ended and the daemon did not come back within [`Limits::reconnect_grace`].
    DaemonLost,
    /// The process of its daemon is known to be gone.
    DaemonProcessGone,
    /// Its owner was silent for this time.
    Hung(SignedDuration),
    /// It was canceled while its official daemon was disconnected.
    CancelUndelivered,
    /// For this time there was no daemon that could run it; with the reason for which it waits.
    NoDaemon(SignedDuration, String),
    /// The key with which its daemon joined was deleted.
    KeyDeleted,
    /// The key with which its daemon joined has expired.
    KeyExpired,
    /// The token with which its daemon joined was deleted or has expired.
    TokenEnded,
    /// The user with whose token its daemon joined may not run it any more.
    UserNotAllowed,
    /// The organization of its daemon was removed.
    OrganizationRemoved,
    /// It was handed to a daemon and never reached it.
    NotDelivered,
}

impl Cause {
    /// The error of the job.
    #[must_use]
    pub fn error(&self) -> String {
        match self {
            Self::DaemonLost | Self::DaemonProcessGone => {
                "daemon lost: its connection ended and it did not come back in time".to_owned()
            }
            Self::Hung(after) => format!("{} has been terminated by the reaper.", detected("hung", *after)),
            Self::CancelUndelivered => {
                "canceled while its provisioner daemon was disconnected: its work may be unfinished"
                    .to_owned()
            }
            Self::NoDaemon(after, reason) => {
                let detected = detected("pending", *after);
                format!("{detected} has been terminated by the reaper. {reason}").trim_end().to_owned()
            }
            Self::KeyDeleted => "the key of the provisioner daemon was deleted".to_owned(),
            Self::KeyExpired => "the key of the provisioner daemon has expired".to_owned(),
            Self::TokenEnded => {
                "the token that the provisioner daemon joined with was deleted or has expired".to_owned()
            }
            Self::UserNotAllowed => {
                "the user whose token the provisioner daemon joined with may not run it any more".to_owned()
            }
            Self::OrganizationRemoved => "the organization of the provisioner daemon was removed".to_owned(),
            Self::NotDelivered => NOT_DELIVERED.to_owned(),
        }
    }

    /// The line that the job's log ends with.
    #[must_use]
    pub fn log_line(&self) -> String {
        match self {
            Self::DaemonLost | Self::CancelUndelivered => format!("Coder: {}.", self.error()),
            Self::DaemonProcessGone => {
                "Coder: the process of the provisioner daemon that held the job is gone.".to_owned()
            }
            Self::Hung(after) => format!("{} will be terminated.", detected("hung", *after)),
            Self::NoDaemon(after, reason) => {
                format!("{} will be terminated. {reason}", detected("pending", *after)).trim_end().to_owned()
            }
            Self::NotDelivered => {
                "Coder: the job was handed to a provisioner daemon and never reached it.".to_owned()
            }
            Self::KeyDeleted
            | Self::KeyExpired
            | Self::TokenEnded
            | Self::UserNotAllowed
            | Self::OrganizationRemoved => format!("Coder: {}; the job has been ended.", self.error()),
        }
    }

    /// The value of the label `reason` in metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::DaemonLost | Self::DaemonProcessGone | Self::CancelUndelivered => "lost",
            Self::Hung(_) => "hung",
            Self::NoDaemon(..) => "pending",
            Self::KeyDeleted
            | Self::KeyExpired
            | Self::TokenEnded
            | Self::UserNotAllowed
            | Self::OrganizationRemoved
            | Self::NotDelivered => "other",
        }
    }
}

/// The server's decision to end a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// What must still be true of the job.
    pub guard: Guard,
    /// Why it ends.
    pub cause: Cause,
}

/// The beginning of the official texts about reaped jobs (scheduling-and-auth REAP-3, REAP-4).
fn detected(state: &str, after: SignedDuration) -> String {
    let minutes = after.as_mins();
    let length =
        if minutes > 0 { format!("{minutes} minutes") } else { format!("{} seconds", after.as_secs()) };
    format!("Coder: Build has been detected as {state} for {length} and")
}

/// When the server ends a job, and why, if nothing happens to the job before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The first instant at which the ending is due.
    pub at: Timestamp,
    pub ending: Ending,
}

impl Lifecycle {
    /// Applies one event at `now`. A refused event changes nothing.
    pub fn apply(self, event: JobEvent, now: Timestamp) -> Result<Self, TransitionError> {
        match event {
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
            JobEvent::End(ending) => match self {
                Self::Ended { .. } => Err(TransitionError::AlreadyCompleted),
                open if ending.guard.holds(&open) => open.end(now, ending.cause.error()),
                _ => Err(TransitionError::Changed),
            },
        }
    }

    /// The deadline of a held job. Waiting and ended jobs have none.
    ///
    /// Silence and absence count from `watched_since` at the earliest: the start of this server, or the instant at which
    /// its clock was set. Daemons that were cut off by the server's downtime get the whole time to come back.
    #[must_use]
    pub fn deadline(&self, limits: &Limits, watched_since: Timestamp) -> Option<Deadline> {
        let Self::Held { owner, alive_at, connection, canceled_at, .. } = self else { return None };
        let deadline = |since: Timestamp, limit: SignedDuration, guard, cause| Deadline {
            at: since.max(watched_since).saturating_add(limit).unwrap_or(Timestamp::MAX),
            ending: Ending { guard, cause },
        };
        let silent = Guard::SilentSince(*alive_at);
        let hung = deadline(*alive_at, limits.hung_after, silent, Cause::Hung(limits.hung_after));
        Some(match (owner.session, *connection, *canceled_at) {
            // A last message of the ended connection may arrive after its end was noticed.
            (Some(_), Connection::Lost(at), _) => {
                deadline(at.max(*alive_at), limits.reconnect_grace, Guard::LostSince(at), Cause::DaemonLost)
            }
            (Some(_), Connection::Unknown(start), _) => {
                deadline(start.max(*alive_at), limits.reconnect_grace, silent, Cause::DaemonLost)
            }
            (None, Connection::Lost(at), Some(canceled_at)) => {
                let (since, limit) = (at.max(canceled_at), limits.cancel_undelivered_after);
                let undelivered = deadline(since, limit, Guard::LostSince(at), Cause::CancelUndelivered);
                if undelivered.at < hung.at { undelivered } else { hung }
            }
            _ => hung,
        })
    }

    /// Why the server ends this held job now, if it does.
    #[must_use]
    pub fn due(&self, now: Timestamp, limits: &Limits, watched_since: Timestamp) -> Option<Ending> {
        let deadline = self.deadline(limits, watched_since)?;
        (now >= deadline.at).then_some(deadline.ending)
    }

    /// Why the server ends this waiting job now, if it does: for the whole time no daemon was seen that could run it.
    /// `capable_daemon_seen_at` is when one was seen last ([`crate::explain::capable_daemon_seen_at`]), `reason` why the
    /// job waits, for people.
    #[must_use]
    pub fn due_pending(
        &self,
        now: Timestamp,
        limits: &Limits,
        capable_daemon_seen_at: Timestamp,
        reason: &str,
    ) -> Option<Ending> {
        let cause = || Cause::NoDaemon(limits.pending_after, reason.to_owned());
        let is_due =
            *self == Self::Waiting && now.duration_since(capable_daemon_seen_at) >= limits.pending_after;
        is_due.then(|| Ending { guard: Guard::Pending, cause: cause() })
    }

    /// The same job for a server that started at `start` and has not heard of the job's owner.
    #[must_use]
    pub fn after_restart(mut self, start: Timestamp) -> Self {
        if let Self::Held { connection: connection @ Connection::Connected, .. } = &mut self {
            *connection = Connection::Unknown(start);
        }
        self
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
            // A session resumes only with its nonce: this message may come from the ended connection.
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
