//! The initial rows of a new database: the default organization, the reserved provisioner keys, the prebuilds user and
//! the deployment's id.

use std::collections::BTreeMap;

use coder_domain::ids::{KeyId, OrganizationId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::engine::{Tx, sql, statements, values};
use crate::organizations::Organization;
use crate::users::User;
use crate::{Result, organizations, settings, users};

statements! { "provisioner_keys";
    /// Reserved keys have no secret, so no daemon can join with them directly (scheduling-and-auth KEY-3).
    INSERT_RESERVED_KEY = sql("insert into provisioner_keys
        (id, organization_id, name, name_lower, hashed_secret, tags, created_us)
        values ($1, $2, $3, $3, $4, $5, $6)");
}

pub(crate) async fn fill(tx: &mut Tx, now: Timestamp) -> Result<()> {
    settings::find_or_insert(tx, settings::DEPLOYMENT_ID, &Uuid::new_v4().to_string()).await?;
    let organization = Organization {
        id: OrganizationId::random(),
        name: "coder".to_owned(),
        display_name: "Coder".to_owned(),
        description: String::new(),
        icon: String::new(),
        is_default: true,
        created_at: now,
        updated_at: now,
    };
    organizations::insert(tx, &organization).await?;
    for (id, name) in [(KeyId::BUILT_IN, "built-in"), (KeyId::USER_AUTH, "user-auth"), (KeyId::PSK, "psk")] {
        let tags = BTreeMap::<String, String>::new();
        let row = values![id, organization.id, name.to_owned(), Vec::<u8>::new(), tags, now];
        tx.execute(&INSERT_RESERVED_KEY, row).await?;
    }
    let prebuilds = User {
        id: UserId::PREBUILDS,
        username: "prebuilds".to_owned(),
        email: "prebuilds@system".to_owned(),
        name: "Prebuilds Owner".to_owned(),
        avatar_url: String::new(),
        theme_preference: String::new(),
        status: users::UserStatus::Active,
        login_type: users::LoginType::None,
        password_hash: None,
        site_roles: Vec::new(),
        is_system: true,
        created_at: now,
        updated_at: now,
        last_seen_at: None,
    };
    users::insert(tx, &prebuilds).await
}
