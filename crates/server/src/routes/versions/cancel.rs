//! Stopping an import.

use axum::extract::State;
use coder_api::error::Message;
use coder_domain::ids::TemplateVersionId;
use coder_domain::rbac::Action;

use super::find;
use crate::audit::{Event, Kind, Verb};
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
    let event = Event::new(Verb::Write, Kind::TemplateVersion, version.id.0, version.name)
        .in_organization(version.organization_id)
        .change("canceled", false, true);
    jobs::cancel(&app, &caller, version.job_id, None, event).await?;
    Ok(body::message("Job has been marked as canceled..."))
}
