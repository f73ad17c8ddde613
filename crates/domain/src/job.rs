//! The life of a provisioner job: types, states, transitions, and the status every client sees.

pub mod lifecycle;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::DaemonId;
use crate::key::Sha256Digest;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    /// Reads a template's sources into a template version.
    TemplateVersionImport,
    /// Starts, stops or deletes a workspace.
    WorkspaceBuild,
    /// Plans a template version with given parameters.
    TemplateVersionDryRun,
}

impl Type {
    /// All types.
    pub const ALL: [Self; 3] =
        [Self::TemplateVersionImport, Self::WorkspaceBuild, Self::TemplateVersionDryRun];

    /// The word used in JSON and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TemplateVersionImport => "template_version_import",
            Self::WorkspaceBuild => "workspace_build",
            Self::TemplateVersionDryRun => "template_version_dry_run",
        }
    }
}

/// A word outside an enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {value:?}")]
pub struct UnknownVariant {
    /// What was being read.
    pub what: &'static str,
    /// The word found.
    pub value: String,
}

impl FromStr for Type {
    type Err = UnknownVariant;
    fn from_str(word: &str) -> Result<Self, UnknownVariant> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        found.ok_or_else(|| UnknownVariant { what: "job type", value: word.to_owned() })
    }
}

/// What clients see of a job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for a daemon.
    Pending,
    /// A daemon works on it.
    Running,
    /// Ended well.
    Succeeded,
    /// A cancel was asked for and the daemon has not ended yet.
    Canceling,
    /// Ended after a cancel, without an error.
    Canceled,
    /// Ended with an error.
    Failed,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Succeeded, Self::Canceling, Self::Canceled, Self::Failed];

    /// The word used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Canceling => "canceling",
            Self::Canceled => "canceled",
            Self::Failed => "failed",
        }
    }

    /// Whether the job can still change.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Running | Self::Canceling)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = UnknownVariant;
    fn from_str(word: &str) -> Result<Self, UnknownVariant> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == word);
        found.ok_or_else(|| UnknownVariant { what: "job status", value: word.to_owned() })
    }
}

/// The stored facts a job's state is derived from; there is no stored status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When a daemon took it.
    pub started_at: Option<Timestamp>,
    /// When a cancel was asked for.
    pub canceled_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// The error text, possibly empty.
    pub error: String,
    /// The daemon that has, or had, it.
    pub worker: Option<DaemonId>,
}

impl Record {
    /// The status (scheduling-and-auth 3.1, first matching row).
    #[must_use]
    pub fn status(&self) -> Status {
        match (self.completed_at.is_some(), !self.error.is_empty(), self.canceled_at.is_some()) {
            (_, true, _) => Status::Failed,
            (true, false, true) => Status::Canceled,
            (true, false, false) => Status::Succeeded,
            (false, false, true) => Status::Canceling,
            (false, false, false) if self.started_at.is_some() => Status::Running,
            (false, false, false) => Status::Pending,
        }
    }
}

/// Something that happens to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A daemon takes it.
    Acquire(DaemonId),
    /// A user asks to stop it.
    Cancel,
    /// Its daemon reports success.
    Complete(DaemonId),
    /// Its daemon reports failure.
    Fail(DaemonId, String),
    /// The server gives up on it.
    Reap(String),
}

/// An event that cannot happen in a job's present state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// Taken, canceled or ended before.
    #[error("job is not waiting for a daemon")]
    NotPending,
    /// Nobody has taken it yet.
    #[error("job isn't running yet")]
    NotRunning,
    /// Another daemon has it.
    #[error("you don't own this job")]
    NotOwner,
    /// It has ended.
    #[error("job already completed")]
    AlreadyCompleted,
    /// A cancel was asked for before.
    #[error("job has already been marked as canceled")]
    AlreadyCanceled,
    /// The same daemon has come back over another connection since.
    #[error("another connection of this daemon has taken the job over")]
    Superseded,
    /// The time that must pass first has not passed, or something else must happen first.
    #[error("it is too early to give up on the job")]
    NotYet,
}

impl Record {
    /// Applies one event at `now`, as [`lifecycle::Lifecycle`] has it for daemons that hold no session.
    pub fn apply(self, event: Event, now: Timestamp) -> Result<Self, TransitionError> {
        let sender = |daemon| lifecycle::Sender { daemon, epoch: None };
        let what = match event {
            Event::Acquire(daemon) => lifecycle::JobEvent::Acquire { daemon, session: None },
            Event::Cancel => lifecycle::JobEvent::Cancel,
            Event::Complete(daemon) => lifecycle::JobEvent::Complete(sender(daemon)),
            Event::Fail(daemon, error) => lifecycle::JobEvent::Fail(sender(daemon), error),
            Event::Reap(error) => lifecycle::JobEvent::GiveUp(error),
        };
        Ok(self.lifecycle(None, 1, now).apply(what, now, &lifecycle::Limits::default())?.record())
    }

    /// The life of which these are the visible facts. `session` and `epoch` are the owner's; `alive_at` is its last sign
    /// of life; whether its connection is lost is the caller's to add.
    #[must_use]
    pub fn lifecycle(
        self,
        session: Option<Sha256Digest>,
        epoch: u64,
        alive_at: Timestamp,
    ) -> lifecycle::Lifecycle {
        let owner = self.worker.map(|daemon| lifecycle::Owner { daemon, session, epoch });
        match (self.completed_at, owner) {
            (Some(at), owner) => lifecycle::Lifecycle::Ended {
                at,
                since: self.started_at,
                canceled_at: self.canceled_at,
                owner,
                error: self.error,
            },
            (None, Some(owner)) => lifecycle::Lifecycle::Held {
                owner,
                since: self.started_at.unwrap_or(alive_at),
                alive_at,
                connection: lifecycle::Connection::Connected,
                canceled_at: self.canceled_at,
            },
            (None, None) => lifecycle::Lifecycle::Waiting,
        }
    }
}

/// Error code: the template wants values for required variables; clients ask for them.
pub const REQUIRED_TEMPLATE_VARIABLES: &str = "REQUIRED_TEMPLATE_VARIABLES";
/// Error code: a parameter has no value.
pub const MISSING_TEMPLATE_PARAMETER: &str = "MISSING_TEMPLATE_PARAMETER";

/// The error code that a daemon derives from a failure's text (wire-protocol 5.8).
#[must_use]
pub fn error_code(text: &str) -> &'static str {
    if text.contains("missing parameter") {
        MISSING_TEMPLATE_PARAMETER
    } else if text.contains("required template variables") {
        REQUIRED_TEMPLATE_VARIABLES
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn status_table() {
        let check = |completed, error: &str, canceled, started, want| {
            let time = |set: bool| set.then(|| at(1));
            let facts = Record {
                started_at: time(started),
                canceled_at: time(canceled),
                completed_at: time(completed),
                error: error.to_owned(),
                worker: None,
            };
            assert_eq!(facts.status(), want, "{facts:?}");
        };
        check(true, "x", true, true, Status::Failed);
        check(true, "", true, true, Status::Canceled);
        check(true, "", true, false, Status::Canceled);
        check(true, "", false, true, Status::Succeeded);
        check(false, "x", false, false, Status::Failed);
        check(false, "", true, true, Status::Canceling);
        check(false, "", false, false, Status::Pending);
        check(false, "", false, true, Status::Running);
    }

    #[test]
    fn a_job_canceled_while_waiting_is_over_and_cannot_be_acquired() {
        let job = Record::default().apply(Event::Cancel, at(1)).expect("pending");
        assert_eq!(job.status(), Status::Canceled);
        assert_eq!(job.apply(Event::Acquire(DaemonId::random()), at(2)), Err(TransitionError::NotPending));
    }

    #[test]
    fn late_messages_of_a_reaped_job_are_refused() {
        let daemon = DaemonId::random();
        let job = Record::default().apply(Event::Acquire(daemon), at(1)).expect("pending");
        let job = job.apply(Event::Reap("gone".to_owned()), at(2)).expect("running");
        assert_eq!(job.clone().apply(Event::Complete(daemon), at(3)), Err(TransitionError::AlreadyCompleted));
        assert_eq!(job.status(), Status::Failed);
    }

    #[test]
    fn only_the_owner_reports() {
        let job = Record::default().apply(Event::Acquire(DaemonId::random()), at(1)).expect("pending");
        assert_eq!(job.apply(Event::Complete(DaemonId::random()), at(2)), Err(TransitionError::NotOwner));
    }

    #[test]
    fn error_codes() {
        assert_eq!(error_code("required template variables need values: a"), REQUIRED_TEMPLATE_VARIABLES);
        assert_eq!(error_code("missing parameter x"), MISSING_TEMPLATE_PARAMETER);
        assert_eq!(error_code("other"), "");
    }

    fn events() -> impl Strategy<Value = Vec<(u8, bool)>> {
        proptest::collection::vec((0_u8..5, any::<bool>()), 0..8)
    }

    proptest! {
        #[test]
        fn an_ended_job_never_changes(steps in events()) {
            let daemons = [DaemonId::random(), DaemonId::random()];
            let mut job = Record::default();
            for (second, (step, first)) in steps.into_iter().enumerate() {
                let daemon = daemons[usize::from(first)];
                let event = match step {
                    0 => Event::Acquire(daemon),
                    1 => Event::Cancel,
                    2 => Event::Complete(daemon),
                    3 => Event::Fail(daemon, "failed".to_owned()),
                    _ => Event::Reap("hung".to_owned()),
                };
                let ended = job.completed_at.is_some();
                let after = job.clone().apply(event, at(i64::try_from(second).expect("small")));
                prop_assert!(!(ended && after.is_ok()));
                job = after.unwrap_or(job);
                prop_assert_eq!(job.status().is_active(), job.completed_at.is_none());
            }
        }
    }
}
