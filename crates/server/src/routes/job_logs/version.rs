//! The log of an import.

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::paths;
use coder_domain::ids::TemplateVersionId;
use coder_domain::rbac::Action;

use super::answer::{LogQuery, answer};
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Result};
use crate::routes::versions;

/// `GET /templateversions/{version}/logs`
pub async fn version(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
    query: Query,
    request: Request,
) -> Result<Response> {
    let log_query = LogQuery::read(&query)?;
    let job = versions::find::by_id(&mut app.store.reader().await?, &caller, id, Action::Read).await?.job_id;
    answer(app, &caller, job, log_query, paths::VERSION_LOGS, request).await
}
