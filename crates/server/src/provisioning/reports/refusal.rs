//! Why a daemon's call is refused. A refused call changes nothing.

use coder_domain::ids::JobId;
use coder_domain::job::TransitionError;
use coder_domain::job::lifecycle::Sender;
use coder_store::jobs::Holder;
use coder_store::{Tx, jobs};

use crate::provisioning::session::Session;

/// A refused call. The daemon gets the text and puts it into the job's error.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The message contains an invalid job id.
    #[error("{0:?} is not a job id")]
    JobId(String),
    /// No such job, or one that the daemon may not see.
    #[error("job not found")]
    NoSuchJob,
    /// The daemon does not hold the job.
    #[error(transparent)]
    Job(#[from] TransitionError),
    /// The message is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The database failed.
    #[error("internal error: the server could not store it, see its log")]
    Store(#[from] coder_store::Error),
}

impl Refusal {
    /// A refusal with this text.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// Whether a retry may succeed, because the database is unavailable.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

/// Reads a job id.
pub fn job_id(text: &str) -> Result<JobId, Refusal> {
    text.parse().map_err(|_| Refusal::JobId(text.chars().take(64).collect()))
}

/// Whether this holder may report on the job (scheduling-and-auth 3.3). Reports on ended jobs are refused (CONF-16). A job that a
/// session holds is protected by its epoch.
pub fn require(job: &jobs::Job, holder: Holder) -> Result<(), TransitionError> {
    let epoch = holder.epoch.map(|epoch| u64::try_from(epoch).unwrap_or_default());
    job.lifecycle().require(Sender { daemon: holder.daemon, epoch })
}

/// The job, if the daemon may see it, because the reason of a refusal reveals the state of a job. A daemon sees its own jobs. A
/// shared daemon also sees all jobs of its organization, a personal one does not.
pub fn known(session: &Session, job: Option<jobs::Job>) -> Result<jobs::Job, Refusal> {
    let is_known = |job: &jobs::Job| {
        job.worker_id == Some(session.daemon)
            || (job.organization_id == session.organization && !session.is_personal())
    };
    job.filter(is_known).ok_or(Refusal::NoSuchJob)
}

/// The job, if this holder may report on it.
pub async fn owned(tx: &mut Tx, session: &Session, job: JobId, holder: Holder) -> Result<jobs::Job, Refusal> {
    let found = known(session, jobs::find(tx, job).await?)?;
    require(&found, holder)?;
    Ok(found)
}

/// Finds the reason why an update changed no row, in the same transaction.
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
