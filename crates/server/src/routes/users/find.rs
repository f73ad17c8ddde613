//! Finding the user a path names: an id, a name, or `me` (http-api 1.2).

use coder_api::paths::ME;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, organizations, users};

use crate::http::{Caller, Error, Result};

/// The RBAC object of an account.
pub fn object(user: &users::User) -> Object {
    Object::site(Resource::User).owned_by(user.id).with_id(user.id.0)
}

/// Whether the caller's roles and token allow reading the account. A token for the caller's own personal data does, too.
pub fn may_read(caller: &Caller, user: &users::User) -> bool {
    caller.may(Action::Read, object(user)) || caller.may(Action::ReadPersonal, object(user))
}

/// The user a path names, if the caller may see them; 400 otherwise, as the official server answers. Who manages the members
/// of an organization may see these (http-api 3.1). Callers always see themselves, whatever the scope of the token: each
/// handler checks the right that it needs.
pub async fn visible(tx: &mut Tx, caller: &Caller, name: &str) -> Result<users::User> {
    if name == ME {
        return Ok((*caller.user).clone());
    }
    let found = by_name(tx, name).await?.ok_or_else(unknown)?;
    if found.id == caller.user.id || may_read(caller, &found) {
        return Ok(found);
    }
    let memberships = organizations::list_memberships(tx, &[found.id]).await?;
    let manages = |member: &organizations::Member| {
        caller.may(
            Action::Update,
            Object::in_organization(Resource::OrganizationMember, member.organization_id),
        )
    };
    if memberships.iter().any(manages) { Ok(found) } else { Err(unknown()) }
}

/// As [`visible`], and 403 for a token whose scope excludes its owner's data.
pub async fn readable(tx: &mut Tx, caller: &Caller, name: &str) -> Result<users::User> {
    let found = visible(tx, caller, name).await?;
    let hidden = found.id == caller.user.id && !may_read(caller, &found);
    if hidden { Err(Error::forbidden()) } else { Ok(found) }
}

/// The user a path names, without a check. For callers who may add members by name.
pub async fn by_name(tx: &mut Tx, name: &str) -> Result<Option<users::User>> {
    Ok(match name.parse() {
        Ok(id) => users::find(tx, id).await?,
        Err(_) => users::find_by_username(tx, name).await?,
    })
}

/// 400 for a user that does not exist or may not be seen.
pub fn unknown() -> Error {
    Error::bad_request("Username or ID not found or you do not have access to this user.")
        .field("user", "The user does not exist or you may not see it.")
}
