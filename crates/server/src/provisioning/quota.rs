//! CommitQuota. There are no quotas yet: everything is allowed, and the budget says so.

use coder_domain::job::Type;
use coder_wire::messages::provisionerd::{CommitQuotaRequest, CommitQuotaResponse};

use super::refuse::{self, Refusal};
use super::serve::Session;

/// The budget of somebody without a quota (wire-protocol 5.6).
const UNLIMITED: i32 = -1;

/// Answers one call.
pub async fn commit(session: &Session, request: &CommitQuotaRequest) -> Result<CommitQuotaResponse, Refusal> {
    let job = refuse::job_id(&request.job_id)?;
    let found = refuse::owned(&mut session.app.store.reader().await?, job, session.holder(job)).await?;
    if found.kind != Type::WorkspaceBuild {
        return Err(Refusal::invalid("only a workspace build has a cost"));
    }
    Ok(CommitQuotaResponse { ok: true, credits_consumed: 0, budget: UNLIMITED })
}
