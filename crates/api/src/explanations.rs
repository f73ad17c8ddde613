//! Why a job waits; not part of the official API.

use coder_domain::ids::JobId;
use coder_domain::job::Status;
use serde::{Deserialize, Serialize};

use crate::json::nullable;

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExplanation {
    pub job_id: JobId,
    pub status: Status,
    /// The nearest first; at least one while the job waits, none otherwise.
    #[serde(default, deserialize_with = "nullable")]
    pub reasons: Vec<WaitingReason>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingReason {
    /// One of [`coder_domain::explain::Reason::CODES`].
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// What to do about it.
    pub next_step: String,
    /// Whether the job will start without any action.
    pub passes_by_itself: bool,
}
