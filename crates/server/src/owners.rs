//! Workspace owners as `data.coder_workspace_owner` shows them before Terraform runs.

use coder_domain::ids::{OrganizationId, UserId};
use coder_source::Owner;
use coder_store::users::User;
use coder_store::{Tx, organizations, users};

use crate::http::{Caller, Error, Result};

/// The group that all members of an organization are in.
pub const EVERYONE: &str = "Everyone";

/// The user who pushes a template stands for the owner of future workspaces.
pub fn caller(caller: &Caller, organization: OrganizationId) -> Owner {
    let roles = caller.subject.organizations.get(&organization);
    let roles = roles.map(|roles| roles.iter().map(|role| role.as_str().to_owned()).collect());
    owner(&caller.user, organization, roles)
}

/// The owner of a workspace.
pub async fn find(tx: &mut Tx, user: UserId, organization: OrganizationId) -> Result<Owner> {
    let member = organizations::find_member(tx, organization, user).await?;
    let user = users::find(tx, user).await?.ok_or_else(Error::not_found)?;
    Ok(owner(&user, organization, member.map(|member| member.roles)))
}

/// The owner in the plan of an import (terraform 1.1).
pub fn of_import() -> Owner {
    Owner::for_import(vec![EVERYONE.to_owned()])
}

fn owner(user: &User, organization: OrganizationId, local: Option<Vec<String>>) -> Owner {
    let site = user.site_roles.iter().cloned().chain(["member".to_owned()]);
    let implied = local.is_some().then(|| "organization-member".to_owned());
    let local = local.into_iter().flatten().chain(implied);
    let site = site.map(|name| (name, String::new()));
    Owner {
        id: user.id.to_string(),
        name: user.username.clone(),
        full_name: user.name.clone(),
        email: user.email.clone(),
        login_type: user.login_type.as_str().to_owned(),
        groups: vec![EVERYONE.to_owned()],
        rbac_roles: site.chain(local.map(|name| (name, organization.to_string()))).collect(),
    }
}
