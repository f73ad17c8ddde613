//! People: the first user, log-in, accounts and their roles.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::json::{self, nullable};

string_enums! {
    /// Whether an account may be used.
    pub enum UserStatus {
        Active = "active",
        Dormant = "dormant",
        Suspended = "suspended",
    }

    /// How an account, or a key, proves who it is.
    pub enum LoginType {
        Unset = "",
        Password = "password",
        Github = "github",
        Oidc = "oidc",
        Token = "token",
        None = "none",
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: UserId,
    pub username: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub avatar_url: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default)]
    pub email: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// None when the account was never used.
    #[serde(default, with = "json::zero_time")]
    pub last_seen_at: Option<Timestamp>,
    #[serde(default)]
    pub status: UserStatus,
    #[serde(default)]
    pub login_type: LoginType,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub theme_preference: String,
    #[serde(default, deserialize_with = "nullable")]
    pub organization_ids: Vec<OrganizationId>,
    /// Site roles without the implied `member`.
    #[serde(default, deserialize_with = "nullable")]
    pub roles: Vec<SlimRole>,
}

/// A user as shown next to something they made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinimalUser {
    pub id: UserId,
    pub username: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub avatar_url: String,
}

/// A role without its permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlimRole {
    pub name: String,
    pub display_name: String,
    /// Set for roles inside an organization.
    #[serde(deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<OrganizationId>,
}

/// One thing a role may (or, negated, may not) do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Permission {
    pub negate: bool,
    pub resource_type: String,
    pub action: String,
}

/// A role, and whether the caller may assign it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AssignableRole {
    pub name: String,
    #[serde(deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<OrganizationId>,
    pub display_name: String,
    #[serde(deserialize_with = "nullable")]
    pub site_permissions: Vec<Permission>,
    #[serde(deserialize_with = "nullable")]
    pub user_permissions: Vec<Permission>,
    #[serde(deserialize_with = "nullable")]
    pub organization_permissions: Vec<Permission>,
    #[serde(deserialize_with = "nullable")]
    pub organization_member_permissions: Vec<Permission>,
    pub assignable: bool,
    pub built_in: bool,
}

/// A page of accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsersResponse {
    #[serde(deserialize_with = "nullable")]
    pub users: Vec<User>,
    /// All matches, not only this page's.
    pub count: i64,
}

/// A user's roles on the site and in organizations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserRoles {
    #[serde(deserialize_with = "nullable")]
    pub roles: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub organization_roles: BTreeMap<OrganizationId, Vec<String>>,
}

/// The complete new set of roles of a user or member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateRolesRequest {
    #[serde(deserialize_with = "nullable")]
    pub roles: Vec<String>,
}

/// Creates the first user, who owns the deployment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CreateFirstUserRequest {
    #[serde(default, deserialize_with = "nullable")]
    pub email: String,
    #[serde(default, deserialize_with = "nullable")]
    pub username: String,
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    #[serde(default = "json::no_secret", with = "json::secret")]
    pub password: Secret,
    /// Requests a trial license. There is none here, so the field is ignored.
    #[serde(default, deserialize_with = "nullable")]
    pub trial: bool,
}

/// The first user and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateFirstUserResponse {
    pub user_id: UserId,
    pub organization_id: OrganizationId,
}

/// Logs in with a password.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LoginRequest {
    #[serde(default, deserialize_with = "nullable")]
    pub email: String,
    #[serde(default = "json::no_secret", with = "json::secret")]
    pub password: Secret,
}

/// A new session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LoginResponse {
    #[serde(with = "json::secret")]
    pub session_token: Secret,
}

/// Creates an account.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CreateUserRequest {
    #[serde(default, deserialize_with = "nullable")]
    pub email: String,
    #[serde(default, deserialize_with = "nullable")]
    pub username: String,
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    #[serde(default = "json::no_secret", with = "json::secret")]
    pub password: Secret,
    /// Unset means a password.
    #[serde(default, deserialize_with = "nullable")]
    pub login_type: LoginType,
    /// None leaves the account dormant until its first use.
    #[serde(default, deserialize_with = "json::optional_enum")]
    pub user_status: Option<UserStatus>,
    /// A zero id is the default organization.
    #[serde(default, deserialize_with = "nullable")]
    pub organization_ids: Vec<OrganizationId>,
    /// The older way to name one organization.
    #[serde(default, deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<OrganizationId>,
    /// The older way to say login type `none`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub disable_login: bool,
}

/// Changes what an account shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct UpdateProfileRequest {
    #[serde(deserialize_with = "nullable")]
    pub username: String,
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// Changes a password.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct UpdatePasswordRequest {
    /// Needed from the user concerned.
    #[serde(default = "json::no_secret", with = "json::secret")]
    pub old_password: Secret,
    #[serde(default = "json::no_secret", with = "json::secret")]
    pub password: Secret,
}

/// Which ways to log in there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct AuthMethods {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub terms_of_service_url: String,
    pub password: AuthMethod,
    pub github: GithubAuthMethod,
    pub oidc: OidcAuthMethod,
}

/// A way to log in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct AuthMethod {
    pub enabled: bool,
}

/// Log-in by GitHub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct GithubAuthMethod {
    pub enabled: bool,
    pub default_provider_configured: bool,
}

/// Log-in by OpenID Connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct OidcAuthMethod {
    pub enabled: bool,
    #[serde(rename = "signInText")]
    pub sign_in_text: String,
    #[serde(rename = "iconUrl")]
    pub icon_url: String,
}

/// How an account logs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct UserLoginType {
    pub login_type: LoginType,
}

/// When a user's workspaces may be stopped because their templates require it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct QuietHours {
    /// In cron syntax, `CRON_TZ=Zone m h * * *`.
    pub raw_schedule: String,
    /// Whether the user chose it; otherwise it is the deployment's.
    pub user_set: bool,
    pub user_can_set: bool,
    /// When they begin each day, `HH:MM`.
    pub time: String,
    pub timezone: String,
    /// When they begin next.
    pub next: Timestamp,
}

/// Chooses the quiet hours of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct UpdateQuietHoursRequest {
    #[serde(deserialize_with = "nullable")]
    pub schedule: String,
}
