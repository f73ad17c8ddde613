//! Converts templates to the API type.

use std::collections::HashMap;

use coder_api::templates::{AutostartRequirement, AutostopRequirement, BuildTimeStats, Template};
use coder_store::{Tx, organizations, templates, users};

use crate::http::Result;

/// Rows with the names around them.
pub async fn load(tx: &mut Tx, rows: Vec<templates::Template>) -> Result<Vec<Template>> {
    let creators: Vec<_> = rows.iter().map(|row| row.created_by).collect();
    let creators = users::find_many(tx, &creators).await?;
    let creators: HashMap<_, _> = creators.into_iter().map(|user| (user.id, user.username)).collect();
    let mut known: HashMap<_, organizations::Organization> = HashMap::new();
    for row in &rows {
        if !known.contains_key(&row.organization_id)
            && let Some(organization) = organizations::find(tx, row.organization_id).await?
        {
            known.insert(organization.id, organization);
        }
    }
    let view = |row: templates::Template| {
        let organization = known.get(&row.organization_id);
        let text = |pick: fn(&organizations::Organization) -> &String| {
            organization.map(pick).cloned().unwrap_or_default()
        };
        let (name, display_name, icon) =
            (text(|organization| &organization.name), text(|o| &o.display_name), text(|o| &o.icon));
        let creator = creators.get(&row.created_by).cloned().unwrap_or_default();
        one(row, (name, display_name, icon), creator)
    };
    Ok(rows.into_iter().map(view).collect())
}

/// One row with the names around it.
pub async fn load_one(tx: &mut Tx, row: templates::Template) -> Result<Template> {
    let mut loaded = load(tx, vec![row]).await?;
    Ok(loaded.remove(0))
}

fn one(
    row: templates::Template,
    organization: (String, String, String),
    created_by_name: String,
) -> Template {
    let settings = row.settings;
    Template {
        id: row.id,
        created_at: row.created_at,
        updated_at: row.updated_at,
        organization_id: row.organization_id,
        organization_name: organization.0,
        organization_display_name: organization.1,
        organization_icon: organization.2,
        name: row.name,
        display_name: row.display_name,
        provisioner: row.provisioner.as_str().into(),
        active_version_id: row.active_version_id,
        // Active users are not counted yet; −1 means unknown.
        active_user_count: -1,
        build_time_stats: BuildTimeStats::default(),
        description: row.description,
        deprecated: !row.deprecated.is_empty(),
        deprecation_message: row.deprecated,
        icon: row.icon,
        default_ttl_ms: settings.default_ttl_ms,
        activity_bump_ms: settings.activity_bump_ms,
        autostop_requirement: AutostopRequirement {
            days_of_week: settings.autostop_days,
            weeks: settings.autostop_weeks,
        },
        autostart_requirement: AutostartRequirement { days_of_week: settings.autostart_days },
        created_by_id: row.created_by,
        created_by_name,
        allow_user_autostart: settings.allow_user_autostart,
        allow_user_autostop: settings.allow_user_autostop,
        allow_user_cancel_workspace_jobs: settings.allow_user_cancel_workspace_jobs,
        failure_ttl_ms: settings.failure_ttl_ms,
        time_til_dormant_ms: settings.time_til_dormant_ms,
        time_til_dormant_autodelete_ms: settings.time_til_dormant_autodelete_ms,
        require_active_version: settings.require_active_version,
        max_port_share_level: settings.max_port_share_level.as_str().into(),
        cors_behavior: settings.cors_behavior.as_str().into(),
        // Without the dynamic-parameters endpoint, clients can only show the classic form.
        use_classic_parameter_flow: true,
    }
}
