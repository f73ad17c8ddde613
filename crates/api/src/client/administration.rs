//! Calls that manage people, organizations, memberships and roles.

use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::secret::Secret;
use http::Method;

use super::{Client, Error};
use crate::organizations::{
    CreateOrganizationRequest, MemberWithUserData, Organization, OrganizationMember,
    UpdateOrganizationRequest,
};
use crate::paths;
use crate::tokens::{CreateKeyResponse, CreateTokenRequest};
use crate::users::{
    AssignableRole, CreateUserRequest, UpdatePasswordRequest, UpdateRolesRequest, User, UserRoles,
    UsersResponse,
};

/// Every method fails with what [`Error`] describes.
#[expect(clippy::missing_errors_doc, reason = "documented once for the block")]
impl Client {
    /// The accounts that match a search string, by name.
    pub async fn users(&self, search: &str) -> Result<Vec<User>, Error> {
        let page: UsersResponse = self.get(paths::USERS, &[("q", search)]).await?;
        Ok(page.users)
    }

    /// Creates an account.
    pub async fn create_user(&self, request: &CreateUserRequest) -> Result<User, Error> {
        self.send(Method::POST, paths::USERS, request).await
    }

    /// Deletes an account that owns no workspaces.
    pub async fn delete_user(&self, user: UserId) -> Result<(), Error> {
        self.command(Method::DELETE, &paths::user(user)).await
    }

    /// Locks an account.
    pub async fn suspend_user(&self, user: UserId) -> Result<User, Error> {
        self.send_empty(Method::PUT, &paths::user_suspend(user), &[]).await
    }

    /// Unlocks an account.
    pub async fn activate_user(&self, user: UserId) -> Result<User, Error> {
        self.send_empty(Method::PUT, &paths::user_activate(user), &[]).await
    }

    /// An account's roles on the site and in organizations.
    pub async fn user_roles(&self, user: &str) -> Result<UserRoles, Error> {
        self.get(&paths::user_roles(user), &[]).await
    }

    /// All site roles, and whether the caller may assign them.
    pub async fn site_roles(&self) -> Result<Vec<AssignableRole>, Error> {
        self.list(paths::SITE_ROLES, &[]).await
    }

    /// Replaces an account's site roles.
    pub async fn update_user_roles(&self, user: &str, roles: Vec<String>) -> Result<User, Error> {
        self.send(Method::PUT, &paths::user_roles(user), &UpdateRolesRequest { roles }).await
    }

    /// Changes a password; users need their old one.
    pub async fn update_password(&self, user: &str, request: &UpdatePasswordRequest) -> Result<(), Error> {
        self.send_without_answer(Method::PUT, &paths::user_password(user), request).await
    }

    /// Creates a token for a user; the secret is sent only this once.
    pub async fn create_token_for(&self, user: &str, request: &CreateTokenRequest) -> Result<Secret, Error> {
        let key: CreateKeyResponse = self.send(Method::POST, &paths::user_tokens(user), request).await?;
        Ok(key.key)
    }

    /// All organizations that the caller may see, by name.
    pub async fn organizations(&self) -> Result<Vec<Organization>, Error> {
        self.list(paths::ORGANIZATIONS, &[]).await
    }

    /// Creates an organization, to which the caller then belongs.
    pub async fn create_organization(
        &self,
        request: &CreateOrganizationRequest,
    ) -> Result<Organization, Error> {
        self.send(Method::POST, paths::ORGANIZATIONS, request).await
    }

    /// Changes the name, description and icon of an organization.
    pub async fn update_organization(
        &self,
        organization: OrganizationId,
        request: &UpdateOrganizationRequest,
    ) -> Result<Organization, Error> {
        self.send(Method::PATCH, &paths::organization(organization), request).await
    }

    /// Deletes an empty organization.
    pub async fn delete_organization(&self, organization: OrganizationId) -> Result<(), Error> {
        self.command(Method::DELETE, &paths::organization(organization)).await
    }

    /// The members of an organization, by name.
    pub async fn members(&self, organization: OrganizationId) -> Result<Vec<MemberWithUserData>, Error> {
        self.list(&paths::members(organization), &[]).await
    }

    /// Adds a member.
    pub async fn add_member(
        &self,
        organization: OrganizationId,
        user: &str,
    ) -> Result<OrganizationMember, Error> {
        self.send_empty(Method::POST, &paths::member(organization, user), &[]).await
    }

    pub async fn remove_member(&self, organization: OrganizationId, user: &str) -> Result<(), Error> {
        self.command(Method::DELETE, &paths::member(organization, user)).await
    }

    /// All roles of an organization, and whether the caller may assign them.
    pub async fn organization_roles(
        &self,
        organization: OrganizationId,
    ) -> Result<Vec<AssignableRole>, Error> {
        self.list(&paths::organization_roles(organization), &[]).await
    }

    /// Replaces a member's roles.
    pub async fn update_member_roles(
        &self,
        organization: OrganizationId,
        user: &str,
        roles: Vec<String>,
    ) -> Result<OrganizationMember, Error> {
        let request = UpdateRolesRequest { roles };
        self.send(Method::PUT, &paths::member_roles(organization, user), &request).await
    }
}
