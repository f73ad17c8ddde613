//! Creates a workspace: the row and its first build, in one transaction.

use axum::extract::State;
use coder_api::workspaces::{AutomaticUpdates, CreateWorkspaceRequest, Workspace};
use coder_domain::Timestamp;
use coder_domain::build::Transition;
use coder_domain::ids::{OrganizationId, UserId, WorkspaceId};
use coder_domain::names;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::templates::{self as template_rows, version_details};
use coder_store::workspaces::build_inputs::PreviousBuild;
use coder_store::{Tx, transaction, users as accounts, workspaces as rows};
use http::StatusCode;

use super::{schedule, settings, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::builds::create::after;
use crate::routes::builds::insert::{self, BuildPlan, BuildRequest, InsertError, InsertedBuild, Requester};
use crate::routes::{organizations, templates, users, versions};

/// `POST /users/{user}/workspaces`
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<CreateWorkspaceRequest>,
) -> Result<body::Created<Workspace>> {
    let [user] = names.take()?;
    let owner = users::find::visible(&mut app.store.reader().await?, &caller, &user).await?;
    create_one(&app, &caller, owner, None, request).await
}

/// `POST /organizations/{organization}/members/{user}/workspaces`
pub async fn in_organization(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<CreateWorkspaceRequest>,
) -> Result<body::Created<Workspace>> {
    let [organization, user] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?.id;
    let owner = users::find::visible(&mut tx, &caller, &user).await?;
    drop(tx);
    create_one(&app, &caller, owner, Some(organization), request).await
}

async fn create_one(
    app: &App,
    caller: &Caller,
    owner: accounts::User,
    organization: Option<OrganizationId>,
    request: CreateWorkspaceRequest,
) -> Result<body::Created<Workspace>> {
    check(&request)?;
    let now = app.now();
    let (row, inserted) =
        insert::until_plan_fits(|| plan_and_insert(app, caller, &owner, organization, &request, now)).await?;
    after(app, &inserted);
    let mut view = view::load_one(app, &mut app.store.reader().await?, caller, row).await?;
    // The official response leaves these out (http-api 7.3, scheduling-and-auth QUE-6).
    let preset = preset_name(app, &inserted).await?;
    app.metrics.workspace_made(&view.organization_name, &view.template_name, &preset);
    let build = &mut view.latest_build;
    build.template_version_name.clear();
    (build.job.queue_position, build.job.queue_size) = (0, 0);
    Ok(body::Created(view))
}

async fn plan_and_insert(
    app: &App,
    caller: &Caller,
    owner: &accounts::User,
    organization: Option<OrganizationId>,
    request: &CreateWorkspaceRequest,
    now: Timestamp,
) -> std::result::Result<(rows::Workspace, InsertedBuild), InsertError> {
    let build_request = BuildRequest {
        version: request.template_version_id,
        preset: request.template_version_preset_id,
        parameters: request.rich_parameter_values.clone(),
        ..BuildRequest::new(Transition::Start)
    };
    let previous = PreviousBuild { owner_name: owner.username.clone(), ..PreviousBuild::default() };
    let mut tx = app.store.reader().await?;
    let template = usable_template(&mut tx, caller, owner.id, organization, request).await?;
    drop(tx);
    let row = new_row(request, &template, owner.id, now);
    let requester = Requester::Person(caller);
    let plan = BuildPlan::new(app, &requester, (&row, &template, &previous), &build_request, now).await?;
    let inserted = transaction!(app.store, InsertError, |tx| {
        // The owner and the template are not deleted meanwhile, and the version is not archived.
        if !accounts::keep(tx, owner.id).await? {
            return Err(users::find::unknown().into());
        }
        template_rows::keep(tx, row.template_id).await?;
        let template = usable_template(tx, caller, owner.id, organization, request).await?;
        plan.require_fit(&template, &previous)?;
        rows::insert(tx, &row).await.map_err(|error| settings::taken(&row.name, error))?;
        if row.autostart_schedule.is_some() {
            settings::store_credentials(tx, caller, &row).await?;
        }
        Event::new(Verb::Create, Kind::Workspace, row.id.0, row.name.as_str())
            .in_organization(row.organization_id)
            .change("owner", "", &owner.username)
            .change("template_id", (), row.template_id)
            .change("autostart_schedule", (), &row.autostart_schedule)
            .change("ttl_ms", (), row.ttl_ms)
            .by(tx, caller, now)
            .await?;
        insert::insert(app, tx, &requester, (&row, &previous), &build_request, &plan, now)
            .await
            .map_err(InsertError::from)
    })?;
    Ok((row, inserted))
}

/// The template, if the caller may make a workspace of it for this owner.
async fn usable_template(
    tx: &mut Tx,
    caller: &Caller,
    owner: UserId,
    organization: Option<OrganizationId>,
    request: &CreateWorkspaceRequest,
) -> Result<template_rows::Template> {
    let template = template_for(tx, caller, request).await?;
    if organization.is_some_and(|id| id != template.organization_id) {
        return Err(Error::not_found());
    }
    let object = Object::in_organization(Resource::Workspace, template.organization_id).owned_by(owner);
    caller.require(Action::Create, object)?;
    let member = coder_store::organizations::find_member(tx, template.organization_id, owner).await?;
    if member.is_none() {
        return Err(Error::new(
            StatusCode::FORBIDDEN,
            "The owner does not belong to the template's organization.",
        ));
    }
    if !template.deprecated.is_empty() {
        return Err(Error::bad_request(format!(
            "Template {:?} has been deprecated, and cannot be used to create a new workspace.",
            template.name
        ))
        .detail(&template.deprecated));
    }
    let has_schedule = request.autostart_schedule.as_ref().is_some_and(|text| !text.is_empty());
    if has_schedule && !template.settings.allow_user_autostart {
        return Err(Error::invalid(
            "schedule",
            "Autostart is not allowed for workspaces using this template.",
        ));
    }
    Ok(template)
}

fn new_row(
    request: &CreateWorkspaceRequest,
    template: &template_rows::Template,
    owner: UserId,
    now: Timestamp,
) -> rows::Workspace {
    let policy = &template.settings;
    let default_ttl = Some(policy.default_ttl_ms).filter(|ttl| *ttl > 0);
    rows::Workspace {
        id: WorkspaceId::random(),
        organization_id: template.organization_id,
        owner_id: owner,
        template_id: template.id,
        name: request.name.clone(),
        autostart_schedule: request.autostart_schedule.clone().filter(|text| !text.is_empty()),
        ttl_ms: request.ttl_ms.filter(|ttl| *ttl > 0 && policy.allow_user_autostop).or(default_ttl),
        automatic_updates: request.automatic_updates.clone().unwrap_or_default().as_str().to_owned(),
        favorite: false,
        created_at: now,
        updated_at: now,
        last_used_at: now,
        dormant_at: None,
        deleting_at: None,
        schedule_note: String::new(),
        deleted: false,
    }
}

/// The preset that a build was made with, by name.
async fn preset_name(app: &App, inserted: &InsertedBuild) -> Result<String> {
    let Some(id) = inserted.build.template_version_preset_id else { return Ok(String::new()) };
    let mut tx = app.store.reader().await?;
    let presets = version_details::list_presets(&mut tx, inserted.build.template_version_id).await?;
    Ok(presets.into_iter().find(|preset| preset.id == id).map(|preset| preset.name).unwrap_or_default())
}

fn check(request: &CreateWorkspaceRequest) -> Result<()> {
    match (request.template_id, request.template_version_id) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid("template_id", "Give a template or a template version, not both."));
        }
        (None, None) => {
            return Err(Error::invalid("template_id", "A template or a template version is required."));
        }
        _ => {}
    }
    names::name(&request.name).map_err(|e| Error::invalid("name", format!("The name {e}.")))?;
    if request.automatic_updates.as_ref().is_some_and(|word| !word.is_known()) {
        return Err(Error::invalid(
            "automatic_updates",
            format!("Use {} or {}.", AutomaticUpdates::Always, AutomaticUpdates::Never),
        ));
    }
    schedule::check_schedule(request.autostart_schedule.as_deref())?;
    schedule::check_ttl(request.ttl_ms)
}

/// The template: the named one, or that of the named version.
async fn template_for(
    tx: &mut Tx,
    caller: &Caller,
    request: &CreateWorkspaceRequest,
) -> Result<template_rows::Template> {
    let unknown = |field: &str, what: &str| {
        Error::bad_request(format!("{what} doesn't exist.")).field(field, format!("{what} not found"))
    };
    let id = match (request.template_id, request.template_version_id) {
        (Some(id), _) => id,
        (None, Some(version)) => {
            let version = versions::find::readable(tx, caller, version).await?;
            let version = version.ok_or_else(|| unknown("template_version_id", "Template version"))?;
            if version.archived {
                return Err(Error::bad_request(
                    "Archived template versions cannot be used to make a workspace.",
                )
                .field("template_version_id", "template version archived"));
            }
            version.template_id.ok_or_else(|| {
                Error::bad_request("Template version is not part of a template.")
                    .field("template_version_id", "template version not part of a template")
            })?
        }
        (None, None) => return Err(Error::invalid("template_id", "A template is required.")),
    };
    let template = template_rows::find(tx, id).await?.filter(|template| !template.deleted);
    let template = template.ok_or_else(|| unknown("template_id", "Template"))?;
    if !templates::find::may(caller, Action::Read, &template) {
        return Err(unknown("template_id", "Template"));
    }
    if !templates::find::may(caller, Action::Use, &template) {
        return Err(Error::new(StatusCode::FORBIDDEN, "Unauthorized access to the template."));
    }
    Ok(template)
}
