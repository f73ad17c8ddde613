//! The log of a build.

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::paths;
use coder_domain::ids::BuildId;
use coder_domain::rbac::Action;

use super::answer::{LogQuery, answer};
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Result};
use crate::routes::builds;

/// `GET /workspacebuilds/{build}/logs`
pub async fn build(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
    query: Query,
    request: Request,
) -> Result<Response> {
    let log_query = LogQuery::read(&query)?;
    let (build, _) = builds::find::by_id(&mut app.store.reader().await?, &caller, id, Action::Read).await?;
    answer(app, &caller, build.job_id, log_query, paths::BUILD_LOGS, request).await
}
