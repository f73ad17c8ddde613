//! The key of a daemon that asks about itself.

use axum::extract::State;
use coder_api::headers::{PROVISIONER_KEY, PROVISIONER_PSK};
use coder_api::keys::ProvisionerKey;
use coder_domain::key::{PROVISIONER_KEY_LENGTH, Sha256Digest, is_provisioner_key};
use coder_store::keys;
use http::HeaderMap;

use super::view::view;
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::{Error, Json, Result};

/// `GET /provisionerkeys/{anything}`: only the header counts, the path is ignored (KEY-8).
/// The key must be valid now and from the caller's address, as for joining.
pub async fn get(State(app): State<App>, origin: Origin, headers: HeaderMap) -> Result<Json<ProvisionerKey>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = text(PROVISIONER_KEY);
    if key.is_empty() {
        return Err(Error::unauthorized("provisioner daemon key required").compact());
    }
    if !text(PROVISIONER_PSK).is_empty() {
        return Err(
            Error::bad_request("provisioner daemon key and psk provided, but only one is allowed").compact()
        );
    }
    if !is_provisioner_key(key) {
        return Err(Error::bad_request("provisioner daemon key invalid")
            .detail(format!("The key must have {PROVISIONER_KEY_LENGTH} characters."))
            .compact());
    }
    let shown = keys::find_by_secret(&mut app.store.reader().await?, Sha256Digest::of(key)).await?;
    let valid =
        shown.filter(|shown| shown.key.validity().check(shown.generation, app.now(), origin.address).is_ok());
    match valid {
        Some(shown) => Ok(Json(view(shown.key))),
        None => Err(Error::unauthorized("provisioner daemon key invalid").compact()),
    }
}
