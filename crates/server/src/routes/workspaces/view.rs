//! Converts workspaces to the API type.

use std::collections::HashMap;

use coder_api::builds::WorkspaceBuild;
use coder_api::json::ZERO_TIME;
use coder_api::workspaces::{Workspace, WorkspaceHealth};
use coder_store::workspaces::Workspace as Row;
use coder_store::workspaces::builds as store;
use coder_store::{Tx, organizations, templates};

use crate::context::App;
use crate::http::{Caller, Error, Result};
use crate::routes::builds;
use crate::schedules;

/// Workspaces with their latest builds, read with one statement per table.
pub async fn load(app: &App, tx: &mut Tx, caller: &Caller, rows: Vec<Row>) -> Result<Vec<Workspace>> {
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let latest = store::list_latest(tx, &ids).await?;
    let by_id: HashMap<_, _> = rows.iter().map(|row| (row.id, row.clone())).collect();
    let latest = builds::view::load(app, tx, &latest, &by_id, builds::view::Detail::Matches).await?;
    let mut latest: HashMap<_, _> = latest.into_iter().map(|build| (build.workspace_id, build)).collect();
    let template_ids: Vec<_> = rows.iter().map(|row| row.template_id).collect();
    let used = templates::find_many(tx, &template_ids).await?;
    let used: HashMap<_, _> = used.into_iter().map(|template| (template.id, template)).collect();
    let mut names = HashMap::new();
    for row in &rows {
        if !names.contains_key(&row.organization_id)
            && let Some(organization) = organizations::find(tx, row.organization_id).await?
        {
            names.insert(row.organization_id, organization.name);
        }
    }
    let view = |row: Row| {
        let template = used.get(&row.template_id)?;
        let build = latest.remove(&row.id)?;
        let organization_name = names.get(&row.organization_id).cloned().unwrap_or_default();
        Some(one(app, caller, row, build, template, organization_name))
    };
    Ok(rows.into_iter().filter_map(view).collect())
}

pub async fn load_one(app: &App, tx: &mut Tx, caller: &Caller, row: Row) -> Result<Workspace> {
    load(app, tx, caller, vec![row]).await?.pop().ok_or_else(Error::not_found)
}

fn one(
    app: &App,
    caller: &Caller,
    row: Row,
    latest_build: WorkspaceBuild,
    template: &templates::Template,
    organization_name: String,
) -> Workspace {
    let settings = &template.settings;
    let agents = latest_build.resources.iter().flat_map(|resource| &resource.agents);
    let failing_agents: Vec<_> = agents
        .filter(|agent| agent.parent_id.is_none() && !agent.health.healthy)
        .map(|agent| agent.id)
        .collect();
    let next_start_at = schedules::next_start(&row, settings, app.now());
    let ttl_ms = if settings.allow_user_autostop {
        row.ttl_ms
    } else {
        Some(settings.default_ttl_ms).filter(|ttl| *ttl > 0)
    };
    Workspace {
        id: row.id,
        created_at: row.created_at,
        updated_at: row.updated_at,
        owner_id: row.owner_id,
        owner_name: latest_build.workspace_owner_name.clone(),
        owner_avatar_url: latest_build.workspace_owner_avatar_url.clone(),
        organization_id: row.organization_id,
        organization_name,
        template_id: template.id,
        template_name: template.name.clone(),
        template_display_name: template.display_name.clone(),
        template_icon: template.icon.clone(),
        template_allow_user_cancel_workspace_jobs: settings.allow_user_cancel_workspace_jobs,
        template_active_version_id: template.active_version_id,
        template_require_active_version: settings.require_active_version,
        template_use_classic_parameter_flow: true,
        outdated: latest_build.template_version_id != template.active_version_id,
        latest_build,
        latest_app_status: None,
        name: row.name,
        autostart_schedule: row.autostart_schedule,
        ttl_ms,
        last_used_at: Some(row.last_used_at).filter(|at| *at != ZERO_TIME),
        deleting_at: row.deleting_at,
        schedule_note: row.schedule_note,
        dormant_at: row.dormant_at,
        health: WorkspaceHealth { healthy: failing_agents.is_empty(), failing_agents },
        automatic_updates: row.automatic_updates.as_str().into(),
        allow_renames: app.config.workspaces.renames,
        favorite: row.favorite && row.owner_id == caller.user.id,
        next_start_at,
        is_prebuild: row.owner_id == coder_domain::ids::UserId::PREBUILDS,
        task_id: None,
    }
}
