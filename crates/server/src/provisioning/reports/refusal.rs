//! Why a daemon's call is refused. A refused call changes nothing.

use coder_domain::ids::JobId;
use coder_domain::job::TransitionError;
use coder_domain::job::lifecycle::Sender;
use coder_store::jobs::Holder;
use coder_store::{Tx, jobs};

use crate::provisioning::session::Session;

/// A refusal; its text goes to the daemon, and from there into the job's error.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The message carries something that is not an id.
    #[error("{0:?} is not a job id")]
    JobId(String),
    /// No such job, or one that the daemon may not know of.
    #[error("job not found")]
    NoSuchJob,
    /// Not this daemon's job, or not any more.
    #[error(transparent)]
    Job(#[from] TransitionError),
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

/// Whether this holder may report on the job now (scheduling-and-auth 3.3; CONF-16: ended jobs refuse; a job that a
/// session holds is fenced by its epoch).
pub fn require(job: &jobs::Job, holder: Holder) -> Result<(), TransitionError> {
    let epoch = holder.epoch.map(|epoch| u64::try_from(epoch).unwrap_or_default());
    job.lifecycle().require(Sender { daemon: holder.daemon, epoch })
}

/// The job, if the daemon may know that there is one: the reason of a refusal tells in which state a job is. A daemon knows
/// of its own jobs, and one that works for an organization of that organization's; of another one's jobs it learns
/// nothing, and a person's own daemon nothing of other people's.
pub fn known(session: &Session, job: Option<jobs::Job>) -> Result<jobs::Job, Refusal> {
    let is_known = |job: &jobs::Job| {
        job.worker_id == Some(session.daemon)
            || (job.organization_id == session.organization && !session.is_personal())
    };
    job.filter(is_known).ok_or(Refusal::NoSuchJob)
}

/// The job, if this holder may report on it now.
pub async fn owned(tx: &mut Tx, session: &Session, job: JobId, holder: Holder) -> Result<jobs::Job, Refusal> {
    let found = known(session, jobs::find(tx, job).await?)?;
    require(&found, holder)?;
    Ok(found)
}

/// Turns "nothing changed" into the reason, read in the same transaction.
pub async fn explain(
    tx: &mut Tx,
    session: &Session,
    job: JobId,
    holder: Holder,
    error: coder_store::Error,
) -> Refusal {
    if !matches!(error, coder_store::Error::Stale { table: "provisioner_jobs" }) {
        return error.into();
    }
    match owned(tx, session, job, holder).await {
        Ok(_) => error.into(),
        Err(reason) => reason,
    }
}
