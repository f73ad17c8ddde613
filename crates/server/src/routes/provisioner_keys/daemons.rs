//! The provisioner keys of an organization, each with its daemons.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::keys::ProvisionerKeyDaemons;
use coder_domain::ids::KeyId;
use coder_domain::rbac::Action;
use coder_store::daemons::{self, DaemonFilter};
use coder_store::keys;
use jiff::SignedDuration;

use super::view::{has_reserved_id, object, view};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Json, Result};
use crate::provisioning::session::presence::seen_within;
use crate::routes::{organizations, provisioner_daemons};

/// Three missed heartbeats.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(180);

/// `GET /organizations/{organization}/provisionerkeys/daemons`: reserved keys included, which belong to the default
/// organization; elsewhere only `user-auth` is shown (http-api 5.1).
pub async fn daemons(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<Vec<ProvisionerKeyDaemons>>> {
    let [organization] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    caller.require_visible(Action::Read, object(organization.id))?;
    let mut keys = keys::list(&mut tx, organization.id).await?;
    if !keys.iter().any(|key| has_reserved_id(key.id)) {
        keys.extend(keys::find(&mut tx, KeyId::USER_AUTH).await?);
    }
    let filter = DaemonFilter {
        organization_id: Some(organization.id),
        seen: Some(seen_within(&app, SEEN_WITHIN)),
        ..DaemonFilter::default()
    };
    let mut by_key: HashMap<KeyId, Vec<_>> = HashMap::new();
    for daemon in daemons::list(&mut tx, &filter).await? {
        by_key.entry(daemon.key_id).or_default().push(daemon);
    }
    let with_daemons = |key: keys::Key| {
        let mut daemons = by_key.remove(&key.id).unwrap_or_default();
        daemons.sort_by(|a, b| a.name.cmp(&b.name));
        ProvisionerKeyDaemons {
            key: view(key),
            daemons: daemons.into_iter().map(provisioner_daemons::view::view).collect(),
        }
    };
    Ok(Json(keys.into_iter().map(with_daemons).collect()))
}
