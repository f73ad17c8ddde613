//! One template.

use axum::extract::State;
use coder_api::templates::Template;
use coder_domain::ids::TemplateId;
use coder_domain::rbac::Action;
use coder_store::templates;

use super::{find, view};
use crate::context::App;
use crate::http::params::{Id, Names};
use crate::http::{Caller, Error, Json, Result};
use crate::routes::organizations;

/// `GET /templates/{template}`
pub async fn get(State(app): State<App>, caller: Caller, Id(id): Id<TemplateId>) -> Result<Json<Template>> {
    let mut tx = app.store.reader().await?;
    let template = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    Ok(Json(view::load_one(&mut tx, template).await?))
}

/// `GET /organizations/{organization}/templates/{name}`
pub async fn by_name(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Template>> {
    let [organization, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    let template =
        templates::find_by_name(&mut tx, organization.id, &name).await?.ok_or_else(Error::not_found)?;
    find::require(&caller, Action::Read, &template)?;
    Ok(Json(view::load_one(&mut tx, template).await?))
}
