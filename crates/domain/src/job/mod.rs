//! The life-cycle of a provisioner job: types, states, transitions, and the status that clients see.

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
    pub const ALL: [Self; 3] =
        [Self::TemplateVersionImport, Self::WorkspaceBuild, Self::TemplateVersionDryRun];

    /// The value in JSON and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TemplateVersionImport => "template_version_import",
            Self::WorkspaceBuild => "workspace_build",
            Self::TemplateVersionDryRun => "template_version_dry_run",
        }
    }
}

/// A text that names no variant of an enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {value:?}")]
pub struct UnknownVariant {
    /// The enum, for people.
    pub what: &'static str,
    /// The text.
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
    /// Ended without an error.
    Succeeded,
    /// A cancel was requested and the daemon has not ended yet.
    Canceling,
    /// Ended after a cancel, without an error.
    Canceled,
    /// Ended with an error.
    Failed,
}

impl Status {
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Succeeded, Self::Canceling, Self::Canceled, Self::Failed];

    /// The value in JSON.
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

/// The stored fields that a job's status is derived from; no status is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When a daemon acquired it.
    pub started_at: Option<Timestamp>,
    /// When a cancel was requested.
    pub canceled_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// The error text, possibly empty.
    pub error: String,
    /// The daemon that holds, or held, it.
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

/// An event that cannot happen in a job's present state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// A daemon has acquired it, it was canceled, or it has ended.
    #[error("job is not waiting for a daemon")]
    NotPending,
    /// No daemon has acquired it.
    #[error("job isn't running yet")]
    NotRunning,
    /// Another daemon holds it.
    #[error("you don't own this job")]
    NotOwner,
    /// It has ended.
    #[error("job already completed")]
    AlreadyCompleted,
    /// A cancel was requested before.
    #[error("job has already been marked as canceled")]
    AlreadyCanceled,
    /// The same daemon has resumed the job over another connection.
    #[error("another connection of this daemon has taken the job over")]
    Superseded,
    /// The server decided to end the job in an earlier state of it.
    #[error("the job has changed since")]
    Changed,
}

impl Record {
    /// The state of the job. `session` and `epoch` are the owner's; `alive_at` is its last heartbeat. The connection
    /// counts as open: a caller that knows more sets it.
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

/// Error code: required template variables have no value. Clients ask for them.
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
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn status_table() {
        let check = |completed, error: &str, canceled, started, want| {
            let time = |set: bool| set.then(|| at(1));
            let record = Record {
                started_at: time(started),
                canceled_at: time(canceled),
                completed_at: time(completed),
                error: error.to_owned(),
                worker: None,
            };
            assert_eq!(record.status(), want, "{record:?}");
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
    fn error_codes() {
        assert_eq!(error_code("required template variables need values: a"), REQUIRED_TEMPLATE_VARIABLES);
        assert_eq!(error_code("missing parameter x"), MISSING_TEMPLATE_PARAMETER);
        assert_eq!(error_code("other"), "");
    }
}
