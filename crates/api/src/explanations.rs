//! Why a job waits: an endpoint of ours, which official servers do not have.

use coder_domain::ids::JobId;
use coder_domain::job::Status;
use serde::{Deserialize, Serialize};

use crate::json::nullable;

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExplanation {
    pub job_id: JobId,
    pub status: Status,
    /// The nearest first; at least one while the job waits, none once it does not.
    #[serde(default, deserialize_with = "nullable")]
    pub reasons: Vec<WaitingReason>,
}

/// One reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingReason {
    /// One of [`coder_domain::explain::Reason::CODES`].
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// What to do about it.
    pub next_step: String,
    /// Whether the job goes on without anybody doing anything.
    pub passes_by_itself: bool,
}
