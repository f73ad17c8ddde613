//! A token with its user and the user's roles: the one statement that every authenticated request needs.

use coder_domain::ids::{OrganizationId, UserId};

use crate::Result;
use crate::engine::{Row, Tx, sql, statements, values};
use crate::tokens::ApiKey;
use crate::users::{self, User};

/// A token with its user and the user's roles.
#[derive(Clone, Debug, PartialEq)]
pub struct UserSession {
    /// The token.
    pub key: ApiKey,
    /// Never a deleted user.
    pub user: User,
    /// The user's organizations, with the names of the user's roles there.
    pub memberships: Vec<(OrganizationId, Vec<String>)>,
}

statements! { "api_keys";
    /// One row per membership, or one row with nulls for a user without memberships.
    FIND = sql("select person.id, person.username, person.email, person.name, person.avatar_url,
        person.theme_preference, person.status, person.login_type, person.password_hash, person.site_roles,
        person.is_system, person.created_us, person.updated_us, person.last_seen_us,
        token.id as key_id, token.hashed_secret, token.login_type as key_login_type, token.token_name, token.scopes,
        token.allow_list, token.lifetime_seconds, token.ip_address, token.created_us as key_created_us,
        token.updated_us as key_updated_us, token.last_used_us, token.expires_us, token.parent_id, token.not_after_us,
        member.organization_id, member.roles
        from api_keys as token join users as person on person.id = token.user_id and not person.deleted
        left join (select membership.user_id, membership.organization_id, membership.roles
            from organization_members as membership
            join organizations as organization on organization.id = membership.organization_id
            where not organization.deleted) as member on member.user_id = person.id
        where token.id = $1 order by member.organization_id");
    /// The parents of the kept token stay, because deleting a parent deletes its children.
    DELETE_OTHERS = sql("delete from api_keys where user_id = $1 and id not in (
        with recursive kept (id, parent_id) as (select id, parent_id from api_keys where id = $2
            union select parent.id, parent.parent_id from api_keys as parent join kept on parent.id = kept.parent_id)
        select id from kept)");
}

/// Finds a key by the public half of the token.
pub async fn find(tx: &mut Tx, id: &str) -> Result<Option<UserSession>> {
    let rows = tx.fetch(&FIND, values![id.to_owned()]).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let user = users::read(first)?;
    let key = ApiKey {
        id: first.get("key_id")?,
        user_id: user.id,
        hashed_secret: first.get("hashed_secret")?,
        login_type: first.get("key_login_type")?,
        token_name: first.get("token_name")?,
        scopes: first.get("scopes")?,
        allow_list: first.get("allow_list")?,
        lifetime_seconds: first.get("lifetime_seconds")?,
        ip_address: first.get("ip_address")?,
        created_at: first.get("key_created_us")?,
        updated_at: first.get("key_updated_us")?,
        last_used_at: first.get("last_used_us")?,
        expires_at: first.get("expires_us")?,
        parent_id: first.get("parent_id")?,
        not_after: first.get("not_after_us")?,
    };
    let membership = |row: &Row| -> Result<Option<(OrganizationId, Vec<String>)>> {
        let organization: Option<OrganizationId> = row.get("organization_id")?;
        organization.map(|organization| Ok((organization, row.get("roles")?))).transpose()
    };
    let memberships = rows.iter().filter_map(|row| membership(row).transpose()).collect::<Result<_>>()?;
    Ok(Some(UserSession { key, user, memberships }))
}

/// Deletes all sessions and tokens of a user, except one and its parents.
pub async fn delete_others(tx: &mut Tx, user: UserId, kept: &str) -> Result<u64> {
    tx.execute(&DELETE_OTHERS, values![user, kept.to_owned()]).await
}
