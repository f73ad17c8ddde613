//! Organizations and their members.

use coder_domain::ids::{OrganizationId, UserId};
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, forks, list as list_value, record, sql, statements, values};

record! {
    pub struct Organization {
        pub id: OrganizationId,
        /// Unique regardless of case.
        pub name: String,
        pub display_name: String,
        pub description: String,
        /// URL or emoji path.
        pub icon: String,
        /// Whether `default` names this organization.
        pub is_default: bool,
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
    }
}

record! {
    /// A user's membership in an organization.
    pub struct Member {
        pub organization_id: OrganizationId,
        pub user_id: UserId,
        /// Names of organization roles, without the implied `organization-member`.
        pub roles: Vec<String>,
        /// Since when.
        pub created_at: Timestamp = "created_us",
        /// When the roles were last changed.
        pub updated_at: Timestamp = "updated_us",
    }
}

macro_rules! columns {
    () => {
        "id, name, display_name, description, icon, is_default, created_us, updated_us"
    };
}

statements! { "organizations";
    INSERT = sql("insert into organizations
        (id, name, display_name, description, icon, is_default, created_us, updated_us, name_lower, deleted)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, false)");
    FIND = sql(concat!("select ", columns!(), " from organizations where id = $1 and not deleted"));
    FIND_BY_NAME = sql(concat!("select ", columns!(), " from organizations where name_lower = $1 and not deleted"));
    DEFAULT = sql(concat!("select ", columns!(), " from organizations where is_default"));
    LIST = sql(concat!("select ", columns!(), " from organizations where not deleted order by name_lower"));
    LIST_OF_USER = sql(concat!("select ", columns!(), " from organizations where not deleted and id in
        (select organization_id from organization_members where user_id = $1) order by name_lower"));
    UPDATE = sql("update organizations set name = $2, name_lower = $3, display_name = $4, description = $5, icon = $6,
        updated_us = $7 where id = $1 and not deleted");
    LOCK = sql("update organizations set updated_us = updated_us where id = $1");
    DELETE = sql("update organizations set deleted = true, updated_us = $2
        where id = $1 and not deleted and not is_default");
    INSERT_MEMBER = sql("insert into organization_members (organization_id, user_id, roles, created_us, updated_us)
        values ($1, $2, $3, $4, $5)");
    FIND_MEMBER = sql("select organization_id, user_id, roles, created_us, updated_us from organization_members
        where organization_id = $1 and user_id = $2");
    LIST_MEMBERS = sql("select member.organization_id, member.user_id, member.roles, member.created_us, member.updated_us
        from organization_members as member join users as person on person.id = member.user_id
        where member.organization_id = $1 and not person.deleted and not person.is_system
        order by person.username_lower limit $2 offset $3");
    LIST_MEMBERSHIPS = sql("select organization_id, user_id, roles, created_us, updated_us from organization_members
        where user_id in (select value from json_each($1)) order by user_id, created_us, organization_id");
    UPDATE_MEMBER_ROLES = sql("update organization_members set roles = $3, updated_us = $4
        where organization_id = $1 and user_id = $2");
    DELETE_MEMBER = sql("delete from organization_members where organization_id = $1 and user_id = $2");
}

/// Adds an organization.
///
/// # Errors
/// A conflict on `name_lower` when the name is taken.
pub async fn insert(tx: &mut Tx, organization: &Organization) -> Result<()> {
    let mut row = organization.values();
    row.extend(values![organization.name.to_lowercase()]);
    tx.execute(&INSERT, row).await.map(|_| ())
}

pub async fn find(tx: &mut Tx, id: OrganizationId) -> Result<Option<Organization>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Organization::from_row).transpose()
}

/// Finds one by name, regardless of case.
pub async fn find_by_name(tx: &mut Tx, name: &str) -> Result<Option<Organization>> {
    let row = tx.fetch_opt(&FIND_BY_NAME, values![name.to_lowercase()]).await?;
    row.as_ref().map(Organization::from_row).transpose()
}

/// The default organization, which always exists.
pub async fn get_default(tx: &mut Tx) -> Result<Organization> {
    Organization::from_row(&tx.fetch_one(&DEFAULT, vec![]).await?)
}

/// All organizations, by name.
pub async fn list(tx: &mut Tx) -> Result<Vec<Organization>> {
    tx.fetch(&LIST, vec![]).await?.iter().map(Organization::from_row).collect()
}

/// The organizations of a user, by name.
pub async fn list_of_user(tx: &mut Tx, user: UserId) -> Result<Vec<Organization>> {
    tx.fetch(&LIST_OF_USER, values![user]).await?.iter().map(Organization::from_row).collect()
}

/// Changes name, display name, description and icon.
///
/// # Errors
/// A conflict on `name_lower`; [`crate::Error::Stale`] when it does not exist any more.
pub async fn update(tx: &mut Tx, changed: &Organization) -> Result<()> {
    let row = values![
        changed.id,
        changed.name,
        changed.name.to_lowercase(),
        changed.display_name,
        changed.description,
        changed.icon,
        changed.updated_at,
    ];
    tx.change_one(&UPDATE, row).await
}

/// Whether the organization exists. If so, it is not deleted before this transaction ends: call it before adding what belongs to
/// it.
pub async fn keep(tx: &mut Tx, id: OrganizationId) -> Result<bool> {
    tx.fetch_one(&forks::KEEP_ORGANIZATION, values![id]).await?.get("found")
}

/// Locks an organization until the end of the transaction: transactions that keep or change it wait, and what is read from here
/// on is what earlier ones committed.
pub async fn lock(tx: &mut Tx, id: OrganizationId) -> Result<()> {
    tx.execute(&LOCK, values![id]).await.map(|_| ())
}

/// Marks an organization as deleted. [`lock`] it before looking whether something belongs to it.
///
/// # Errors
/// [`crate::Error::Stale`] when it is deleted already or is the default organization.
pub async fn delete(tx: &mut Tx, id: OrganizationId, now: Timestamp) -> Result<()> {
    tx.change_one(&DELETE, values![id, now]).await
}

/// Adds a member.
///
/// # Errors
/// A conflict when the user is a member already.
pub async fn insert_member(tx: &mut Tx, member: &Member) -> Result<()> {
    tx.execute(&INSERT_MEMBER, member.values()).await.map(|_| ())
}

pub async fn find_member(tx: &mut Tx, organization: OrganizationId, user: UserId) -> Result<Option<Member>> {
    let row = tx.fetch_opt(&FIND_MEMBER, values![organization, user]).await?;
    row.as_ref().map(Member::from_row).transpose()
}

/// The members of an organization by username.
pub async fn list_members(
    tx: &mut Tx,
    organization: OrganizationId,
    limit: i64,
    offset: i64,
) -> Result<Vec<Member>> {
    let rows = tx.fetch(&LIST_MEMBERS, values![organization, limit, offset]).await?;
    rows.iter().map(Member::from_row).collect()
}

/// All memberships of these users, oldest first for each user.
pub async fn list_memberships(tx: &mut Tx, users: &[UserId]) -> Result<Vec<Member>> {
    let rows = tx.fetch(&LIST_MEMBERSHIPS, vec![list_value(users.iter().copied())]).await?;
    rows.iter().map(Member::from_row).collect()
}

/// Replaces a member's roles.
///
/// # Errors
/// [`crate::Error::Stale`] when the user is not a member.
pub async fn update_member_roles(
    tx: &mut Tx,
    organization: OrganizationId,
    user: UserId,
    roles: &[String],
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&UPDATE_MEMBER_ROLES, values![organization, user, roles.to_vec(), now]).await
}

/// Removes a member.
///
/// # Errors
/// [`crate::Error::Stale`] when the user is not a member.
pub async fn delete_member(tx: &mut Tx, organization: OrganizationId, user: UserId) -> Result<()> {
    tx.change_one(&DELETE_MEMBER, values![organization, user]).await
}
