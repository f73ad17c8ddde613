//! What the schedule task reads and writes: which workspaces it must look at and when, deadlines that activity moves, and the
//! dormancy of a template's workspaces.

use coder_domain::ids::{BuildId, TemplateId, UserId, WorkspaceId};
use coder_domain::schedule::deadline::Deadlines;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Purpose, Tx, batch, list as list_value, record, sql, statements, values};
use crate::templates::Settings;
use crate::users::UserStatus;

record! {
    /// What the task needs beyond the inputs of a build.
    pub struct Schedule {
        /// When the task was to look at it.
        pub due_at: Option<Timestamp> = "schedule_due_us",
        /// What builds by schedule get of the owner's credentials, as JSON; none for what the last build got.
        pub credentials: Option<String> = "schedule_credentials",
        pub owner_status: UserStatus,
        pub owner_deleted: bool,
    }
}

record! {
    /// A started workspace that activity may extend.
    pub struct Started {
        pub workspace_id: WorkspaceId,
        pub build_id: BuildId,
        pub deadline_at: Timestamp = "deadline_us",
        pub max_deadline_at: Option<Timestamp> = "max_deadline_us",
        pub ttl_ms: Option<i64>,
        pub autostart_schedule: Option<String>,
        pub settings: Settings,
    }
}

record! {
    /// A started workspace whose deadline the template may limit.
    pub struct Limited {
        pub build_id: BuildId,
        pub deadline_at: Option<Timestamp> = "deadline_us",
        /// The quiet hours that its owner chose.
        pub quiet_hours: Option<String>,
    }
}

statements! { "workspaces";
    LIST_DUE = sql("select id from workspaces where not deleted and schedule_due_us is not null and schedule_due_us <= $1
        order by schedule_due_us limit $2");
    NEXT_DUE = sql("select schedule_due_us as due_us from workspaces where not deleted and schedule_due_us is not null
        order by schedule_due_us limit 1").purpose(Purpose::Heartbeat);
    FIND = sql("select workspace.schedule_due_us, workspace.schedule_credentials, owner.status as owner_status,
        owner.deleted as owner_deleted
        from workspaces as workspace join users as owner on owner.id = workspace.owner_id
        where workspace.id = $1 and not workspace.deleted");
    /// Only when nothing changed since it was read.
    LOOKED_AT = sql("update workspaces set schedule_due_us = $2, schedule_note = $3
        where id = $1 and not deleted and schedule_due_us = $4");
    BUILD_INSERTED = sql("update workspaces set schedule_due_us = $2, schedule_note = '',
        last_used_us = coalesce($3, last_used_us) where id = $1 and not deleted");
    CHANGED_OF_TEMPLATE = sql("update workspaces set schedule_due_us = -1 * cast($2 as bigint), schedule_note = '',
        deleting_us = case when dormant_us is not null and cast($3 as bigint) > 0
            then case when cast($4 as boolean) then $2 else dormant_us end + $3 * 1000 end,
        dormant_us = case when dormant_us is not null and cast($4 as boolean) then $2 else dormant_us end,
        last_used_us = case when cast($5 as boolean) then $2 else last_used_us end
        where template_id = $1 and not deleted");
    CHANGED_OF_OWNER = sql("update workspaces set schedule_due_us = -1 * cast($2 as bigint), schedule_note = ''
        where owner_id = $1 and not deleted");
    CHANGED = sql("update workspaces set schedule_due_us = -1 * cast($1 as bigint) where not deleted");
    CHANGED_ONE = sql("update workspaces set schedule_due_us = -1 * cast($2 as bigint), schedule_note = ''
        where id = $1 and not deleted");
    SET_CREDENTIALS = sql("update workspaces set schedule_credentials = $2 where id = $1 and not deleted");
    LIST_STARTED = sql("select build.workspace_id, build.id as build_id, build.deadline_us, build.max_deadline_us,
        workspace.ttl_ms, workspace.autostart_schedule, template.settings
        from json_each($1) as wanted join workspaces as workspace on workspace.id = wanted.value
        join templates as template on template.id = workspace.template_id
        join workspace_builds as build on build.workspace_id = workspace.id
            and build.build_number = (select max(newest.build_number) from workspace_builds as newest
                where newest.workspace_id = workspace.id)
        join provisioner_jobs as job on job.id = build.job_id
        where build.transition = 'start' and build.deadline_us is not null and job.completed_us is not null
            and job.error = '' and not workspace.deleted");
    /// A deadline never moves back here.
    EXTEND = sql("update workspace_builds set updated_us = $2,
        deadline_us = (select cast(json_extract(item.value, '$.deadline_us') as bigint) from json_each($1) as item
            where json_extract(item.value, '$.id') = workspace_builds.id)
        where id in (select json_extract(wanted.value, '$.id') from json_each($1) as wanted)
            and deadline_us < (select cast(json_extract(later.value, '$.deadline_us') as bigint)
                from json_each($1) as later where json_extract(later.value, '$.id') = workspace_builds.id)");
    LIST_LIMITED = sql("select build.id as build_id, build.deadline_us, quiet.schedule as quiet_hours
        from workspaces as workspace
        left join user_quiet_hours as quiet on quiet.user_id = workspace.owner_id
        join workspace_builds as build on build.workspace_id = workspace.id
            and build.build_number = (select max(newest.build_number) from workspace_builds as newest
                where newest.workspace_id = workspace.id)
        join provisioner_jobs as job on job.id = build.job_id
        where workspace.template_id = $1 and not workspace.deleted and build.transition = 'start'
            and job.completed_us is not null and job.error = ''");
    LIMIT = sql("update workspace_builds set updated_us = $2,
        deadline_us = (select cast(json_extract(one.value, '$.deadline_us') as bigint) from json_each($1) as one
            where json_extract(one.value, '$.id') = workspace_builds.id),
        max_deadline_us = (select cast(json_extract(other.value, '$.max_deadline_us') as bigint)
            from json_each($1) as other where json_extract(other.value, '$.id') = workspace_builds.id)
        where id in (select json_extract(wanted.value, '$.id') from json_each($1) as wanted)");
    SET_DEADLINE = sql("update workspace_builds set deadline_us = $2, updated_us = $3 where id = $1");
}

/// Workspaces that the task must look at, the longest waiting ones first.
pub async fn list_due(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<WorkspaceId>> {
    tx.fetch(&LIST_DUE, values![now, limit]).await?.iter().map(|row| row.get("id")).collect()
}

/// When the task must look at a workspace next.
pub async fn find_next_due(tx: &mut Tx) -> Result<Option<Timestamp>> {
    tx.fetch_opt(&NEXT_DUE, values![]).await?.map(|row| row.get("due_us")).transpose()
}

/// What the task needs of a workspace that is not deleted.
pub async fn find(tx: &mut Tx, id: WorkspaceId) -> Result<Option<Schedule>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Schedule::from_row).transpose()
}

/// Stores when to look again, and why nothing was done. Returns false when something changed since `read`.
pub async fn update_due(
    tx: &mut Tx,
    id: WorkspaceId,
    due: Option<Timestamp>,
    note: &str,
    read: Timestamp,
) -> Result<bool> {
    Ok(tx.execute(&LOOKED_AT, values![id, due, note.to_owned(), read]).await? > 0)
}

/// A build was inserted: the task looks at its workspace at `due`. `used_at` is given when a person starts it.
///
/// # Errors
/// [`crate::Error::Stale`] when the workspace does not exist any more.
pub async fn build_inserted(
    tx: &mut Tx,
    id: WorkspaceId,
    due: Timestamp,
    used_at: Option<Timestamp>,
) -> Result<()> {
    tx.execute_pipelined(&BUILD_INSERTED, values![id, due, used_at], true).await
}

/// What a change of a template does to its workspaces at once.
#[derive(Clone, Copy, Debug)]
pub struct TemplateChange {
    /// Dormant workspaces are deleted after this time in milliseconds; 0 for never.
    pub time_til_deletion_ms: i64,
    /// The dormancy of dormant workspaces begins now.
    pub restart_dormancy: bool,
    /// All workspaces count as used now.
    pub mark_used: bool,
}

/// The rules of a template changed: the task looks at all its workspaces.
pub async fn template_changed(
    tx: &mut Tx,
    template: TemplateId,
    change: TemplateChange,
    now: Timestamp,
) -> Result<()> {
    let TemplateChange { time_til_deletion_ms, restart_dormancy, mark_used } = change;
    let row = values![template, now, time_til_deletion_ms, restart_dormancy, mark_used];
    tx.execute(&CHANGED_OF_TEMPLATE, row).await.map(|_| ())
}

/// Something about a workspace changed: the task looks at it.
///
/// # Errors
/// [`crate::Error::Stale`] when it does not exist any more.
pub async fn look_again(tx: &mut Tx, id: WorkspaceId, now: Timestamp) -> Result<()> {
    tx.execute_pipelined(&CHANGED_ONE, values![id, now], true).await
}

/// The account of an owner changed: the task looks at all its workspaces.
pub async fn owner_changed(tx: &mut Tx, owner: UserId, now: Timestamp) -> Result<()> {
    tx.execute(&CHANGED_OF_OWNER, values![owner, now]).await.map(|_| ())
}

/// The clock was set: the task looks at all workspaces.
pub async fn clock_changed(tx: &mut Tx, now: Timestamp) -> Result<()> {
    tx.execute(&CHANGED, values![now]).await.map(|_| ())
}

/// Stores what builds by schedule get of the owner's credentials; none for what the last build got.
///
/// # Errors
/// [`crate::Error::Stale`] when the workspace does not exist any more.
pub async fn update_credentials(tx: &mut Tx, id: WorkspaceId, credentials: Option<String>) -> Result<()> {
    tx.change_one(&SET_CREDENTIALS, values![id, credentials]).await
}

/// Those of these workspaces that are started and have a deadline.
pub async fn list_started(tx: &mut Tx, ids: &[WorkspaceId]) -> Result<Vec<Started>> {
    let rows = tx.fetch(&LIST_STARTED, vec![list_value(ids.iter().copied())]).await?;
    rows.iter().map(Started::from_row).collect()
}

/// Moves the deadlines of builds ahead, with one statement.
pub async fn extend(tx: &mut Tx, builds: &[(BuildId, Timestamp)], now: Timestamp) -> Result<()> {
    let rows = builds.iter().map(|(id, deadline)| values![*id, *deadline]);
    let mut row = vec![batch(&["id", "deadline_us"], rows)];
    row.extend(values![now]);
    tx.execute(&EXTEND, row).await.map(|_| ())
}

/// The started workspaces of a template.
pub async fn list_limited(tx: &mut Tx, template: TemplateId) -> Result<Vec<Limited>> {
    tx.fetch(&LIST_LIMITED, values![template]).await?.iter().map(Limited::from_row).collect()
}

/// Sets the deadlines of builds, each with its latest one, with one statement.
pub async fn update_deadlines(tx: &mut Tx, builds: &[(BuildId, Deadlines)], now: Timestamp) -> Result<()> {
    if builds.is_empty() {
        return Ok(());
    }
    let rows = builds.iter().map(|(id, stops)| values![*id, stops.deadline, stops.max_deadline]);
    let mut row = vec![batch(&["id", "deadline_us", "max_deadline_us"], rows)];
    row.extend(values![now]);
    tx.execute(&LIMIT, row).await.map(|_| ())
}

/// Sets the deadline of a build, also to an earlier one.
///
/// # Errors
/// [`crate::Error::Stale`] when the build does not exist any more.
pub async fn update_deadline(tx: &mut Tx, build: BuildId, deadline: Timestamp, now: Timestamp) -> Result<()> {
    tx.change_one(&SET_DEADLINE, values![build, deadline, now]).await
}
