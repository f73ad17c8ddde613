//! Deleting a provisioner key.

use axum::extract::State;
use coder_domain::rbac::Action;
use coder_store::{keys, transaction};

use super::view::{event, is_reserved, object};
use crate::audit::Verb;
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, NoContent, Result};
use crate::provisioning::credentials::revoke;
use crate::routes::organizations;

/// `DELETE /organizations/{organization}/provisionerkeys/{name}`: its daemons' jobs fail and their sessions end at once
/// (CONF-14); the rows of its daemons stay until those jobs have ended.
pub async fn delete(State(app): State<App>, caller: Caller, names: Names) -> Result<NoContent> {
    let [organization, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    caller.require_visible(Action::Delete, object(organization.id))?;
    if is_reserved(&name) {
        return Err(Error::bad_request(format!(
            "Cannot delete reserved provisioner key {:?}.",
            name.to_lowercase()
        )));
    }
    let key = keys::find_by_name(&mut tx, organization.id, &name).await?.ok_or_else(Error::not_found)?;
    drop(tx);
    let now = app.now();
    let deleted = transaction!(app.store, coder_store::Error, |tx| {
        let Some(id) = keys::revoke(tx, organization.id, &name, now).await? else { return Ok(None) };
        event(Verb::Delete, &key).change("name", &key.name, "").by(tx, &caller, now).await?;
        write_down(&app.store, tx, Hint::Key(id), now).await?;
        Ok(Some(id))
    })?;
    let id = deleted.ok_or_else(Error::not_found)?;
    // The key is deleted already. The reaper finds jobs that could not be ended.
    if let Err(error) = revoke::key(&app, id, revoke::Reason::Deleted).await {
        tracing::error!(key_name = name, %error, "cannot end the jobs of a deleted provisioner key");
    }
    tracing::info!(key_name = name, organization_id = %organization.id, user_id = %caller.user.id, "provisioner key deleted");
    Ok(NoContent)
}
