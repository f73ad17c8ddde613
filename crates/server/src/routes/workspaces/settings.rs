//! Changes of a workspace: name, schedule, time to live, updates, dormancy, favorite.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::workspaces::{
    UpdateAutomaticUpdatesRequest, UpdateAutostartRequest, UpdateDormancyRequest, UpdateTtlRequest,
    UpdateWorkspaceRequest,
};
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
use crate::http::{Caller, Error, Json, NoContent, Result, WithWarnings};
use crate::routes::builds::parameters::{GivenParameters, VersionParameters};
use crate::routes::{announce, builds, stored_only, versions};

const MINUTE_MS: i64 = 60_000;
const MONTH_MS: i64 = 30 * 24 * 60 * MINUTE_MS;

/// `PATCH /workspaces/{workspace}`
pub async fn rename(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateWorkspaceRequest>,
) -> Result<NoContent> {
    let now = app.now();
    let renamed = transaction!(app.store, Error, |tx| {
        let row = living(tx, &caller, id).await?;
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

/// `PUT /workspaces/{workspace}/autostart`
pub async fn autostart(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateAutostartRequest>,
) -> Result<WithWarnings<NoContent>> {
    check_schedule(request.schedule.as_deref())?;
    let schedule = request.schedule.filter(|text| !text.is_empty());
    change(&app, &caller, id, |row, template| {
        if schedule.is_some() && !template.settings.allow_user_autostart {
            return Err(Error::bad_request("Autostart is not allowed for workspaces using this template."));
        }
        row.autostart_schedule.clone_from(&schedule);
        Ok(())
    })
    .await?;
    Ok(WithWarnings(NoContent, schedule.map(|_| stored_only::AUTOSTART).into_iter().collect()))
}

/// `PUT /workspaces/{workspace}/ttl`
pub async fn ttl(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateTtlRequest>,
) -> Result<WithWarnings<NoContent>> {
    check_ttl(request.ttl_ms)?;
    let ttl = request.ttl_ms.filter(|ttl| *ttl > 0);
    change(&app, &caller, id, |row, template| {
        if !template.settings.allow_user_autostop {
            return Err(Error::bad_request(
                "Custom autostop TTL is not allowed for workspaces using this template.",
            ));
        }
        row.ttl_ms = ttl;
        Ok(())
    })
    .await?;
    Ok(WithWarnings(NoContent, ttl.map(|_| stored_only::TTL).into_iter().collect()))
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
    change(&app, &caller, id, |row, _| {
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
        let before = living(tx, &caller, id).await?;
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
    let warnings = if request.dormant { vec![stored_only::DORMANT] } else { Vec::new() };
    let Some(view) = changed else {
        return Ok(WithWarnings(StatusCode::NOT_MODIFIED, warnings).into_response());
    };
    announce::workspace_changed(&app, id);
    Ok(WithWarnings(Json::<_>(view), warnings).into_response())
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
    change(app, caller, id, |row, _| {
        if row.owner_id != user {
            return Err(Error::new(StatusCode::FORBIDDEN, "You can only favorite workspaces that you own."));
        }
        row.favorite = favorite;
        Ok(())
    })
    .await
}

/// Whether a scheduled start would need parameter values.
#[derive(serde::Serialize)]
pub struct Resolved {
    parameter_mismatch: bool,
}

/// `GET /workspaces/{workspace}/resolve-autostart`
pub async fn resolve_autostart(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
) -> Result<Json<Resolved>> {
    let mut tx = app.store.reader().await?;
    let row = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    if row.automatic_updates != "always" {
        return Ok(Json(Resolved { parameter_mismatch: false }));
    }
    let template = templates::find(&mut tx, row.template_id).await?.ok_or_else(Error::not_found)?;
    let latest =
        coder_store::workspaces::builds::find_latest(&mut tx, id).await?.ok_or_else(Error::not_found)?;
    let last = coder_store::workspaces::builds::list_parameters(&mut tx, latest.id).await?;
    let given = GivenParameters { last: Some(last), ..Default::default() };
    let (version, import) =
        coder_store::workspaces::build_inputs::find_version(&mut tx, template.active_version_id)
            .await?
            .ok_or_else(Error::not_found)?;
    let flow = versions::tags::flow(Some(&template));
    let source =
        builds::source::find(&mut tx, flow, &version, import.file_id, row.owner_id, app.now()).await?;
    let known = VersionParameters::find(&mut tx, version.id, &given).await?;
    drop(tx);
    match known.resolve(&app, caller.user.id, source, given).await {
        Ok(_) => Ok(Json(Resolved { parameter_mismatch: false })),
        Err(error) if error.status() == StatusCode::BAD_REQUEST => {
            Ok(Json(Resolved { parameter_mismatch: true }))
        }
        Err(error) => Err(error),
    }
}

/// Changes a workspace that the caller may update.
async fn change(
    app: &App,
    caller: &Caller,
    id: WorkspaceId,
    edit: impl Fn(&mut rows::Workspace, &templates::Template) -> Result<()>,
) -> Result<NoContent> {
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        let before = living(tx, caller, id).await?;
        let template = templates::find(tx, before.template_id).await?.ok_or_else(Error::not_found)?;
        let mut row = before.clone();
        edit(&mut row, &template)?;
        row.updated_at = now;
        rows::update(tx, &row).await?;
        changed(&before, &row).by(tx, caller, now).await?;
        Ok(())
    })?;
    announce::workspace_changed(app, id);
    Ok(NoContent)
}

/// What changed, for the audit log.
fn changed(before: &rows::Workspace, after: &rows::Workspace) -> Event {
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

async fn living(tx: &mut Tx, caller: &Caller, id: WorkspaceId) -> Result<rows::Workspace> {
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

/// Time to live: none, or between one minute and 30 days.
pub fn check_ttl(ttl_ms: Option<i64>) -> Result<()> {
    match ttl_ms {
        None | Some(0) => Ok(()),
        Some(ttl) if (MINUTE_MS..=MONTH_MS).contains(&ttl) => Ok(()),
        Some(_) => {
            Err(Error::invalid("ttl_ms", "Time until shutdown must be between one minute and 30 days."))
        }
    }
}

/// Checks the form of a weekly schedule: an optional time zone and five fields, of which day of month and month are `*`.
pub fn check_schedule(schedule: Option<&str>) -> Result<()> {
    let Some(text) = schedule.filter(|text| !text.is_empty()) else { return Ok(()) };
    let refuse = |detail: &str| Err(Error::invalid("schedule", detail));
    let mut fields: Vec<_> = text.split_whitespace().collect();
    if let Some(zone) = fields.first().and_then(|first| first.strip_prefix("CRON_TZ=")) {
        if zone.is_empty() || !zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_+-".contains(&b)) {
            return refuse("The time zone is not a name like Europe/Berlin.");
        }
        fields.remove(0);
    }
    let [minute, hour, day, month, weekdays] = fields.as_slice() else {
        return refuse("A schedule has five fields: minute, hour, *, * and the days of the week.");
    };
    if (*day, *month) != ("*", "*") {
        return refuse("Day of month and month must be *.");
    }
    let number = |text: &str, limit: u32| text.parse::<u32>().is_ok_and(|number| number < limit);
    if !number(minute, 60) || !number(hour, 24) {
        return refuse("Minute and hour must be numbers.");
    }
    let day = |text: &str| {
        let words = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
        number(text, 8) || words.contains(&text.to_ascii_lowercase().as_str())
    };
    let span = |text: &str| text.split_once('-').map_or_else(|| day(text), |(from, to)| day(from) && day(to));
    if *weekdays != "*" && !weekdays.split(',').all(span) {
        return refuse("The days of the week must be *, numbers or names, joined by commas or hyphens.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["CRON_TZ=Europe/Berlin 30 9 * * 1-5", "0 0 * * *", "5 23 * * mon,Wed,6", ""] {
            assert!(check_schedule(Some(good)).is_ok(), "{good}");
        }
        for bad in [
            "x",
            "60 9 * * *",
            "0 24 * * *",
            "0 9 1 * *",
            "0 9 * 2 *",
            "0 9 * * 8",
            "CRON_TZ= 0 9 * * *",
            "* * * * *",
        ] {
            assert!(check_schedule(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_to_live() {
        assert!(check_ttl(None).is_ok() && check_ttl(Some(MINUTE_MS)).is_ok());
        assert!(
            check_ttl(Some(1)).is_err()
                && check_ttl(Some(-5)).is_err()
                && check_ttl(Some(MONTH_MS + 1)).is_err()
        );
    }
}
