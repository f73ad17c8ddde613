//! Sessions and API tokens.

pub mod create;
pub mod delete;
pub mod get;
pub mod list;

use coder_api::json::ZERO_TIME;
use coder_api::tokens::ApiKey;
use coder_domain::ids::UserId;
use coder_domain::rbac::{Object, Resource};
use coder_store::tokens;

/// The RBAC object of a user's keys.
pub fn object(user: UserId) -> Object {
    Object::site(Resource::ApiKey).owned_by(user)
}

/// The API type of a key.
pub fn view(row: tokens::ApiKey) -> ApiKey {
    let legacy = match row.scopes.as_slice() {
        [one] if one == "coder:all" => "all",
        [one] if one == "coder:application_connect" => "application_connect",
        _ => "",
    };
    ApiKey {
        id: row.id,
        user_id: row.user_id,
        last_used: Some(row.last_used_at).filter(|at| *at != ZERO_TIME),
        expires_at: row.expires_at,
        created_at: row.created_at,
        updated_at: row.updated_at,
        login_type: row.login_type.as_str().into(),
        scope: legacy.to_owned(),
        scopes: row.scopes,
        token_name: row.token_name,
        lifetime_seconds: row.lifetime_seconds,
        allow_list: row.allow_list,
    }
}
