//! Deleting a provisioner key.

use axum::extract::State;
use coder_domain::rbac::Action;
use coder_store::keys;

use super::{is_reserved, object};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, NoContent, Result};
use crate::routes::organizations;

/// `DELETE /organizations/{organization}/provisionerkeys/{name}`: the rows of its daemons go too, and their sessions
/// are closed (CONF-14).
pub async fn delete(State(app): State<App>, caller: Caller, names: Names) -> Result<NoContent> {
    let [organization, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    drop(tx);
    caller.require_visible(Action::Delete, object(organization.id))?;
    if is_reserved(&name) {
        return Err(Error::bad_request(format!(
            "Cannot delete reserved provisioner key {:?}.",
            name.to_lowercase()
        )));
    }
    let deleted = keys::revoke(&mut app.store.single().await?, organization.id, &name, app.now()).await?;
    let key = deleted.ok_or_else(Error::not_found)?;
    let closed = app.scheduler.connected().close_key(key);
    tracing::info!(key = name, organization = organization.name, by = %caller.user.id, closed, "provisioner key deleted");
    Ok(NoContent)
}
