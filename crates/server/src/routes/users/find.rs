//! Finding the user a path names: an id, a name, or `me` (http-api 1.2).

use coder_api::paths::ME;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, users};

use crate::http::{Caller, Error, Result};

/// What protects an account.
pub fn object(user: &users::User) -> Object {
    Object::site(Resource::User).owned_by(user.id)
}

/// The user a path names, if the caller may see it; 400 otherwise, as the official server answers.
pub async fn visible(tx: &mut Tx, caller: &Caller, name: &str) -> Result<users::User> {
    if name == ME {
        return Ok((*caller.user).clone());
    }
    let found = match name.parse() {
        Ok(id) => users::find(tx, id).await?,
        Err(_) => users::find_by_username(tx, name).await?,
    };
    found.filter(|user| caller.may(Action::Read, object(user))).ok_or_else(unknown)
}

/// 400 for a user that does not exist or may not be seen.
pub fn unknown() -> Error {
    Error::bad_request("Username or ID not found or you do not have access to this user.")
        .field("user", "The user does not exist or you may not see it.")
}
