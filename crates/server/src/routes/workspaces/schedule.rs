//! When a workspace starts and stops without a person: autostart, time to live, deadline.

use axum::extract::State;
use coder_api::error::Message;
use coder_api::workspaces::{
    ExtendWorkspaceRequest, ResolveAutostart, UpdateAutostartRequest, UpdateTtlRequest,
};
use coder_domain::Timestamp;
use coder_domain::build::Transition;
use coder_domain::ids::WorkspaceId;
use coder_domain::job::Status;
use coder_domain::rbac::Action;
use coder_domain::schedule::{Schedule, deadline};
use coder_store::workspaces::{build_inputs, builds as build_rows, schedules};
use coder_store::{jobs, templates, transaction};
use http::StatusCode;

use super::find;
use super::settings::{self, SetBy, change};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, NoContent, Result};
use crate::routes::builds::parameters::{GivenParameters, VersionParameters};
use crate::routes::{announce, builds, versions};

const MINUTE_MS: i64 = 60_000;
const MONTH_MS: i64 = 30 * 24 * 60 * MINUTE_MS;

/// `PUT /workspaces/{workspace}/autostart`
pub async fn autostart(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateAutostartRequest>,
) -> Result<NoContent> {
    check_schedule(request.schedule.as_deref())?;
    let schedule = request.schedule.filter(|text| !text.is_empty());
    change(&app, &caller, id, SetBy::Schedule, |row, template| {
        if schedule.is_some() && !template.settings.allow_user_autostart {
            return Err(Error::bad_request("Autostart is not allowed for workspaces using this template."));
        }
        row.autostart_schedule.clone_from(&schedule);
        Ok(())
    })
    .await
}

/// `PUT /workspaces/{workspace}/ttl`. A workspace that is started keeps its deadline.
pub async fn ttl(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpdateTtlRequest>,
) -> Result<NoContent> {
    check_ttl(request.ttl_ms)?;
    let ttl = request.ttl_ms.filter(|ttl| *ttl > 0);
    change(&app, &caller, id, SetBy::Other, |row, template| {
        if !template.settings.allow_user_autostop {
            return Err(Error::bad_request(
                "Custom autostop TTL is not allowed for workspaces using this template.",
            ));
        }
        row.ttl_ms = ttl;
        Ok(())
    })
    .await
}

/// `PUT /workspaces/{workspace}/extend`: sets the deadline of a started workspace.
pub async fn extend(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<ExtendWorkspaceRequest>,
) -> Result<Json<Message>> {
    let now = app.now();
    let deadline = request.deadline;
    transaction!(app.store, Error, |tx| {
        let row = settings::find_not_deleted(tx, &caller, id).await?;
        let build = build_rows::find_latest(tx, id).await?.ok_or_else(Error::not_found)?;
        let job = jobs::get(tx, build.job_id).await?;
        if build.transition != Transition::Start {
            return Err(Error::conflict(format!(
                "Workspace must be started, current status: {}",
                build.transition.as_str()
            )));
        }
        if job.completed_at.is_none() {
            return Err(Error::conflict("Workspace is still building!"));
        }
        if job.status() != Status::Succeeded {
            return Err(Error::conflict("Workspace must be started, but its last start failed."));
        }
        let Some(before) = build.deadline_at else {
            return Err(Error::conflict("Workspace shutdown is manual."));
        };
        deadline::check_extension(deadline, build.max_deadline_at, now).map_err(|reason| {
            Error::bad_request("Cannot extend workspace: the new deadline is not possible.")
                .field("deadline", reason)
        })?;
        schedules::update_deadline(tx, build.id, deadline, now).await?;
        // The new deadline may be earlier than the old one.
        schedules::look_again(tx, id, now).await?;
        Event::new(Verb::Write, Kind::WorkspaceBuild, build.id.0, row.name.as_str())
            .in_organization(row.organization_id)
            .change("deadline", before, deadline)
            .by(tx, &caller, now)
            .await?;
        Ok(())
    })?;
    announce::workspace_changed(&app, id);
    Ok(Json(Message::new(format!("Deadline updated to {}.", written(deadline)))))
}

fn written(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `GET /workspaces/{workspace}/resolve-autostart`: whether a start by schedule would need parameter values.
pub async fn resolve_autostart(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
) -> Result<Json<ResolveAutostart>> {
    let mut tx = app.store.reader().await?;
    let row = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let template = templates::find(&mut tx, row.template_id).await?.ok_or_else(Error::not_found)?;
    if row.automatic_updates != "always" && !template.settings.require_active_version {
        return Ok(Json(ResolveAutostart { parameter_mismatch: false }));
    }
    let latest = build_rows::find_latest(&mut tx, id).await?.ok_or_else(Error::not_found)?;
    let last = build_rows::list_parameters(&mut tx, latest.id).await?;
    let given = GivenParameters { last: Some(last), ..Default::default() };
    let found = build_inputs::find_version(&mut tx, template.active_version_id).await?;
    let (version, import) = found.ok_or_else(Error::not_found)?;
    let flow = versions::tags::flow(Some(&template));
    let source =
        builds::source::find(&mut tx, flow, &version, import.file_id, row.owner_id, app.now()).await?;
    let known = VersionParameters::find(&mut tx, version.id, &given).await?;
    drop(tx);
    match known.resolve(&app, caller.user.id, source, given).await {
        Ok(_) => Ok(Json(ResolveAutostart { parameter_mismatch: false })),
        Err(error) if error.status() == StatusCode::BAD_REQUEST => {
            Ok(Json(ResolveAutostart { parameter_mismatch: true }))
        }
        Err(error) => Err(error),
    }
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

/// Checks the schedule of a workspace; an empty text means that it has none.
pub fn check_schedule(schedule: Option<&str>) -> Result<()> {
    let Some(text) = schedule.filter(|text| !text.is_empty()) else { return Ok(()) };
    Schedule::weekly(text)
        .map(drop)
        .map_err(|error| Error::invalid("schedule", format!("Invalid schedule: {error}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["CRON_TZ=Europe/Berlin 30 9 * * 1-5", "0 0 * * *", "5 23 * * mon,Wed,6", ""] {
            assert!(check_schedule(Some(good)).is_ok(), "{good}");
        }
        for bad in ["x", "60 9 * * *", "0 9 1 * *", "CRON_TZ=Nowhere 0 9 * * *"] {
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
