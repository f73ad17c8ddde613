//! Changing a template.

use axum::extract::State;
use coder_api::templates::{Template, UpdateTemplateRequest};
use coder_domain::ids::TemplateId;
use coder_domain::rbac::Action;
use coder_store::workspaces::schedules::{self, TemplateChange};
use coder_store::{templates, transaction};

use super::{find, settings, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result, WithWarnings};
use crate::routes::{announce, stored_only};
use crate::schedules::deadlines;

/// `PATCH /templates/{template}`. Nothing to change is 200 too, because the command line takes 304 for an error.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateId>,
    Json(request): Json<UpdateTemplateRequest>,
) -> Result<WithWarnings<Json<Template>>> {
    let now = app.now();
    let (updated, warnings) = transaction!(app.store, Error, |tx| {
        let before = find::by_id(tx, &caller, id, Action::Update).await?;
        let mut row = apply(before.clone(), request.clone());
        settings::check(&row)?;
        if row != before {
            row.updated_at = now;
            templates::update(tx, &row).await.map_err(settings::taken(&row.name))?;
            changed(&before, &row).by(tx, &caller, now).await?;
        }
        let change = TemplateChange {
            time_til_deletion_ms: row.settings.time_til_dormant_autodelete_ms,
            restart_dormancy: request.update_workspace_dormant_at,
            mark_used: request.update_workspace_last_used_at,
        };
        if before.settings.schedule_rules() != row.settings.schedule_rules()
            || change.restart_dormancy
            || change.mark_used
        {
            schedules::template_changed(tx, row.id, change, now).await?;
        }
        let (old, new) = (&before.settings, &row.settings);
        if (&old.autostop_days, old.autostop_weeks) != (&new.autostop_days, new.autostop_weeks) {
            deadlines::limit_started(&app.config.schedules, tx, &row, now).await?;
        }
        let warnings = stored_only::of_template_update(&request);
        Ok((view::load_one(tx, row).await?, warnings))
    })?;
    announce::schedules_changed(&app);
    Ok(WithWarnings(Json(updated), warnings))
}

/// What changed, for the audit log.
pub(super) fn changed(before: &templates::Template, after: &templates::Template) -> Event {
    let (old, new) = (&before.settings, &after.settings);
    Event::new(Verb::Write, Kind::Template, after.id.0, after.name.as_str())
        .in_organization(after.organization_id)
        .icon(after.icon.as_str())
        .change("name", &before.name, &after.name)
        .change("display_name", &before.display_name, &after.display_name)
        .change("description", &before.description, &after.description)
        .change("icon", &before.icon, &after.icon)
        .change("deprecated", &before.deprecated, &after.deprecated)
        .change("default_ttl", old.default_ttl_ms, new.default_ttl_ms)
        .change("activity_bump", old.activity_bump_ms, new.activity_bump_ms)
        .change("failure_ttl", old.failure_ttl_ms, new.failure_ttl_ms)
        .change("time_til_dormant", old.time_til_dormant_ms, new.time_til_dormant_ms)
        .change(
            "time_til_dormant_autodelete",
            old.time_til_dormant_autodelete_ms,
            new.time_til_dormant_autodelete_ms,
        )
        .change("autostop_requirement_days_of_week", &old.autostop_days, &new.autostop_days)
        .change("autostop_requirement_weeks", old.autostop_weeks, new.autostop_weeks)
        .change("autostart_block_days_of_week", &old.autostart_days, &new.autostart_days)
        .change("allow_user_autostart", old.allow_user_autostart, new.allow_user_autostart)
        .change("allow_user_autostop", old.allow_user_autostop, new.allow_user_autostop)
        .change(
            "allow_user_cancel_workspace_jobs",
            old.allow_user_cancel_workspace_jobs,
            new.allow_user_cancel_workspace_jobs,
        )
        .change("require_active_version", old.require_active_version, new.require_active_version)
        .change("max_port_sharing_level", &old.max_port_share_level, &new.max_port_share_level)
        .change("cors_behavior", &old.cors_behavior, &new.cors_behavior)
        .change("use_classic_parameter_flow", old.use_classic_parameter_flow, new.use_classic_parameter_flow)
        .change("everyone_may_use", old.everyone_may_use, new.everyone_may_use)
}

/// Absent texts stay. Absent numbers and flags mean zero and false (http-api 6.2), except for the access of the group
/// "Everyone", which only the template's access list gives back.
fn apply(mut row: templates::Template, request: UpdateTemplateRequest) -> templates::Template {
    if !request.name.is_empty() {
        row.name = request.name;
    }
    let keep = |field: &mut String, wanted: Option<String>| {
        if let Some(wanted) = wanted {
            *field = wanted;
        }
    };
    keep(&mut row.display_name, request.display_name);
    keep(&mut row.description, request.description);
    keep(&mut row.icon, request.icon);
    keep(&mut row.deprecated, request.deprecation_message);
    let policy = &mut row.settings;
    policy.default_ttl_ms = request.default_ttl_ms;
    policy.activity_bump_ms = request.activity_bump_ms;
    policy.failure_ttl_ms = request.failure_ttl_ms;
    policy.time_til_dormant_ms = request.time_til_dormant_ms;
    policy.time_til_dormant_autodelete_ms = request.time_til_dormant_autodelete_ms;
    policy.allow_user_autostart = request.allow_user_autostart;
    policy.allow_user_autostop = request.allow_user_autostop;
    policy.allow_user_cancel_workspace_jobs = request.allow_user_cancel_workspace_jobs;
    policy.require_active_version = request.require_active_version;
    // As on the official server, this can only remove the access: a client that changes another setting sends false.
    if request.disable_everyone_group_access {
        policy.everyone_may_use = false;
    }
    if let Some(wanted) = request.autostop_requirement {
        policy.autostop_days = wanted.days_of_week;
        policy.autostop_weeks = wanted.weeks.max(1);
    }
    if let Some(wanted) = request.autostart_requirement {
        policy.autostart_days = wanted.days_of_week;
    }
    keep(
        &mut policy.max_port_share_level,
        request.max_port_share_level.map(|level| level.as_str().to_owned()),
    );
    keep(&mut policy.cors_behavior, request.cors_behavior.map(|word| word.as_str().to_owned()));
    if let Some(classic) = request.use_classic_parameter_flow {
        policy.use_classic_parameter_flow = classic;
    }
    row
}
