//! The reasons for which a job waits, with their details.

use jiff::Timestamp;

use super::QueueState;
use crate::ids::DaemonId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDaemon {
    /// Its row.
    pub id: DaemonId,
    pub name: String,
}

/// A tag that a daemon has with another value than the job requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagMismatch {
    /// The tag's key.
    pub key: String,
    /// The job's value.
    pub wants: String,
    /// The daemon's value.
    pub has: String,
}

/// Why a job waits. [`Reason::code`], [`Reason::message`] and [`Reason::next_step`] return the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A free daemon exists: the job starts at once.
    Starting {
        /// One that is free.
        daemon: NamedDaemon,
    },
    /// Every daemon that could run it is busy.
    Busy {
        /// How many daemons could run it.
        daemons: usize,
        /// How many jobs these run at once.
        slots: u64,
        /// The job's position in their queue.
        queue: QueueState,
    },
    /// The daemons that could run it can run no jobs now.
    Unhealthy {
        /// One of them.
        daemon: NamedDaemon,
        /// Why, in its own words.
        problem: String,
        /// How many.
        daemons: usize,
    },
    /// The daemons that could run it drain.
    Draining {
        /// One of them.
        daemon: NamedDaemon,
        /// How many.
        daemons: usize,
    },
    /// The daemons that could run it are disconnected.
    NotSeen {
        /// The one that was seen last.
        daemon: NamedDaemon,
        last_seen_at: Option<Timestamp>,
        /// How many are disconnected.
        daemons: usize,
    },
    /// The key of the daemons that could run it has expired.
    KeyExpired {
        /// The one whose key lived longest.
        daemon: NamedDaemon,
        /// When its key expired.
        at: Timestamp,
        /// How many.
        daemons: usize,
    },
    /// The key of the daemons that could run it was deleted.
    KeyRevoked {
        /// The one whose key lived longest.
        daemon: NamedDaemon,
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
        /// Whether these are all daemons of the organization and type.
        every: bool,
    },
    /// The nearest daemon lacks pairs of the job.
    MissingTag {
        /// The nearest daemon.
        daemon: NamedDaemon,
        /// Tags that it lacks, at least one.
        missing: Vec<(String, String)>,
    },
    /// The nearest daemon has another value for a tag of the job.
    DifferentTag {
        /// The nearest daemon.
        daemon: NamedDaemon,
        /// Tags that it has with another value, at least one.
        different: Vec<TagMismatch>,
        /// Tags that it lacks.
        missing: Vec<(String, String)>,
    },
    /// The daemons run the jobs of another user only.
    OtherUser {
        /// One of them.
        daemon: NamedDaemon,
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
