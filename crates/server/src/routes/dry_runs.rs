//! Dry runs: plans of a version with given parameters.

use std::collections::BTreeMap;

use axum::extract::State;
use coder_api::daemons::MatchedProvisioners;
use coder_api::error::Message;
use coder_api::jobs::ProvisionerJob;
use coder_api::resources::WorkspaceResource;
use coder_api::versions::CreateDryRunRequest;
use coder_domain::ids::{JobId, TemplateVersionId};
use coder_domain::job::Type;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::jobs::{self as store, Job, NewJob, queue::QueuePosition};
use coder_store::templates::versions::Version;
use coder_store::{Document, Tx, templates, transaction};
use http::StatusCode;
use serde_json::json;

use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::{Id, Names, id};
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::builds::parameters::{GivenParameters, VersionParameters};
use crate::routes::{announce, builds, jobs, matching_daemons, resources as views, versions};

/// `POST /templateversions/{version}/dry-run`: for users who may create workspaces with the version. The job's tags are
/// those of the import (scheduling-and-auth 1.4).
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    Id(version): Id<TemplateVersionId>,
    Json(request): Json<CreateDryRunRequest>,
) -> Result<body::Created<ProvisionerJob>> {
    let mut tx = app.store.reader().await?;
    let version = versions::find::by_id(&mut tx, &caller, version, Action::Read).await?;
    let own = Object::in_organization(Resource::Workspace, version.organization_id).owned_by(caller.user.id);
    caller.require_visible(Action::Create, own)?;
    let import = store::get(&mut tx, version.job_id).await?;
    if import.completed_at.is_none() {
        return Err(Error::new(StatusCode::TOO_EARLY, "Template version import job hasn't completed!"));
    }
    if import.status() != coder_domain::job::Status::Succeeded {
        return Err(Error::bad_request("Template version import job failed, so it cannot be tried out."));
    }
    let given = GivenParameters {
        request: request
            .rich_parameter_values
            .iter()
            .map(|pair| (pair.name.clone(), pair.value.clone()))
            .collect(),
        ..Default::default()
    };
    let template = match version.template_id {
        Some(id) => templates::find(&mut tx, id).await?,
        None => None,
    };
    let flow = versions::tags::flow(template.as_ref());
    let source =
        builds::source::find(&mut tx, flow, &version, import.file_id, caller.user.id, app.now()).await?;
    let known = VersionParameters::find(&mut tx, version.id, &given).await?;
    drop(tx);
    let values = known.resolve(&app, caller.user.id, source, given).await?.values;
    let values: Vec<_> = values.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let now = app.now();
    let job = NewJob {
        id: JobId::random(),
        organization_id: version.organization_id,
        initiator_id: caller.user.id,
        automatic: false,
        kind: Type::TemplateVersionDryRun,
        provisioner: import.provisioner,
        file_id: import.file_id,
        tags: import.tags,
        template_version_id: Some(version.id),
        workspace_build_id: None,
        input: Document(json!({
            "template_version_id": version.id,
            "workspace_name": request.workspace_name,
            "rich_parameter_values": values,
            "user_variable_values": request.user_variable_values,
        })),
        trace_metadata: BTreeMap::new(),
    };
    transaction!(app.store, coder_store::Error, |tx| {
        store::insert(tx, &job, now).await?;
        event(&version, job.id).status(StatusCode::CREATED).by(tx, &caller, now).await
    })?;
    announce::job_waiting(&app, &job);
    Ok(body::Created(jobs::view(&versions::create::waiting(job, now), QueuePosition::default())))
}

/// The audit entry names the version: a dry run has no other object.
fn event(version: &Version, job: JobId) -> Event {
    Event::new(Verb::Write, Kind::TemplateVersion, version.id.0, version.name.as_str())
        .in_organization(version.organization_id)
        .note("dry_run", job.to_string())
}

/// `GET …/dry-run/{job}`
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<ProvisionerJob>> {
    let mut tx = app.store.reader().await?;
    let job = find(&mut tx, &caller, names).await?.1;
    Ok(Json(jobs::view_with_place(&app, &mut tx, &job).await?))
}

/// `GET …/dry-run/{job}/matched-provisioners`
pub async fn matched(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<MatchedProvisioners>> {
    let mut tx = app.store.reader().await?;
    let job = find(&mut tx, &caller, names).await?.1;
    Ok(Json(matching_daemons::for_job(&app, &mut tx, &job, app.now()).await?))
}

/// `GET …/dry-run/{job}/resources`
pub async fn resources(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<Vec<WorkspaceResource>>> {
    let mut tx = app.store.reader().await?;
    let job = find(&mut tx, &caller, names).await?.1;
    if job.completed_at.is_none() {
        return Err(Error::bad_request("Job hasn't completed!"));
    }
    Ok(Json(views::of_job(&app, &mut tx, job.id).await?))
}

/// `PATCH …/dry-run/{job}/cancel`: for its initiator, who must also have the right to change the template
/// (scheduling-and-auth 3.5).
pub async fn cancel(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Message>> {
    let mut tx = app.store.reader().await?;
    let (version, job) = find(&mut tx, &caller, names).await?;
    let workspace =
        Object::in_organization(Resource::Workspace, job.organization_id).owned_by(job.initiator_id);
    if !caller.may(Action::Update, workspace) {
        return Err(Error::not_found());
    }
    if job.initiator_id != caller.user.id {
        versions::find::require(&mut tx, &caller, &version, Action::Update).await?;
    }
    drop(tx);
    let event = event(&version, job.id).change("canceled", false, true);
    jobs::cancel(&app, &caller, job.id, None, event).await?;
    Ok(body::message("Job has been marked as canceled."))
}

/// The dry run of a path, if the caller may see it: its initiator, and users who may read the initiator's workspaces.
pub async fn find(tx: &mut Tx, caller: &Caller, names: Names) -> Result<(Version, Job)> {
    let [version, job] = names.take()?;
    let version = versions::find::by_id(tx, caller, id(&version)?, Action::Read).await?;
    let job = store::find(tx, id(&job)?).await?.ok_or_else(Error::not_found)?;
    if job.kind != Type::TemplateVersionDryRun || job.template_version_id != Some(version.id) {
        return Err(Error::not_found());
    }
    let workspace =
        Object::in_organization(Resource::Workspace, job.organization_id).owned_by(job.initiator_id);
    caller.require_visible(Action::Read, workspace)?;
    Ok((version, job))
}
