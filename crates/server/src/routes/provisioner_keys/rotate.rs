//! Rotates the secret of a provisioner key, with an overlap in which the old one stays valid.

use axum::extract::State;
use coder_api::keys::{RotateProvisionerKeyRequest, RotateProvisionerKeyResponse};
use coder_domain::key::{Sha256Digest, new_provisioner_key};
use coder_domain::rbac::Action;
use coder_store::keys;
use coder_store::transaction;
use jiff::SignedDuration;

use super::view::{event, is_reserved, object, seconds};
use crate::audit::Verb;
use crate::authn::token;
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::provisioning::credentials::revoke;
use crate::routes::organizations;

/// Longest overlap. For a longer one, create a second key.
const MAX_OVERLAP: SignedDuration = SignedDuration::from_hours(31 * 24);

/// `POST /organizations/{organization}/provisionerkeys/{name}/rotate`: the new secret is shown in this answer only. No
/// session ends before the overlap does, so no job is lost while daemons get the new one.
pub async fn rotate(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<RotateProvisionerKeyRequest>,
) -> Result<Json<RotateProvisionerKeyResponse>> {
    let [organization, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    caller.require_visible(Action::Update, object(organization.id))?;
    if is_reserved(&name) {
        return Err(Error::bad_request(format!(
            "Cannot rotate reserved provisioner key {:?}.",
            name.to_lowercase()
        )));
    }
    let overlap = seconds("overlap_seconds", request.overlap_seconds)?;
    if overlap.is_negative() || overlap > MAX_OVERLAP {
        let detail = format!("The overlap is between 0 and {} seconds.", MAX_OVERLAP.as_secs());
        return Err(Error::invalid("overlap_seconds", detail));
    }
    let key = keys::find_by_name(&mut tx, organization.id, &name).await?.ok_or_else(Error::not_found)?;
    drop(tx);
    let now = app.now();
    let validity = key.validity().rotated(now, overlap);
    let until = validity.previous_until.unwrap_or(now);
    let secret = new_provisioner_key(token::random);
    transaction!(app.store, coder_store::Error, |tx| {
        keys::rotate(tx, key.id, Sha256Digest::of(secret.expose()), until).await?;
        let rotated = event(Verb::Write, &key).secret("hashed_secret").change(
            "previous_valid_until",
            key.previous_until,
            until,
        );
        rotated.by(tx, &caller, now).await?;
        write_down(&app.store, tx, Hint::Key(key.id), now).await
    })?;
    // Sessions of the old secret set their timers.
    revoke::changed(&app, key.id);
    tracing::info!(key_name = key.name, organization_id = %organization.id, user_id = %caller.user.id, %until, "provisioner key rotated");
    Ok(Json(RotateProvisionerKeyResponse { key: secret, previous_valid_until: until }))
}
