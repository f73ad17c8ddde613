//! One version, by id or by name.

use axum::extract::State;
use coder_api::versions::TemplateVersion;
use coder_domain::ids::TemplateVersionId;
use coder_domain::rbac::Action;
use coder_store::templates::{self as rows, versions};

use super::{find, view};
use crate::context::App;
use crate::http::params::{Id, Names, id};
use crate::http::{Caller, Error, Json, Result};
use crate::routes::{organizations, templates};

/// `GET /templateversions/{version}`
pub async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
) -> Result<Json<TemplateVersion>> {
    let mut tx = app.store.reader().await?;
    let version = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    Ok(Json(view::load_one(&app, &mut tx, version).await?))
}

/// `GET /templates/{template}/versions/{name}`
pub async fn by_template_and_name(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<TemplateVersion>> {
    let [template, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let template = templates::find::by_id(&mut tx, &caller, id(&template)?, Action::Read).await?;
    let version = versions::find_by_name(&mut tx, template.id, &name).await?.ok_or_else(Error::not_found)?;
    Ok(Json(view::load_one(&app, &mut tx, version).await?))
}

/// `GET /organizations/{organization}/templates/{template}/versions/{name}`
pub async fn by_names(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<TemplateVersion>> {
    let [organization, template, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let version = named(&app, &mut tx, &caller, [&organization, &template, &name]).await?;
    Ok(Json(view::load_one(&app, &mut tx, version).await?))
}

/// `GET /organizations/{organization}/templates/{template}/versions/{name}/previous`
pub async fn previous(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<TemplateVersion>> {
    let [organization, template, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let version = named(&app, &mut tx, &caller, [&organization, &template, &name]).await?;
    let before = versions::find_previous(&mut tx, &version).await?.ok_or_else(Error::not_found)?;
    Ok(Json(view::load_one(&app, &mut tx, before).await?))
}

async fn named(
    app: &App,
    tx: &mut coder_store::Tx,
    caller: &Caller,
    [organization, template, name]: [&str; 3],
) -> Result<versions::Version> {
    let organization = organizations::named(app, tx, caller, organization).await?;
    let template = rows::find_by_name(tx, organization.id, template).await?.ok_or_else(Error::not_found)?;
    templates::find::require(caller, Action::Read, &template)?;
    versions::find_by_name(tx, template.id, name).await?.ok_or_else(Error::not_found)
}
