//! Changes the name and the message of a version.

use axum::extract::State;
use coder_api::versions::{TemplateVersion, UpdateTemplateVersionRequest};
use coder_domain::ids::TemplateVersionId;
use coder_domain::rbac::Action;
use coder_domain::{Timestamp, names};
use coder_store::templates::versions;
use coder_store::transaction;

use super::{find, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result};

/// `PATCH /templateversions/{version}`
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
    Json(request): Json<UpdateTemplateVersionRequest>,
) -> Result<Json<TemplateVersion>> {
    let now = app.now();
    let view = transaction!(app.store, Error, |tx| {
        let before = find::by_id(tx, &caller, id, Action::Update).await?;
        let version = apply(before.clone(), &request, now)?;
        let taken = |error: coder_store::Error| {
            if error.is_conflict_on("template_versions", "name") {
                return Error::name_taken(format!(
                    "A template version with name {:?} already exists for this template.",
                    version.name
                ));
            }
            error.into()
        };
        versions::update(tx, id, &version.name, &version.message, now).await.map_err(taken)?;
        Event::new(Verb::Write, Kind::TemplateVersion, id.0, version.name.as_str())
            .in_organization(version.organization_id)
            .change("name", &before.name, &version.name)
            .change("message", &before.message, &version.message)
            .by(tx, &caller, now)
            .await?;
        view::load_one(&app, tx, version).await
    })?;
    Ok(Json(view))
}

/// Absent fields stay.
fn apply(
    mut version: versions::Version,
    request: &UpdateTemplateVersionRequest,
    now: Timestamp,
) -> Result<versions::Version> {
    if !request.name.is_empty() {
        names::template_version(&request.name)
            .map_err(|e| Error::invalid("name", format!("The name {e}.")))?;
        version.name.clone_from(&request.name);
    }
    if let Some(message) = &request.message {
        if message.len() > 1 << 20 {
            return Err(Error::invalid("message", "The message must be at most 1 MiB."));
        }
        version.message.clone_from(message);
    }
    version.updated_at = now;
    Ok(version)
}
