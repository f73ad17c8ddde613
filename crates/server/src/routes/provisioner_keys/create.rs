//! Creates a provisioner key.

use axum::extract::State;
use coder_api::keys::{CreateKeyResponse, CreateProvisionerKeyRequest};
use coder_domain::Timestamp;
use coder_domain::ids::KeyId;
use coder_domain::key::{AllowList, InvalidKey, Sha256Digest, new_provisioner_key, validate};
use coder_domain::names;
use coder_domain::rbac::Action;
use coder_domain::tags::TagSet;
use coder_store::keys::{self, Key};
use coder_store::{organizations as stored, transaction};
use jiff::SignedDuration;

use super::view::{event, object, seconds};
use crate::audit::Verb;
use crate::authn::token;
use crate::context::App;
use crate::http::body::Created;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::organizations;

/// `POST /organizations/{organization}/provisionerkeys`: the only answer that shows the secret.
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<CreateProvisionerKeyRequest>,
) -> Result<Created<CreateKeyResponse>> {
    let [organization] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    drop(tx);
    caller.require(Action::Create, object(organization.id))?;
    let now = app.now();
    let name = request.name.to_lowercase();
    let expires_at = request.expires_in_seconds.map(|left| expiry(left, now)).transpose()?;
    validate(&name, &request.tags, expires_at, now).map_err(|invalid| refused(&name, &invalid))?;
    let networks = AllowList::parse(request.allow_addresses.iter().map(String::as_str))
        .map_err(|error| Error::invalid("allow_addresses", error))?;
    let secret = new_provisioner_key(token::random);
    let tags = TagSet::from_stored(request.tags);
    let key = Key { expires_at, networks, ..Key::new(KeyId::random(), organization.id, name, tags, now) };
    transaction!(app.store, Error, |tx| {
        if !stored::keep(tx, organization.id).await? {
            return Err(Error::not_found());
        }
        let inserted = keys::insert(tx, &key, Sha256Digest::of(secret.expose())).await;
        inserted.map_err(|error| taken(&key.name, error))?;
        let made = event(Verb::Create, &key)
            .change("name", "", &key.name)
            .change("tags", (), key.tags.as_map())
            .change("expires_at", (), key.expires_at)
            .change("allow_addresses", (), &key.networks)
            .secret("hashed_secret");
        Ok(made.by(tx, &caller, now).await?)
    })?;
    tracing::info!(key_name = key.name, organization_id = %organization.id, user_id = %caller.user.id, "provisioner key created");
    Ok(Created(CreateKeyResponse { key: secret }))
}

fn taken(name: &str, error: coder_store::Error) -> Error {
    if error.is_conflict_on("provisioner_keys", "name_lower") {
        return Error::conflict(format!(
            "Provisioner key with name {name:?} already exists in organization."
        ));
    }
    error.into()
}

/// When a key with so many seconds left expires.
pub(super) fn expiry(left: i64, now: Timestamp) -> Result<Timestamp> {
    let left: SignedDuration = seconds("expires_in_seconds", left)?;
    if !left.is_positive() {
        return Err(Error::invalid(
            "expires_in_seconds",
            "The key must be valid for a time: give at least 1.",
        ));
    }
    now.checked_add(left).map_err(|_| Error::invalid("expires_in_seconds", "That is too far in the future."))
}

fn refused(name: &str, invalid: &InvalidKey) -> Error {
    match invalid {
        InvalidKey::Name(names::Error::Reserved(_)) => {
            Error::bad_request(format!("Provisioner key name {name:?} is reserved.")).field("name", invalid)
        }
        InvalidKey::Name(_) => Error::invalid("name", invalid),
        InvalidKey::Tags(_) | InvalidKey::UserScope => Error::invalid("tags", invalid),
        InvalidKey::Past(_) => Error::invalid("expires_in_seconds", invalid),
    }
}
