//! The quiet hours of a user: when a template that requires stops may stop the user's workspaces.

use axum::extract::State;
use coder_api::users::{QuietHours, UpdateQuietHoursRequest};
use coder_domain::Timestamp;
use coder_domain::rbac::Action;
use coder_domain::schedule::Schedule;
use coder_store::{quiet_hours as rows, transaction};
use http::StatusCode;

use super::find;
use crate::audit::{Event, Kind, Verb};
use crate::config::Schedules;
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::schedules::deadlines;

/// `GET /users/{user}/quiet-hours`
pub async fn show(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<QuietHours>> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = find::visible(&mut tx, &caller, &name).await?;
    let own = user.id == caller.user.id;
    caller.require(if own { Action::ReadPersonal } else { Action::Read }, find::object(&user))?;
    let chosen = rows::find(&mut tx, user.id).await?;
    view(&app.config.schedules, chosen.as_deref(), app.now()).map(Json)
}

/// `PUT /users/{user}/quiet-hours`. Deadlines of started workspaces stay.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdateQuietHoursRequest>,
) -> Result<Json<QuietHours>> {
    let [name] = names.take()?;
    let now = app.now();
    let text = request.schedule;
    transaction!(app.store, Error, |tx| {
        let user = find::visible(tx, &caller, &name).await?;
        let own = user.id == caller.user.id;
        caller.require(if own { Action::UpdatePersonal } else { Action::Update }, find::object(&user))?;
        if !app.config.schedules.allow_custom_quiet_hours {
            return Err(Error::new(
                StatusCode::FORBIDDEN,
                "Users cannot set custom quiet hours schedule due to deployment configuration.",
            ));
        }
        Schedule::daily(&text)
            .map_err(|error| Error::invalid("schedule", format!("Invalid schedule: {error}.")))?;
        let before = rows::find(tx, user.id).await?.unwrap_or_default();
        rows::upsert(tx, user.id, &text).await?;
        Event::new(Verb::Write, Kind::User, user.id.0, user.username.as_str())
            .change("quiet_hours_schedule", &before, &text)
            .by(tx, &caller, now)
            .await?;
        Ok(())
    })?;
    view(&app.config.schedules, Some(&text), now).map(Json)
}

fn view(config: &Schedules, chosen: Option<&str>, now: Timestamp) -> Result<QuietHours> {
    let chosen = chosen.filter(|text| config.allow_custom_quiet_hours && Schedule::daily(text).is_ok());
    let unknown = || Error::not_found().detail("The server has no default quiet hours.");
    let schedule = deadlines::quiet_hours(config, chosen).ok_or_else(unknown)?;
    let (hour, minute) = schedule.time().unwrap_or_default();
    Ok(QuietHours {
        raw_schedule: chosen.unwrap_or(&config.default_quiet_hours).to_owned(),
        user_set: chosen.is_some(),
        user_can_set: config.allow_custom_quiet_hours,
        time: format!("{hour:02}:{minute:02}"),
        timezone: schedule.zone_name().to_owned(),
        next: schedule.next(now).unwrap_or(now),
    })
}
