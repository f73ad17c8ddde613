//! The log of a dry run.

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::paths;

use super::answer::{LogQuery, answer};
use crate::context::App;
use crate::http::params::{Names, Query};
use crate::http::{Caller, Result};
use crate::routes::dry_runs;

/// `GET /templateversions/{version}/dry-run/{job}/logs`
pub async fn dry_run(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
    request: Request,
) -> Result<Response> {
    let log_query = LogQuery::read(&query)?;
    let job = dry_runs::find(&mut app.store.reader().await?, &caller, names).await?.1.id;
    answer(app, &caller, job, log_query, paths::DRY_RUN_LOGS, request).await
}
