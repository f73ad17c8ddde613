//! Stopping an import.

use axum::extract::State;
use coder_api::error::Message;
use coder_domain::ids::TemplateVersionId;
use coder_domain::rbac::Action;

use super::find;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Json, Result, body};
use crate::routes::jobs;

/// `PATCH /templateversions/{version}/cancel`
pub async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<Message>> {
    let version = find::by_id(&mut app.store.reader().await?, &caller, id, Action::Update).await?;
    jobs::cancel(&app, version.job_id, None).await?;
    Ok(body::message("Job has been marked as canceled..."))
}
