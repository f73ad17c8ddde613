//! The provisioner keys of an organization.

use axum::extract::State;
use coder_api::keys::ProvisionerKey;
use coder_domain::rbac::Action;
use coder_store::keys;

use super::view::{has_reserved_id, object, view};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Json, Result};
use crate::routes::organizations;

/// `GET /organizations/{organization}/provisionerkeys`: without the reserved ones; no secret is in it, so every member
/// may read it.
pub async fn list(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Vec<ProvisionerKey>>> {
    let [organization] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    caller.require_visible(Action::Read, object(organization.id))?;
    let keys = keys::list(&mut tx, organization.id).await?;
    Ok(Json(keys.into_iter().filter(|key| !has_reserved_id(key.id)).map(view).collect()))
}
