//! Converts accounts to the API type.

use coder_api::users::{MinimalUser, SlimRole, User};
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::{OrgRole, SiteRole};
use coder_store::users;

/// A row with the organizations its user belongs to.
pub fn user(row: &users::User, organizations: Vec<OrganizationId>) -> User {
    User {
        id: row.id,
        username: row.username.clone(),
        avatar_url: row.avatar_url.clone(),
        name: row.name.clone(),
        email: row.email.clone(),
        created_at: row.created_at,
        updated_at: row.updated_at,
        last_seen_at: row.last_seen_at,
        status: row.status.as_str().into(),
        login_type: row.login_type.as_str().into(),
        theme_preference: row.theme_preference.clone(),
        organization_ids: organizations,
        roles: site_roles(&row.site_roles),
    }
}

/// The short form, for objects that the user created.
pub fn minimal(row: &users::User) -> MinimalUser {
    MinimalUser {
        id: row.id,
        username: row.username.clone(),
        name: row.name.clone(),
        avatar_url: row.avatar_url.clone(),
    }
}

/// Site roles with display names. Unknown roles keep their name.
pub fn site_roles(words: &[String]) -> Vec<SlimRole> {
    let display = |word: &String| {
        word.parse::<SiteRole>().map_or_else(|_| word.clone(), |role| role.display_name().to_owned())
    };
    words
        .iter()
        .map(|word| SlimRole { name: word.clone(), display_name: display(word), organization_id: None })
        .collect()
}

/// Organization roles with display names.
pub fn organization_roles(words: &[String], organization: OrganizationId) -> Vec<SlimRole> {
    let display = |word: &String| {
        word.parse::<OrgRole>().map_or_else(|_| word.clone(), |role| role.display_name().to_owned())
    };
    let organization_id = Some(organization);
    words
        .iter()
        .map(|word| SlimRole { name: word.clone(), display_name: display(word), organization_id })
        .collect()
}
