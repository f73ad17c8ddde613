//! Why a daemon's call is refused. A refused call changes nothing.

use coder_domain::ids::{DaemonId, JobId};
use coder_domain::job::InvalidTransition;
use coder_store::{Tx, jobs};

/// A refusal; its text goes to the daemon, and from there into the job's error.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The message carries something that is not an id.
    #[error("{0:?} is not a job id")]
    JobId(String),
    /// No such job.
    #[error("job not found")]
    NoSuchJob,
    /// Not this daemon's job, or not any more.
    #[error(transparent)]
    Job(#[from] InvalidTransition),
    /// The message contradicts itself or the rules.
    #[error("{0}")]
    Invalid(String),
    /// The database did not take it.
    #[error("internal error: the server could not store it, see its log")]
    Store(#[from] coder_store::Error),
}

impl Refusal {
    /// A refusal with this text.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// Whether the daemon should send the same again, because the database is away for now.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

/// Reads a job id out of a message.
pub fn job_id(text: &str) -> Result<JobId, Refusal> {
    text.parse().map_err(|_| Refusal::JobId(text.chars().take(64).collect()))
}

/// The job, if this daemon may report on it now (scheduling-and-auth 3.3; CONF-16: ended jobs refuse).
pub async fn owned(tx: &mut Tx, job: JobId, daemon: DaemonId) -> Result<jobs::Job, Refusal> {
    let found = jobs::find(tx, job).await?.ok_or(Refusal::NoSuchJob)?;
    found.facts().require_owner(daemon)?;
    Ok(found)
}

/// Turns "nothing changed" into the reason, read in the same transaction.
pub async fn explain(tx: &mut Tx, job: JobId, daemon: DaemonId, error: coder_store::Error) -> Refusal {
    if !matches!(error, coder_store::Error::Stale { table: "provisioner_jobs" }) {
        return error.into();
    }
    match owned(tx, job, daemon).await {
        Ok(_) => error.into(),
        Err(reason) => reason,
    }
}
