//! Workspace builds: transitions, reasons, and the workspace status derived from the latest build.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::job::{Status, UnknownVariant};

/// What a build does to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transition {
    /// Creates the resources, ephemeral ones included.
    Start,
    /// Removes the ephemeral resources.
    Stop,
    /// Removes everything.
    Delete,
}

impl Transition {
    pub const ALL: [Self; 3] = [Self::Start, Self::Stop, Self::Delete];

    /// The value in JSON and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Delete => "delete",
        }
    }
}

impl FromStr for Transition {
    type Err = UnknownVariant;
    fn from_str(word: &str) -> Result<Self, UnknownVariant> {
        let found = Self::ALL.into_iter().find(|transition| transition.as_str() == word);
        found.ok_or_else(|| UnknownVariant { what: "transition", value: word.to_owned() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceStatus {
    /// The build waits for a daemon.
    Pending,
    /// A start build runs.
    Starting,
    /// Started.
    Running,
    /// A stop build runs.
    Stopping,
    Stopped,
    /// The latest build failed.
    Failed,
    /// The latest build is being canceled.
    Canceling,
    /// The latest build was canceled.
    Canceled,
    /// A delete build runs.
    Deleting,
    Deleted,
}

impl WorkspaceStatus {
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Starting,
        Self::Running,
        Self::Stopping,
        Self::Stopped,
        Self::Failed,
        Self::Canceling,
        Self::Canceled,
        Self::Deleting,
        Self::Deleted,
    ];

    /// Derives the status of a workspace from its latest build (scheduling-and-auth JOB-4).
    #[must_use]
    pub const fn of(transition: Transition, job: Status) -> Self {
        match (job, transition) {
            (Status::Pending, _) => Self::Pending,
            (Status::Running, Transition::Start) => Self::Starting,
            (Status::Running, Transition::Stop) => Self::Stopping,
            (Status::Running, Transition::Delete) => Self::Deleting,
            (Status::Succeeded, Transition::Start) => Self::Running,
            (Status::Succeeded, Transition::Stop) => Self::Stopped,
            (Status::Succeeded, Transition::Delete) => Self::Deleted,
            (Status::Canceling, _) => Self::Canceling,
            (Status::Canceled, _) => Self::Canceled,
            (Status::Failed, _) => Self::Failed,
        }
    }

    /// The value in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Canceling => "canceling",
            Self::Canceled => "canceled",
            Self::Deleting => "deleting",
            Self::Deleted => "deleted",
        }
    }
}

impl FromStr for WorkspaceStatus {
    type Err = UnknownVariant;
    fn from_str(word: &str) -> Result<Self, UnknownVariant> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == word);
        found.ok_or_else(|| UnknownVariant { what: "workspace status", value: word.to_owned() })
    }
}

/// Why a build was made (scheduling-and-auth BLD-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildReason {
    /// A person requested it.
    #[default]
    Initiator,
    /// The schedule started it.
    Autostart,
    /// The schedule stopped it.
    Autostop,
    /// It became dormant.
    Dormancy,
    /// It was deleted after dormancy.
    Autodelete,
    Dashboard,
    /// From the command line.
    Cli,
    /// By connecting over SSH.
    SshConnection,
    /// By connecting from VS Code.
    VscodeConnection,
    /// By connecting from a JetBrains client.
    JetbrainsConnection,
}

impl BuildReason {
    pub const ALL: [Self; 10] = [
        Self::Initiator,
        Self::Autostart,
        Self::Autostop,
        Self::Dormancy,
        Self::Autodelete,
        Self::Dashboard,
        Self::Cli,
        Self::SshConnection,
        Self::VscodeConnection,
        Self::JetbrainsConnection,
    ];

    /// The value in JSON and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::Autostart => "autostart",
            Self::Autostop => "autostop",
            Self::Dormancy => "dormancy",
            Self::Autodelete => "autodelete",
            Self::Dashboard => "dashboard",
            Self::Cli => "cli",
            Self::SshConnection => "ssh_connection",
            Self::VscodeConnection => "vscode_connection",
            Self::JetbrainsConnection => "jetbrains_connection",
        }
    }

    /// Whether a client may give this reason itself (http-api 7.1).
    #[must_use]
    pub const fn may_be_requested(self) -> bool {
        matches!(
            self,
            Self::Dashboard
                | Self::Cli
                | Self::SshConnection
                | Self::VscodeConnection
                | Self::JetbrainsConnection
        )
    }
}

impl FromStr for BuildReason {
    type Err = UnknownVariant;
    fn from_str(word: &str) -> Result<Self, UnknownVariant> {
        let found = Self::ALL.into_iter().find(|reason| reason.as_str() == word);
        found.ok_or_else(|| UnknownVariant { what: "build reason", value: word.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_4_status_of_a_workspace() {
        assert_eq!(WorkspaceStatus::of(Transition::Stop, Status::Succeeded), WorkspaceStatus::Stopped);
        assert_eq!(WorkspaceStatus::of(Transition::Delete, Status::Running), WorkspaceStatus::Deleting);
        for transition in Transition::ALL {
            assert_eq!(WorkspaceStatus::of(transition, Status::Pending), WorkspaceStatus::Pending);
            assert_eq!(WorkspaceStatus::of(transition, Status::Failed), WorkspaceStatus::Failed);
        }
    }

    #[test]
    fn words_round_trip() {
        for transition in Transition::ALL {
            assert_eq!(transition.as_str().parse(), Ok(transition));
        }
        for status in WorkspaceStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        for reason in BuildReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
            let json = serde_json::to_string(&reason).expect("a word");
            assert_eq!(json, format!("\"{}\"", reason.as_str()));
        }
    }
}
