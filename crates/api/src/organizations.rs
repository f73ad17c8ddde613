//! Organizations and who belongs to them.

use coder_domain::Timestamp;
use coder_domain::ids::{OrganizationId, UserId};
use serde::{Deserialize, Serialize};

use crate::json::nullable;
use crate::users::SlimRole;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organization {
    pub id: OrganizationId,
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub icon: String,
    #[serde(default)]
    pub description: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default)]
    pub is_default: bool,
}

/// An organization as shown next to something in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinimalOrganization {
    pub id: OrganizationId,
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub icon: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateOrganizationRequest {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub icon: String,
}

/// Changes an organization. An absent field is not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateOrganizationRequest {
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrganizationMember {
    pub user_id: UserId,
    pub organization_id: OrganizationId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default, deserialize_with = "nullable")]
    pub roles: Vec<SlimRole>,
}

/// A membership with what lists show of the person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberWithUserData {
    pub username: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub avatar_url: String,
    #[serde(default)]
    pub email: String,
    #[serde(default, deserialize_with = "nullable")]
    pub global_roles: Vec<SlimRole>,
    #[serde(flatten)]
    pub member: OrganizationMember,
}

/// A page of members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PaginatedMembers {
    #[serde(deserialize_with = "nullable")]
    pub members: Vec<MemberWithUserData>,
    /// All members, not only this page's.
    pub count: i64,
}
