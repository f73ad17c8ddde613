//! CommitQuota. There are no quotas yet, so every build is allowed. The cost is stored with the build.

use coder_domain::job::Type;
use coder_store::transaction;
use coder_store::workspaces::builds;
use coder_wire::messages::provisionerd::{CommitQuotaRequest, CommitQuotaResponse};

use super::refusal::{self, Refusal};
use crate::provisioning::session::Session;

/// The budget without a quota (wire-protocol 5.6).
const UNLIMITED: i32 = -1;

/// Answers one call. The daily cost of a build is the one of its plan and not the sum over its resources, because several
/// instances repeat the cost of one `coder_metadata` (scheduling-and-auth 3.7, terraform 1.6).
pub async fn commit(session: &Session, request: &CommitQuotaRequest) -> Result<CommitQuotaResponse, Refusal> {
    let (app, job) = (&session.app, refusal::job_id(&request.job_id)?);
    let (holder, now) = (session.holder(job), app.now());
    transaction!(app.store, Refusal, |tx| {
        let found = refusal::owned(tx, session, job, holder).await?;
        let (Type::WorkspaceBuild, Some(build)) = (found.kind, found.workspace_build_id) else {
            return Err(Refusal::invalid("only a workspace build has a cost"));
        };
        Ok(builds::update_daily_cost(tx, build, i64::from(request.daily_cost), now).await?)
    })?;
    Ok(CommitQuotaResponse { ok: true, credits_consumed: 0, budget: UNLIMITED })
}
