//! Archives and unarchives versions. The response is a JSON string, not an object (http-api 17).

use axum::extract::State;
use coder_api::templates::{ArchiveVersionsRequest, ArchiveVersionsResponse};
use coder_domain::ids::{TemplateId, TemplateVersionId};
use coder_domain::job::Status;
use coder_domain::rbac::Action;
use coder_store::templates::{self as store, versions};
use coder_store::{jobs, transaction};

use super::find;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::templates;

/// `POST /templateversions/{version}/archive`
pub async fn archive(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<&'static str>> {
    set(&app, &caller, id, true).await?;
    Ok(Json("template version archived"))
}

/// `POST /templateversions/{version}/unarchive`
pub async fn unarchive(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<&'static str>> {
    set(&app, &caller, id, false).await?;
    Ok(Json("template version unarchived"))
}

async fn set(app: &App, caller: &Caller, id: TemplateVersionId, archived: bool) -> Result<()> {
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        let version = find::by_id(tx, caller, id, Action::Update).await?;
        let Some(template) = version.template_id else {
            return Err(Error::bad_request(
                "Cannot archive template versions not associate with a template.",
            ));
        };
        // The version does not become the active one meanwhile.
        store::lock(tx, template).await?;
        if version.archived == archived {
            let state = if archived { "already archived" } else { "not archived" };
            return Err(Error::bad_request(format!("Template version {state}.")));
        }
        match versions::update_archived(tx, id, archived, now).await {
            Ok(()) => Ok(event(&version, archived).by(tx, caller, now).await?),
            Err(coder_store::Error::Stale { .. }) => Err(Error::new(
                http::StatusCode::NOT_FOUND,
                "Unable to archive template version: it is active or a workspace uses it.",
            )),
            Err(error) => Err(error.into()),
        }
    })
}

fn event(version: &versions::Version, archived: bool) -> Event {
    Event::new(Verb::Write, Kind::TemplateVersion, version.id.0, version.name.as_str())
        .in_organization(version.organization_id)
        .change("archived", version.archived, archived)
}

/// `POST /templates/{template}/versions/archive`: failed versions, or every unused one.
pub async fn archive_unused(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateId>,
    Json(request): Json<ArchiveVersionsRequest>,
) -> Result<Json<ArchiveVersionsResponse>> {
    let now = app.now();
    let archived_ids = transaction!(app.store, Error, |tx| {
        let template = templates::find::by_id(tx, &caller, id, Action::Update).await?;
        store::lock(tx, id).await?;
        let candidates = versions::list(tx, template.id, versions::VersionPage::default()).await?;
        let imports: Vec<_> = candidates.iter().map(|version| version.job_id).collect();
        let imports = jobs::find_many(tx, &imports).await?;
        let mut archived_ids = Vec::new();
        for version in candidates {
            let status = imports.iter().find(|job| job.id == version.job_id).map(jobs::Job::status);
            if !request.all && status != Some(Status::Failed) {
                continue;
            }
            match versions::update_archived(tx, version.id, true, now).await {
                Ok(()) => {
                    event(&version, true).by(tx, &caller, now).await?;
                    archived_ids.push(version.id);
                }
                Err(coder_store::Error::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(archived_ids)
    })?;
    Ok(Json(ArchiveVersionsResponse { template_id: id, archived_ids }))
}
