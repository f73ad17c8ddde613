//! What the endpoints of provisioner keys share.

use coder_api::keys::ProvisionerKey;
use coder_domain::ids::{KeyId, OrganizationId};
use coder_domain::rbac::{Object, Resource};
use coder_store::keys::Key;
use jiff::SignedDuration;

use crate::audit::{Event, Kind, Verb};
use crate::http::{Error, Result};

/// Names of the rows that stand for other credentials (scheduling-and-auth KEY-3).
const RESERVED: [&str; 3] = ["built-in", "user-auth", "psk"];

/// The RBAC object of keys: that of the daemons that they admit.
pub(super) const fn object(organization: OrganizationId) -> Object {
    Object::in_organization(Resource::ProvisionerDaemon, organization)
}

pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Whether a key stands for another credential.
#[must_use]
pub fn has_reserved_id(id: KeyId) -> bool {
    [KeyId::BUILT_IN, KeyId::USER_AUTH, KeyId::PSK].contains(&id)
}

/// An audit entry about a key.
pub(super) fn event(verb: Verb, key: &Key) -> Event {
    Event::new(verb, Kind::ProvisionerKey, key.id.0, &key.name).in_organization(key.organization_id)
}

/// A number of seconds in a request, bounded so that nothing overflows.
pub(super) fn seconds(field: &str, seconds: i64) -> Result<SignedDuration> {
    /// A hundred years.
    const MAX_LIFETIME_SECONDS: i64 = 100 * 366 * 24 * 3600;
    if (-MAX_LIFETIME_SECONDS..=MAX_LIFETIME_SECONDS).contains(&seconds) {
        return Ok(SignedDuration::from_secs(seconds));
    }
    Err(Error::invalid(field, format!("At most {MAX_LIFETIME_SECONDS} seconds are possible.")))
}

/// The API type of a key: the official fields, and ours.
pub(super) fn view(key: Key) -> ProvisionerKey {
    ProvisionerKey {
        id: key.id,
        created_at: key.created_at,
        organization: key.organization_id,
        name: key.name,
        tags: key.tags,
        expires_at: key.expires_at,
        previous_valid_until: key.previous_until,
        allow_addresses: key.networks.networks().iter().map(ToString::to_string).collect(),
        last_used_at: key.last_used_at,
        last_used_address: key.last_used_address,
    }
}
