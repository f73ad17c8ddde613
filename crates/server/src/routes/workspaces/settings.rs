//! Changes of a workspace: name, updates, dormancy, favorite. Its schedules are in `schedule.rs`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::workspaces::{UpdateAutomaticUpdatesRequest, UpdateDormancyRequest, UpdateWorkspaceRequest};
use coder_domain::ids::WorkspaceId;
use coder_domain::names;
use coder_domain::rbac::Action;
use coder_store::{Tx, templates, transaction, workspaces as rows};
use http::StatusCode;
use jiff::SignedDuration;

use super::{find, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, NoContent, Result};
use crate::routes::{announce, builds};

/// `PATCH /workspaces/{workspace}`
pub async fn rename(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateWorkspaceRequest>,
) -> Result<NoContent> {
    let now = app.now();
    let renamed = transaction!(app.store, Error, |tx| {
        let row = find_not_deleted(tx, &caller, id).await?;
        if request.name.is_empty() || request.name == row.name {
            return Ok(false);
        }
        if !app.config.workspaces.renames {
            return Err(Error::bad_request("Workspace renames are not allowed."));
        }
        names::name(&request.name).map_err(|e| Error::invalid("name", format!("The name {e}.")))?;
        let renamed = rows::update_name(tx, id, &request.name, now).await;
        renamed.map_err(|error| taken(&request.name, error))?;
        let event = changed(&row, &rows::Workspace { name: request.name.clone(), ..row.clone() });
        event.by(tx, &caller, now).await?;
        Ok(true)
    })?;
    if renamed {
        announce::workspace_changed(&app, id);
    }
    Ok(NoContent)
}

/// `PUT /workspaces/{workspace}/autoupdates`
pub async fn automatic_updates(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateAutomaticUpdatesRequest>,
) -> Result<NoContent> {
    if !request.automatic_updates.is_known() {
        return Err(Error::invalid("automatic_updates", "Use \"always\" or \"never\"."));
    }
    change(&app, &caller, id, SetBy::Schedule, |row, _| {
        row.automatic_updates = request.automatic_updates.as_str().to_owned();
        Ok(())
    })
    .await
}

/// `PUT /workspaces/{workspace}/dormant`: 304 when it is so already.
pub async fn dormant(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateDormancyRequest>,
) -> Result<Response> {
    let now = app.now();
    let changed = transaction!(app.store, Error, |tx| {
        let before = find_not_deleted(tx, &caller, id).await?;
        if before.dormant_at.is_some() == request.dormant {
            return Ok(None);
        }
        let mut row = before.clone();
        row.dormant_at = request.dormant.then_some(now);
        row.deleting_at = None;
        if request.dormant {
            let template = templates::find(tx, row.template_id).await?.ok_or_else(Error::not_found)?;
            let wait = template.settings.time_til_dormant_autodelete_ms;
            if wait > 0 {
                row.deleting_at = now.checked_add(SignedDuration::from_millis(wait)).ok();
            }
        } else {
            rows::update_used(tx, id, now).await?;
            row.last_used_at = now;
        }
        row.updated_at = now;
        rows::update(tx, &row).await?;
        changed(&before, &row).status(StatusCode::OK).by(tx, &caller, now).await?;
        Ok(Some(view::load_one(&app, tx, &caller, row).await?))
    })?;
    let Some(view) = changed else { return Ok(StatusCode::NOT_MODIFIED.into_response()) };
    announce::workspace_changed(&app, id);
    Ok(Json::<_>(view).into_response())
}

/// `PUT /workspaces/{workspace}/favorite`
pub async fn favorite(State(app): State<App>, caller: Caller, Id(id): Id<WorkspaceId>) -> Result<NoContent> {
    mark(&app, &caller, id, true).await
}

/// `DELETE /workspaces/{workspace}/favorite`
pub async fn unfavorite(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
) -> Result<NoContent> {
    mark(&app, &caller, id, false).await
}

async fn mark(app: &App, caller: &Caller, id: WorkspaceId, favorite: bool) -> Result<NoContent> {
    let user = caller.user.id;
    change(app, caller, id, SetBy::Other, |row, _| {
        if row.owner_id != user {
            return Err(Error::new(StatusCode::FORBIDDEN, "You can only favorite workspaces that you own."));
        }
        row.favorite = favorite;
        Ok(())
    })
    .await
}

/// What a change sets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SetBy {
    /// What builds by schedule do. They get of the owner's credentials what a build of this caller would get.
    Schedule,
    Other,
}

/// Changes a workspace that the caller may update.
pub(super) async fn change(
    app: &App,
    caller: &Caller,
    id: WorkspaceId,
    sets: SetBy,
    edit: impl Fn(&mut rows::Workspace, &templates::Template) -> Result<()>,
) -> Result<NoContent> {
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        let before = find_not_deleted(tx, caller, id).await?;
        let template = templates::find(tx, before.template_id).await?.ok_or_else(Error::not_found)?;
        let mut row = before.clone();
        edit(&mut row, &template)?;
        row.updated_at = now;
        rows::update(tx, &row).await?;
        if sets == SetBy::Schedule {
            store_credentials(tx, caller, &row).await?;
        }
        changed(&before, &row).by(tx, caller, now).await?;
        Ok(())
    })?;
    announce::workspace_changed(app, id);
    Ok(NoContent)
}

/// Notes what builds by schedule get of the owner's credentials, because this caller sets what they do.
pub(super) async fn store_credentials(tx: &mut Tx, caller: &Caller, row: &rows::Workspace) -> Result<()> {
    let credentials = builds::insert::credentials_for(tx, caller, row.owner_id).await?;
    let text = serde_json::to_string(&credentials)
        .map_err(|error| Error::internal("The schedule cannot be stored.", error))?;
    Ok(rows::schedules::update_credentials(tx, row.id, Some(text)).await?)
}

/// What changed, for the audit log.
pub(super) fn changed(before: &rows::Workspace, after: &rows::Workspace) -> Event {
    Event::new(Verb::Write, Kind::Workspace, after.id.0, after.name.as_str())
        .in_organization(after.organization_id)
        .change("name", &before.name, &after.name)
        .change("autostart_schedule", &before.autostart_schedule, &after.autostart_schedule)
        .change("ttl_ms", before.ttl_ms, after.ttl_ms)
        .change("automatic_updates", &before.automatic_updates, &after.automatic_updates)
        .change("dormant_at", before.dormant_at, after.dormant_at)
        .change("deleting_at", before.deleting_at, after.deleting_at)
        .change("favorite", before.favorite, after.favorite)
        .status(StatusCode::NO_CONTENT)
}

/// The workspace, if the caller may change it and it is not deleted.
pub(super) async fn find_not_deleted(
    tx: &mut Tx,
    caller: &Caller,
    id: WorkspaceId,
) -> Result<rows::Workspace> {
    let row = find::by_id(tx, caller, id, Action::Update).await?;
    if row.deleted {
        return Err(Error::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("Workspace {:?} is deleted.", row.name),
        ));
    }
    Ok(row)
}

/// 409 for a name that another workspace of the owner has.
pub fn taken(name: &str, error: coder_store::Error) -> Error {
    if error.is_conflict_on("workspaces", "name_lower") {
        return Error::name_taken(format!("Workspace {name:?} already exists."));
    }
    error.into()
}
