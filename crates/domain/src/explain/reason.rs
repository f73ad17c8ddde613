//! The reasons for which a job waits, with what is worth knowing of each.

use jiff::Timestamp;

use super::QueueState;
use crate::ids::DaemonId;

/// A daemon that a reason names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDaemon {
    /// Its row.
    pub id: DaemonId,
    /// Its name.
    pub name: String,
}

/// A pair that a daemon has with another value than the job wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagMismatch {
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
        daemon: NamedDaemon,
    },
    /// Every daemon that could take it has its hands full.
    Busy {
        /// How many daemons could take it.
        daemons: usize,
        /// How many jobs these run at once.
        slots: u64,
        /// The job's place in their queue.
        queue: QueueState,
    },
    /// The daemons that could take it can run no jobs now.
    Unhealthy {
        /// One of them.
        daemon: NamedDaemon,
        /// Why, in its own words.
        problem: String,
        /// How many.
        daemons: usize,
    },
    /// The daemons that could take it were told to take no more.
    Draining {
        /// One of them.
        daemon: NamedDaemon,
        /// How many.
        daemons: usize,
    },
    /// The daemons that could take it are away.
    NotSeen {
        /// The one seen last.
        daemon: NamedDaemon,
        /// When that was.
        last_seen_at: Option<Timestamp>,
        /// How many are away.
        daemons: usize,
    },
    /// The key of the daemons that could take it has expired.
    KeyExpired {
        /// The one whose key lived longest.
        daemon: NamedDaemon,
        /// When its key expired.
        at: Timestamp,
        /// How many.
        daemons: usize,
    },
    /// The key of the daemons that could take it was deleted.
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
        /// Whether these are all daemons that come into question.
        every: bool,
    },
    /// The nearest daemon lacks pairs of the job.
    MissingTag {
        /// The nearest daemon.
        daemon: NamedDaemon,
        /// Pairs it lacks, at least one.
        missing: Vec<(String, String)>,
    },
    /// The nearest daemon has another value for a tag of the job.
    DifferentTag {
        /// The nearest daemon.
        daemon: NamedDaemon,
        /// Tags of which it has another value, at least one.
        different: Vec<TagMismatch>,
        /// Pairs it lacks besides.
        missing: Vec<(String, String)>,
    },
    /// The daemons there are serve another user only.
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
