//! Workspaces. The latest build determines what runs in a workspace (`builds.rs`).

pub mod agent_connections;
pub mod agent_logs;
pub mod agent_reports;
pub mod agents;
pub mod build_inputs;
pub mod builds;
pub mod connection_log;
pub mod port_shares;
pub mod resources;
pub mod schedules;

use coder_domain::ids::{OrganizationId, TemplateId, UserId, WorkspaceId};
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Column, Tx, list as list_value, optional_list, record, sql, statements, values};

record! {
    pub struct Workspace {
        pub id: WorkspaceId,
        pub organization_id: OrganizationId,
        pub owner_id: UserId,
        pub template_id: TemplateId,
        /// Unique among the owner's workspaces, regardless of case.
        pub name: String,
        /// The autostart schedule in cron syntax.
        pub autostart_schedule: Option<String>,
        /// The time to live in milliseconds.
        pub ttl_ms: Option<i64>,
        /// `always` or `never`.
        pub automatic_updates: String,
        /// Whether it is a favorite of its owner.
        pub favorite: bool,
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
        pub last_used_at: Timestamp = "last_used_us",
        /// When it became dormant; none when it is not dormant.
        pub dormant_at: Option<Timestamp> = "dormant_us",
        /// When it will be deleted.
        pub deleting_at: Option<Timestamp> = "deleting_us",
        /// Why something that was due by a schedule was not done; empty when nothing was missed.
        pub schedule_note: String,
        pub deleted: bool,
    }
}

/// Selects the workspaces of a list. All conditions must hold. The caller filters by workspace status, because it has
/// the latest builds (`builds::list_latest`).
#[derive(Clone, Debug, Default)]
pub struct WorkspaceFilter {
    /// Only these.
    pub ids: Option<Vec<WorkspaceId>>,
    /// Only of this owner.
    pub owner_id: Option<UserId>,
    /// Only of the owner with this name, regardless of case.
    pub owner_name: Option<String>,
    /// Only of one of these templates.
    pub template_ids: Option<Vec<TemplateId>>,
    /// Only of templates with this name, regardless of case.
    pub template_name: Option<String>,
    /// Only of one of these organizations.
    pub organization_ids: Option<Vec<OrganizationId>>,
    /// Part of the name, without regard to case.
    pub name: Option<String>,
    pub dormant: Option<bool>,
    /// Used at or after this instant.
    pub last_used_after: Option<Timestamp>,
    /// Used at or before this instant.
    pub last_used_before: Option<Timestamp>,
}

macro_rules! workspace_columns {
    () => {
        "workspace.id, workspace.organization_id, workspace.owner_id, workspace.template_id, workspace.name, \
         workspace.autostart_schedule, workspace.ttl_ms, workspace.automatic_updates, workspace.favorite, \
         workspace.created_us, workspace.updated_us, workspace.last_used_us, workspace.dormant_us, \
         workspace.deleting_us, workspace.schedule_note, workspace.deleted"
    };
}

pub(crate) use workspace_columns;

statements! { "workspaces";
    INSERT = sql("insert into workspaces (id, organization_id, owner_id, template_id, name, autostart_schedule, ttl_ms,
        automatic_updates, favorite, created_us, updated_us, last_used_us, dormant_us, deleting_us,
        schedule_note, deleted, name_lower, schedule_due_us)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, -1)");
    FIND = sql(concat!("select ", workspace_columns!(), " from workspaces as workspace where workspace.id = $1"));
    FIND_MANY = sql(concat!("select ", workspace_columns!(), " from workspaces as workspace
        where workspace.id in (select value from json_each($1))"));
    FIND_BY_NAME = sql(concat!("select ", workspace_columns!(), " from workspaces as workspace
        where workspace.owner_id = $1 and workspace.name_lower = $2 and not workspace.deleted"));
    FIND_DELETED_BY_NAME = sql(concat!("select ", workspace_columns!(), " from workspaces as workspace
        where workspace.owner_id = $1 and workspace.name_lower = $2 and workspace.deleted
        order by workspace.updated_us desc, workspace.id limit 1"));
    LIST = sql(concat!("select ", workspace_columns!(), " from workspaces as workspace
        join users as owner on owner.id = workspace.owner_id
        join templates as template on template.id = workspace.template_id
        where not workspace.deleted
        and (cast($1 as text) is null or workspace.id in (select value from json_each($1)))
        and (cast($2 as text) is null or workspace.owner_id = $2)
        and (cast($3 as text) is null or owner.username_lower = $3)
        and (cast($4 as text) is null or workspace.template_id in (select value from json_each($4)))
        and (cast($5 as text) is null or template.name_lower = $5)
        and (cast($6 as text) is null or workspace.organization_id in (select value from json_each($6)))
        and (cast($7 as text) is null or instr(workspace.name_lower, $7) > 0)
        and (cast($8 as boolean) is null or (workspace.dormant_us is not null) = $8)
        and (cast($9 as bigint) is null or workspace.last_used_us >= $9)
        and (cast($10 as bigint) is null or workspace.last_used_us <= $10)
        order by owner.username_lower, workspace.name_lower"));
    COUNT_OF_OWNER = sql("select count(*) as total from workspaces where owner_id = $1 and not deleted");
    RENAME = sql("update workspaces set name = $2, name_lower = $3, updated_us = $4 where id = $1 and not deleted");
    UPDATE = sql("update workspaces set autostart_schedule = $2, ttl_ms = $3, automatic_updates = $4, favorite = $5,
        dormant_us = $6, deleting_us = $7, updated_us = $8, schedule_due_us = -1 * cast($8 as bigint), schedule_note = ''
        where id = $1 and not deleted");
    USED = sql("update workspaces set last_used_us = $2 where id = $1 and not deleted");
    USED_MANY = sql("update workspaces set last_used_us = $2
        where id in (select value from json_each($1)) and not deleted and last_used_us < $2");
    DELETE = sql("update workspaces set deleted = true, updated_us = $2 where id = $1 and not deleted");
}

/// Adds a workspace. Add its first build in the same transaction.
///
/// # Errors
/// A conflict on `name_lower`.
pub async fn insert(tx: &mut Tx, workspace: &Workspace) -> Result<()> {
    let mut row = workspace.values();
    row.extend(values![workspace.name.to_lowercase()]);
    tx.execute(&INSERT, row).await.map(|_| ())
}

/// Finds a workspace by id, including deleted ones.
pub async fn find(tx: &mut Tx, id: WorkspaceId) -> Result<Option<Workspace>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Workspace::from_row).transpose()
}

/// The existing workspaces of `ids`, including deleted ones.
pub async fn find_many(tx: &mut Tx, ids: &[WorkspaceId]) -> Result<Vec<Workspace>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())])
        .await?
        .iter()
        .map(Workspace::from_row)
        .collect()
}

/// Finds a workspace by owner and name, regardless of case. With `include_deleted`, finds the last deleted workspace of
/// that name when there is no other.
pub async fn find_by_name(
    tx: &mut Tx,
    owner: UserId,
    name: &str,
    include_deleted: bool,
) -> Result<Option<Workspace>> {
    let parameters = values![owner, name.to_lowercase()];
    let mut row = tx.fetch_opt(&FIND_BY_NAME, parameters.clone()).await?;
    if row.is_none() && include_deleted {
        row = tx.fetch_opt(&FIND_DELETED_BY_NAME, parameters).await?;
    }
    row.as_ref().map(Workspace::from_row).transpose()
}

/// The workspaces that match a filter, by owner and name. The caller moves favorites and running workspaces up.
pub async fn list(tx: &mut Tx, filter: &WorkspaceFilter) -> Result<Vec<Workspace>> {
    let lower = |text: &Option<String>| text.as_ref().map(|text| text.to_lowercase()).to_value();
    let parameters = vec![
        optional_list(filter.ids.as_deref()),
        filter.owner_id.to_value(),
        lower(&filter.owner_name),
        optional_list(filter.template_ids.as_deref()),
        lower(&filter.template_name),
        optional_list(filter.organization_ids.as_deref()),
        lower(&filter.name),
        filter.dormant.to_value(),
        filter.last_used_after.to_value(),
        filter.last_used_before.to_value(),
    ];
    tx.fetch(&LIST, parameters).await?.iter().map(Workspace::from_row).collect()
}

/// The number of workspaces that a user owns.
pub async fn count_of_owner(tx: &mut Tx, owner: UserId) -> Result<i64> {
    tx.fetch_one(&COUNT_OF_OWNER, values![owner]).await?.get("total")
}

/// Renames a workspace.
///
/// # Errors
/// A conflict on `name_lower`; [`crate::Error::Stale`] when it does not exist any more.
pub async fn update_name(tx: &mut Tx, id: WorkspaceId, name: &str, now: Timestamp) -> Result<()> {
    tx.change_one(&RENAME, values![id, name.to_owned(), name.to_lowercase(), now]).await
}

/// Stores schedule, time to live, update policy, favorite mark and dormancy of `changed`. The schedule task looks at it at once.
///
/// # Errors
/// [`crate::Error::Stale`] when it does not exist any more.
pub async fn update(tx: &mut Tx, changed: &Workspace) -> Result<()> {
    let row = values![
        changed.id,
        changed.autostart_schedule,
        changed.ttl_ms,
        changed.automatic_updates,
        changed.favorite,
        changed.dormant_at,
        changed.deleting_at,
        changed.updated_at,
    ];
    tx.change_one(&UPDATE, row).await
}

/// Records a use of the workspace.
///
/// # Errors
/// [`crate::Error::Stale`] when it does not exist any more.
pub async fn update_used(tx: &mut Tx, id: WorkspaceId, now: Timestamp) -> Result<()> {
    tx.change_one(&USED, values![id, now]).await
}

/// Notes the use of several workspaces with one statement.
pub async fn update_all_used(tx: &mut Tx, ids: &[WorkspaceId], now: Timestamp) -> Result<()> {
    let mut row = vec![list_value(ids.iter().copied())];
    row.extend(values![now]);
    tx.execute(&USED_MANY, row).await.map(|_| ())
}

/// Marks a workspace as deleted; its name becomes free.
///
/// # Errors
/// [`crate::Error::Stale`] when it is already deleted.
pub async fn delete(tx: &mut Tx, id: WorkspaceId, now: Timestamp) -> Result<()> {
    tx.execute_pipelined(&DELETE, values![id, now], true).await
}
