//! Who may change the credentials of an account. Setting a password, creating a token, and deleting and restoring an account
//! give the roles of that account, so they need the right to assign each of them.

use coder_domain::ids::UserId;
use coder_domain::rbac::may_take_over;
use coder_store::{Tx, organizations, users};

use crate::authn::session::held_roles;
use crate::http::{Caller, Error, Result};

/// 403 unless the account is the caller's own, or the caller may assign every role that it has, in every organization.
/// The account's roles are read in this transaction. Each handler also checks the right that its action needs.
pub async fn require(tx: &mut Tx, caller: &Caller, user: &users::User) -> Result<()> {
    if user.id != caller.user.id {
        require_unlimited(caller)?;
    }
    if is_allowed(tx, caller, user).await? {
        return Ok(());
    }
    Err(Error::forbidden().detail(format!(
        "{} has roles that you may not assign, so you may not change the account; ask an owner.",
        user.username
    )))
}

/// 409 when the caller has lost roles since the request was authenticated. Call it before an account loses rights or ends: two
/// callers could take the rights of each other at the same time, and nobody would be left who has them. Both rows stay
/// locked, so the second caller waits for the first and is refused.
pub async fn require_still(tx: &mut Tx, caller: &Caller, user: UserId) -> Result<()> {
    users::lock(tx, &[caller.user.id, user]).await?;
    let now = users::find(tx, caller.user.id).await?;
    let is_same = now.is_some_and(|now| {
        now.site_roles == caller.user.site_roles && now.status != users::UserStatus::Suspended
    });
    let members = organizations::list_memberships(tx, &[caller.user.id]).await?;
    let held = held_roles(members.iter().map(|member| (member.organization_id, member.roles.as_slice())));
    let mut relied_on = caller.subject.organizations.iter();
    if is_same && relied_on.all(|(organization, roles)| held.get(organization) == Some(roles)) {
        return Ok(());
    }
    Err(Error::conflict("Your roles have changed meanwhile. Nothing was done; try again."))
}

/// Whether the caller may act as this user: see [`require`].
pub async fn is_allowed(tx: &mut Tx, caller: &Caller, user: &users::User) -> Result<bool> {
    if user.id == caller.user.id {
        return Ok(true);
    }
    if !caller.subject.scopes.is_all() {
        return Ok(false);
    }
    let memberships = organizations::list_memberships(tx, &[user.id]).await?;
    let site = user.site_roles.iter().map(String::as_str);
    let local = memberships
        .iter()
        .flat_map(|member| member.roles.iter().map(|role| (member.organization_id, role.as_str())));
    Ok(may_take_over(&caller.subject, site, local))
}

/// 403 for a token with scopes or an allow list. Accounts, passwords and roles have no such limits, so the token would gain
/// rights.
pub fn require_unlimited(caller: &Caller) -> Result<()> {
    if caller.subject.scopes.is_all() {
        return Ok(());
    }
    Err(Error::forbidden().detail(
        "The token you present has scopes or an allow list; accounts and roles of other people need one without.",
    ))
}
