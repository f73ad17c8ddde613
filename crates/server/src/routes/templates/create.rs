//! Creates a template from a version.

use axum::extract::State;
use coder_api::templates::{CreateTemplateRequest, Template};
use coder_domain::ids::TemplateId;
use coder_domain::rbac::Action;
use coder_store::templates::Settings;
use coder_store::templates::{self, versions};
use coder_store::{organizations as stored, transaction};
use http::StatusCode;

use super::{find, settings, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result, WithWarnings, body};
use crate::routes::{organizations, stored_only};

/// `POST /organizations/{organization}/templates`. The version's import may be in any state (http-api 6.2).
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<CreateTemplateRequest>,
) -> Result<WithWarnings<body::Created<Template>>> {
    let [organization] = names.take()?;
    let organization =
        organizations::named(&app, &mut app.store.reader().await?, &caller, &organization).await?;
    caller.require(Action::Create, find::object(organization.id))?;
    let version_id = request
        .version_id
        .ok_or_else(|| Error::invalid("template_version_id", "A template version is required."))?;
    let now = app.now();
    let row = templates::Template {
        id: TemplateId::random(),
        organization_id: organization.id,
        name: request.name.clone(),
        display_name: request.display_name.clone(),
        description: request.description.clone(),
        icon: request.icon.clone(),
        provisioner: "terraform".to_owned(),
        active_version_id: version_id,
        created_by: caller.user.id,
        deprecated: String::new(),
        settings: policy(&request),
        created_at: now,
        updated_at: now,
        deleted: false,
    };
    settings::check(&row)?;

    let created = transaction!(app.store, Error, |tx| {
        if !stored::keep(tx, organization.id).await? {
            return Err(Error::not_found());
        }
        let version = versions::find(tx, version_id).await?;
        let version = version.filter(|found| found.organization_id == organization.id).ok_or_else(|| {
            Error::new(StatusCode::NOT_FOUND, "Template version does not exist.")
                .field("template_version_id", "Template version does not exist")
        })?;
        if version.template_id.is_some() {
            return Err(Error::bad_request("Template version is already part of a template.")
                .field("template_version_id", "The version belongs to a template already."));
        }
        if version.archived {
            return Err(Error::bad_request("Template version is archived.")
                .field("template_version_id", "Unarchive the version first."));
        }
        let mut row = row.clone();
        row.provisioner = coder_store::jobs::get(tx, version.job_id).await?.provisioner;
        templates::insert(tx, &row).await.map_err(settings::taken(&row.name))?;
        versions::update_template(tx, version_id, row.id, now).await?;
        Event::new(Verb::Create, Kind::Template, row.id.0, row.name.as_str())
            .in_organization(row.organization_id)
            .icon(row.icon.as_str())
            .change("name", "", &row.name)
            .change("active_version_id", (), version_id)
            .by(tx, &caller, now)
            .await?;
        view::load_one(tx, row).await
    })?;
    let warnings = stored_only::of_new_template(request.template_use_classic_parameter_flow);
    Ok(WithWarnings(body::Created(created), warnings))
}

fn policy(request: &CreateTemplateRequest) -> Settings {
    let base = Settings::default();
    let autostop = request.autostop_requirement.clone();
    let autostart = request.autostart_requirement.clone();
    Settings {
        default_ttl_ms: request.default_ttl_ms.unwrap_or(base.default_ttl_ms),
        activity_bump_ms: request.activity_bump_ms.unwrap_or(base.activity_bump_ms),
        failure_ttl_ms: request.failure_ttl_ms.unwrap_or(base.failure_ttl_ms),
        time_til_dormant_ms: request.dormant_ttl_ms.unwrap_or(base.time_til_dormant_ms),
        time_til_dormant_autodelete_ms: request.delete_ttl_ms.unwrap_or(base.time_til_dormant_autodelete_ms),
        autostop_weeks: autostop.as_ref().map_or(base.autostop_weeks, |wanted| wanted.weeks.max(1)),
        autostop_days: autostop.map_or(base.autostop_days, |wanted| wanted.days_of_week),
        autostart_days: autostart.map_or(base.autostart_days, |wanted| wanted.days_of_week),
        allow_user_autostart: request.allow_user_autostart.unwrap_or(base.allow_user_autostart),
        allow_user_autostop: request.allow_user_autostop.unwrap_or(base.allow_user_autostop),
        allow_user_cancel_workspace_jobs: request
            .allow_user_cancel_workspace_jobs
            .unwrap_or(base.allow_user_cancel_workspace_jobs),
        require_active_version: request.require_active_version,
        max_port_share_level: request
            .max_port_share_level
            .as_ref()
            .map_or(base.max_port_share_level, |level| level.as_str().to_owned()),
        cors_behavior: request
            .cors_behavior
            .as_ref()
            .map_or(base.cors_behavior, |word| word.as_str().to_owned()),
        use_classic_parameter_flow: request
            .template_use_classic_parameter_flow
            .unwrap_or(base.use_classic_parameter_flow),
        everyone_may_use: !request.disable_everyone_group_access,
    }
}
