//! The results of an import: resources, variables, parameters, presets, external authentication.

use axum::extract::State;
use coder_api::paths;
use coder_api::resources::WorkspaceResource;
use coder_api::versions::{
    Preset, PresetParameter, REDACTED, TemplateVersionExternalAuth, TemplateVersionParameter,
    TemplateVersionParameterOption, TemplateVersionVariable,
};
use coder_domain::ids::TemplateVersionId;
use coder_domain::rbac::Action;
use coder_store::templates::version_details as details;
use coder_store::templates::versions::Version;
use coder_store::{Tx, jobs};
use futures_util::future::try_join_all;
use http::StatusCode;

use super::find;
use crate::context::App;
use crate::external_auth;
use crate::http::params::Id;
use crate::http::{AccessUrl, Caller, Error, Json, Result};
use crate::markdown::plain_text;
use crate::routes::resources as shown;

/// Descriptions of this length together, in bytes, are rendered in less than a millisecond.
const SHORT_DESCRIPTIONS: usize = 16 << 10;

/// A version whose import has ended. Before that, each route has another status (http-api 1.6).
async fn ended(tx: &mut Tx, caller: &Caller, id: TemplateVersionId, early: StatusCode) -> Result<Version> {
    let version = find::by_id(tx, caller, id, Action::Read).await?;
    if jobs::get(tx, version.job_id).await?.completed_at.is_none() {
        return Err(Error::new(early, "Template version job hasn't completed!"));
    }
    Ok(version)
}

/// `GET /templateversions/{version}/resources`
pub async fn resources(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<Vec<WorkspaceResource>>> {
    let mut tx = app.store.reader().await?;
    let version = ended(&mut tx, &caller, id, StatusCode::BAD_REQUEST).await?;
    Ok(Json(shown::of_job(&app, &mut tx, version.job_id).await?))
}

/// `GET /templateversions/{version}/variables`: sensitive values are not shown.
pub async fn variables(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<Vec<TemplateVersionVariable>>> {
    let mut tx = app.store.reader().await?;
    let version = ended(&mut tx, &caller, id, StatusCode::FORBIDDEN).await?;
    let view = |row: details::Variable| {
        let show = |value: &coder_domain::secret::Secret| {
            if row.sensitive { REDACTED.to_owned() } else { value.expose().to_owned() }
        };
        TemplateVersionVariable {
            value: show(&row.value),
            default_value: show(&row.default_value),
            kind: row.kind.as_str().into(),
            name: row.name,
            description: row.description,
            required: row.required,
            sensitive: row.sensitive,
        }
    };
    Ok(Json(details::list_variables(&mut tx, version.id).await?.into_iter().map(view).collect()))
}

/// `GET /templateversions/{version}/rich-parameters`
pub async fn parameters(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<Vec<TemplateVersionParameter>>> {
    let mut tx = app.store.reader().await?;
    let version = ended(&mut tx, &caller, id, StatusCode::TOO_EARLY).await?;
    let rows = details::list_parameters(&mut tx, version.id).await?;
    drop(tx);
    let length: usize = rows.iter().map(|row| row.description.len()).sum();
    let render = move || rows.into_iter().map(parameter).collect();
    if length <= SHORT_DESCRIPTIONS {
        return Ok(Json(render()));
    }
    let _place = app.memory.work_place(caller.user.id).await?;
    let rendered = tokio::task::spawn_blocking(render).await;
    Ok(Json(rendered.map_err(|e| Error::internal("Internal error.", e))?))
}

fn parameter(row: details::Parameter) -> TemplateVersionParameter {
    let option = |option: details::ParameterOption| TemplateVersionParameterOption {
        name: option.name,
        description: option.description,
        value: option.value,
        icon: option.icon,
    };
    TemplateVersionParameter {
        name: row.name,
        display_name: row.display_name,
        description_plaintext: plain_text(&row.description),
        description: row.description,
        kind: row.kind.as_str().into(),
        form_type: row.form_type.as_str().into(),
        mutable: row.mutable,
        default_value: row.default_value,
        icon: row.icon,
        options: row.options.into_iter().map(option).collect(),
        validation_error: row.validation_error,
        validation_regex: row.validation_regex,
        validation_min: row.validation_min,
        validation_max: row.validation_max,
        validation_monotonic: row.validation_monotonic,
        required: row.required,
        ephemeral: row.ephemeral,
    }
}

/// `GET /templateversions/{version}/presets`
pub async fn presets(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<Vec<Preset>>> {
    let mut tx = app.store.reader().await?;
    let version = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let view = |row: details::Preset| Preset {
        id: row.id,
        name: row.name,
        parameters: row.parameters.into_iter().map(|(name, value)| PresetParameter { name, value }).collect(),
        default: row.is_default,
        desired_prebuild_instances: row.desired_instances,
        description: row.description,
        icon: row.icon,
    };
    Ok(Json(details::list_presets(&mut tx, version.id).await?.into_iter().map(view).collect()))
}

/// `GET /templateversions/{version}/external-auth`. There is no address for a provider that is not configured.
pub async fn accounts(
    State(app): State<App>,
    caller: Caller,
    AccessUrl(base): AccessUrl,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<Vec<TemplateVersionExternalAuth>>> {
    let mut tx = app.store.reader().await?;
    let version = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let asked = details::list_external_auth(&mut tx, version.id).await?;
    drop(tx);
    let view = async |row: details::ExternalAuth| {
        let Some((provider, _)) = app.external_auth.find(&row.provider_id) else {
            return Ok::<_, Error>(TemplateVersionExternalAuth {
                display_name: row.provider_id.clone(),
                id: row.provider_id,
                optional: row.optional,
                ..TemplateVersionExternalAuth::default()
            });
        };
        let page = paths::external_auth_page(&provider.id);
        Ok(TemplateVersionExternalAuth {
            id: provider.id.clone(),
            kind: provider.kind.clone(),
            display_name: provider.display_name.clone(),
            display_icon: provider.display_icon.clone(),
            authenticate_url: format!("{}{page}", base.trim_end_matches('/')),
            authenticated: external_auth::is_connected(&app, caller.user.id, provider).await?,
            optional: row.optional,
        })
    };
    Ok(Json(try_join_all(asked.into_iter().map(view)).await?))
}

/// `GET /templateversions/{version}/schema`, `/parameters`: always empty, for older clients.
pub async fn nothing(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<Vec<()>>> {
    find::by_id(&mut app.store.reader().await?, &caller, id, Action::Read).await?;
    Ok(Json(Vec::new()))
}
