//! Who presents a token: the key, its user and the user's memberships, in one indexed read.

use coder_domain::ids::{OrganizationId, UserId};

use crate::Result;
use crate::engine::{Tx, sql, statements, values};
use crate::tokens::ApiKey;
use crate::users::User;

/// A key with everything that decides what its holder may do.
#[derive(Clone, Debug)]
pub struct Session {
    /// The key.
    pub key: ApiKey,
    /// Whose it is.
    pub user: User,
    /// Organizations of the user, each with the names of the roles held there.
    pub memberships: Vec<(OrganizationId, Vec<String>)>,
}

statements! { "api_keys";
    FIND_SESSION = sql("select token.id, token.hashed_secret, token.login_type, token.token_name, token.scopes,
        token.allow_list, token.lifetime_seconds, token.ip_address, token.created_us, token.updated_us,
        token.last_used_us, token.expires_us,
        person.id as person_id, person.username, person.email, person.name, person.avatar_url,
        person.theme_preference, person.status, person.login_type as person_login_type, person.password_hash,
        person.site_roles, person.is_system, person.created_us as person_created_us,
        person.updated_us as person_updated_us, person.last_seen_us,
        member.organization_id, member.roles
        from api_keys as token join users as person on person.id = token.user_id
        left join organization_members as member on member.user_id = person.id
        where token.id = $1 and not person.deleted");
    DELETE_OTHERS = sql("delete from api_keys where user_id = $1 and id <> $2 and login_type <> 'token'");
}

/// By the public half of the token.
///
/// # Errors
/// Only when the database fails.
pub async fn find(tx: &mut Tx, id: &str) -> Result<Option<Session>> {
    let rows = tx.fetch(&FIND_SESSION, values![id.to_owned()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let user = User {
        id: row.get("person_id")?,
        username: row.get("username")?,
        email: row.get("email")?,
        name: row.get("name")?,
        avatar_url: row.get("avatar_url")?,
        theme_preference: row.get("theme_preference")?,
        status: row.get("status")?,
        login_type: row.get("person_login_type")?,
        password_hash: row.get("password_hash")?,
        site_roles: row.get("site_roles")?,
        is_system: row.get("is_system")?,
        created_at: row.get("person_created_us")?,
        updated_at: row.get("person_updated_us")?,
        last_seen_at: row.get("last_seen_us")?,
    };
    let key = ApiKey {
        id: row.get("id")?,
        user_id: user.id,
        hashed_secret: row.get("hashed_secret")?,
        login_type: row.get("login_type")?,
        token_name: row.get("token_name")?,
        scopes: row.get("scopes")?,
        allow_list: row.get("allow_list")?,
        lifetime_seconds: row.get("lifetime_seconds")?,
        ip_address: row.get("ip_address")?,
        created_at: row.get("created_us")?,
        updated_at: row.get("updated_us")?,
        last_used_at: row.get("last_used_us")?,
        expires_at: row.get("expires_us")?,
    };
    let mut memberships = Vec::with_capacity(rows.len());
    for row in &rows {
        if let Some(organization) = row.get::<Option<OrganizationId>>("organization_id")? {
            memberships.push((organization, row.get("roles")?));
        }
    }
    Ok(Some(Session { key, user, memberships }))
}

/// Ends all sessions of a user but one; API tokens stay.
///
/// # Errors
/// Only when the database fails.
pub async fn delete_others(tx: &mut Tx, user: UserId, kept: &str) -> Result<u64> {
    tx.execute(&DELETE_OTHERS, values![user, kept.to_owned()]).await
}
