//! Changes the expiry and the allowed addresses of a provisioner key. Its tags and name cannot change.

use axum::extract::State;
use coder_api::keys::{ProvisionerKey, UpdateProvisionerKeyRequest};
use coder_domain::key::AllowList;
use coder_domain::rbac::Action;
use coder_store::{keys, transaction};

use super::create::expiry;
use super::view::{event, is_reserved, object, view};
use crate::audit::Verb;
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::provisioning::credentials::revoke;
use crate::routes::organizations;

/// `PATCH /organizations/{organization}/provisionerkeys/{name}`: takes effect at once, for open sessions, too. A daemon
/// at an address that is not allowed any more finishes what it has and is disconnected.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdateProvisionerKeyRequest>,
) -> Result<Json<ProvisionerKey>> {
    let [organization, name] = names.take()?;
    let organization =
        organizations::named(&app, &mut app.store.reader().await?, &caller, &organization).await?;
    caller.require_visible(Action::Update, object(organization.id))?;
    if is_reserved(&name) {
        return Err(Error::bad_request(format!(
            "Cannot update reserved provisioner key {:?}.",
            name.to_lowercase()
        )));
    }
    let now = app.now();
    let expires_at = match (request.expires_in_seconds, request.never_expires) {
        (Some(_), true) => {
            return Err(Error::invalid(
                "never_expires",
                "Give either a time after which the key expires, or that it never does.",
            ));
        }
        (Some(left), false) => Some(Some(expiry(left, now)?)),
        (None, true) => Some(None),
        (None, false) => None,
    };
    let networks = request.allow_addresses.as_ref().map(|list| {
        AllowList::parse(list.iter().map(String::as_str))
            .map_err(|error| Error::invalid("allow_addresses", error))
    });
    let networks = networks.transpose()?;
    let key = transaction!(app.store, Error, |tx| {
        let before = keys::find_by_name(tx, organization.id, &name).await?.ok_or_else(Error::not_found)?;
        let mut key = before.clone();
        if let Some(expires_at) = expires_at {
            key.expires_at = expires_at;
        }
        if let Some(networks) = &networks {
            key.networks = networks.clone();
        }
        if key == before {
            return Ok(key);
        }
        keys::update_expiry(tx, key.id, key.expires_at).await?;
        keys::update_networks(tx, key.id, &key.networks).await?;
        event(Verb::Write, &key)
            .change("expires_at", before.expires_at, key.expires_at)
            .change("allow_addresses", &before.networks, &key.networks)
            .by(tx, &caller, now)
            .await?;
        write_down(&app.store, tx, Hint::Key(key.id), now).await?;
        Ok(key)
    })?;
    // Sessions set their timers and check their addresses.
    revoke::changed(&app, key.id);
    tracing::info!(key_name = key.name, organization_id = %organization.id, user_id = %caller.user.id, "provisioner key changed");
    Ok(Json(view(key)))
}
