//! When workspaces stop.

use coder_domain::Timestamp;
use coder_domain::ids::WorkspaceId;
use coder_domain::schedule::Schedule;
use coder_domain::schedule::activity::{self, Started};
use coder_domain::schedule::deadline::{self, Deadlines};
use coder_store::jobs::assignments::Schedules as Stored;
use coder_store::templates::Template;
use coder_store::workspaces::schedules as rows;
use coder_store::{Error, Tx};
use jiff::SignedDuration;

use super::autostart;
use crate::config::Schedules;
use crate::context::App;

/// The quiet hours of a user who chose these, or none.
#[must_use]
pub fn quiet_hours(config: &Schedules, chosen: Option<&str>) -> Option<Schedule> {
    let own = chosen.filter(|_| config.allow_custom_quiet_hours).and_then(|text| Schedule::daily(text).ok());
    own.or_else(|| Schedule::daily(&config.default_quiet_hours).ok())
}

/// The deadlines of a workspace whose start ends now.
#[must_use]
pub fn of_start(config: &Schedules, stored: &Stored, now: Timestamp) -> Deadlines {
    let Some(settings) = &stored.settings else { return Deadlines::default() };
    let (own, quiet) =
        (autostart(stored.autostart_schedule.as_deref()), quiet_hours(config, stored.quiet_hours.as_deref()));
    let ttl = stored.ttl_ms.map(SignedDuration::from_millis);
    deadline::of_start(&settings.schedule_rules(), ttl, own.as_ref(), quiet.as_ref(), now)
}

/// Applies the stops that a template requires from now on to its started workspaces.
pub async fn limit_started(
    config: &Schedules,
    tx: &mut Tx,
    template: &Template,
    now: Timestamp,
) -> Result<(), Error> {
    let rules = template.settings.schedule_rules();
    let limit = |row: rows::Limited| {
        let quiet = quiet_hours(config, row.quiet_hours.as_deref());
        (row.build_id, deadline::after_change(&rules, row.deadline_at, quiet.as_ref(), now))
    };
    let limited: Vec<_> = rows::list_limited(tx, template.id).await?.into_iter().map(limit).collect();
    rows::update_deadlines(tx, &limited, now).await
}

/// Extends the deadlines of workspaces that are in use: one statement that reads, and one that writes when a deadline moves.
pub async fn extend_used(app: &App, used: &[WorkspaceId], now: Timestamp) -> Result<(), Error> {
    let started = rows::list_started(&mut app.store.reader().await?, used).await?;
    let moved: Vec<_> = started.iter().filter_map(|row| Some((row.build_id, bump(row, now)?))).collect();
    if moved.is_empty() {
        return Ok(());
    }
    rows::extend(&mut app.store.single().await?, &moved, now).await
}

fn bump(row: &rows::Started, now: Timestamp) -> Option<Timestamp> {
    let (rules, own) = (row.settings.schedule_rules(), autostart(row.autostart_schedule.as_deref()));
    let started = Started {
        rules: &rules,
        deadline: row.deadline_at,
        max_deadline: row.max_deadline_at,
        ttl: row.ttl_ms.map(SignedDuration::from_millis),
        autostart: own.as_ref(),
    };
    activity::bump(&started, now)
}
