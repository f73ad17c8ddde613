//! Changing a template.

use axum::extract::State;
use coder_api::templates::{Template, UpdateTemplateRequest};
use coder_domain::ids::TemplateId;
use coder_domain::rbac::Action;
use coder_store::templates;

use super::{find, settings, view};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Json, Result};

/// `PATCH /templates/{template}`. Nothing to change is 200 too, because the command line takes 304 for an error.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateId>,
    Json(request): Json<UpdateTemplateRequest>,
) -> Result<Json<Template>> {
    let mut tx = app.store.begin().await?;
    let before = find::by_id(&mut tx, &caller, id, Action::Update).await?;
    let mut row = apply(before.clone(), request);
    settings::check(&row)?;
    if row != before {
        row.updated_at = app.now();
        templates::update(&mut tx, &row).await.map_err(settings::taken(&row.name))?;
    }
    let updated = view::load_one(&mut tx, row).await?;
    tx.commit().await?;
    Ok(Json(updated))
}

/// Absent texts stay; absent numbers and flags mean zero and false (http-api 6.2).
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
    policy.everyone_may_use = !request.disable_everyone_group_access;
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
