//! Provisioner keys: the scoped credentials of external daemons.

mod create;
mod daemons;
mod delete;
mod get;
mod list;

use coder_api::keys::ProvisionerKey;
use coder_domain::ids::{KeyId, OrganizationId};
use coder_domain::rbac::{Object, Resource};
use coder_store::keys::Key;

pub use create::create;
pub use daemons::daemons;
pub use delete::delete;
pub use get::get;
pub use list::list;

/// Names of the rows that stand for other ways to join (scheduling-and-auth KEY-3).
const RESERVED: [&str; 3] = ["built-in", "user-auth", "psk"];

/// Keys are protected as the daemons are that they admit.
const fn object(organization: OrganizationId) -> Object {
    Object::in_organization(Resource::ProvisionerDaemon, organization)
}

fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

fn has_reserved_id(id: KeyId) -> bool {
    [KeyId::BUILT_IN, KeyId::USER_AUTH, KeyId::PSK].contains(&id)
}

/// How a key looks on the wire.
fn view(key: Key) -> ProvisionerKey {
    ProvisionerKey {
        id: key.id,
        created_at: key.created_at,
        organization: key.organization_id,
        name: key.name,
        tags: key.tags,
    }
}
