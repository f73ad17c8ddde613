//! Sets the active version.

use axum::extract::State;
use coder_api::error::Message;
use coder_api::templates::UpdateActiveVersionRequest;
use coder_domain::ids::TemplateId;
use coder_domain::job::Status;
use coder_domain::rbac::Action;
use coder_store::{jobs, templates, transaction};
use http::StatusCode;

use super::find;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::versions;

/// `PATCH /templates/{template}/versions`
pub async fn activate(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateId>,
    Json(request): Json<UpdateActiveVersionRequest>,
) -> Result<Json<Message>> {
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        let template = find::by_id(tx, &caller, id, Action::Update).await?;
        // No version is archived meanwhile.
        templates::lock(tx, id).await?;
        let wanted = request.id.ok_or_else(|| Error::invalid("id", "A template version is required."))?;
        let version = versions::find::readable(tx, &caller, wanted)
            .await?
            .filter(|version| version.organization_id == template.organization_id)
            .ok_or_else(|| Error::new(StatusCode::NOT_FOUND, "Template version not found."))?;
        if version.template_id != Some(id) {
            return Err(Error::bad_request(
                "The provided template version doesn't belong to the specified template.",
            ));
        }
        if version.archived {
            return Err(Error::bad_request("The provided template version is archived."));
        }
        if jobs::get(tx, version.job_id).await?.status() != Status::Succeeded {
            return Err(Error::new(
                StatusCode::FORBIDDEN,
                "Only versions that have been built successfully can be promoted.",
            ));
        }
        templates::update_active_version(tx, id, wanted, now).await?;
        Event::new(Verb::Write, Kind::Template, id.0, template.name.as_str())
            .in_organization(template.organization_id)
            .icon(template.icon.as_str())
            .change("active_version_id", template.active_version_id, wanted)
            .by(tx, &caller, now)
            .await?;
        Ok(())
    })?;
    Ok(body::message("Updated the active template version!"))
}
