//! Builds of workspaces, their parameters, and Terraform's state. The state is in a separate table, so that lists do
//! not load it.

use std::collections::BTreeMap;

use coder_domain::build::{BuildReason, Transition};
use coder_domain::ids::{BuildId, JobId, PresetId, TemplateVersionId, UserId, WorkspaceId};
use jiff::Timestamp;

use crate::encryption::keys::{MARK, Owner};
use crate::engine::{
    Column, Row, Tx, Value, batch, clean, list as list_value, record, sql, statements, values,
};
use crate::{Error, Result};

record! {
    pub struct Build {
        pub id: BuildId,
        /// Whose.
        pub workspace_id: WorkspaceId,
        /// From 1, without gaps.
        pub build_number: i64,
        pub template_version_id: TemplateVersionId,
        pub template_version_preset_id: Option<PresetId>,
        /// Its job.
        pub job_id: JobId,
        /// Who caused it.
        pub initiator_id: UserId,
        /// What it does.
        pub transition: Transition,
        pub reason: BuildReason,
        /// The daily cost.
        pub daily_cost: i64,
        /// When it will be stopped.
        pub deadline_at: Option<Timestamp> = "deadline_us",
        /// The latest possible deadline.
        pub max_deadline_at: Option<Timestamp> = "max_deadline_us",
        /// Set when the job has ended.
        pub has_ai_task: Option<bool>,
        /// Set when the job has ended.
        pub has_external_agent: Option<bool>,
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
    }
}

/// A build to be inserted. The store assigns its number.
#[derive(Clone, Debug)]
pub struct NewBuild {
    pub id: BuildId,
    /// Whose.
    pub workspace_id: WorkspaceId,
    pub template_version_id: TemplateVersionId,
    pub template_version_preset_id: Option<PresetId>,
    /// Its job, which must exist.
    pub job_id: JobId,
    /// The initiator.
    pub initiator_id: UserId,
    /// What it does.
    pub transition: Transition,
    pub reason: BuildReason,
}

macro_rules! build_columns {
    () => {
        "build.id, build.workspace_id, build.build_number, build.template_version_id, \
         build.template_version_preset_id, build.job_id, build.initiator_id, build.transition, build.reason, \
         build.daily_cost, build.deadline_us, build.max_deadline_us, build.has_ai_task, build.has_external_agent, \
         build.created_us, build.updated_us"
    };
}

pub(crate) use build_columns;

statements! { "workspace_builds";
    INSERT = sql("insert into workspace_builds (id, workspace_id, build_number, template_version_id,
        template_version_preset_id, job_id, initiator_id, transition, reason, daily_cost, created_us, updated_us)
        select $1, $2, (select coalesce(max(earlier.build_number), 0) + 1 from workspace_builds as earlier
            where earlier.workspace_id = $2), $3, $4, $5, $6, $7, $8, 0, $9, $9
        where not exists (select 1 from workspace_builds as other
            join provisioner_jobs as job on job.id = other.job_id
            where other.workspace_id = $2 and job.completed_us is null)
        returning build_number");
    /// The number and the condition each reject a second build that is requested at the same moment.
    INSERT_NUMBERED = sql("insert into workspace_builds (id, workspace_id, build_number, template_version_id,
        template_version_preset_id, job_id, initiator_id, transition, reason, daily_cost, created_us, updated_us)
        select $1, $2, cast($10 as bigint), $3, $4, $5, $6, $7, $8, 0, $9, $9
        where not exists (select 1 from workspace_builds as other
            join provisioner_jobs as job on job.id = other.job_id
            where other.workspace_id = $2 and job.completed_us is null)");
    FIND = sql(concat!("select ", build_columns!(), " from workspace_builds as build where build.id = $1"));
    FIND_MANY = sql(concat!("select ", build_columns!(), " from workspace_builds as build
        where build.id in (select value from json_each($1))"));
    FIND_BY_JOB = sql(concat!("select ", build_columns!(), " from workspace_builds as build where build.job_id = $1"));
    FIND_BY_NUMBER = sql(concat!("select ", build_columns!(), " from workspace_builds as build
        where build.workspace_id = $1 and build.build_number = $2"));
    FIND_LATEST = sql(concat!("select ", build_columns!(), " from workspace_builds as build
        where build.workspace_id = $1 order by build.build_number desc limit 1"));
    LIST_LATEST = sql(concat!("select ", build_columns!(), " from json_each($1) as wanted
        join workspace_builds as build on build.workspace_id = wanted.value
        and build.build_number = (select max(newest.build_number) from workspace_builds as newest
            where newest.workspace_id = wanted.value)"));
    LIST = sql(concat!("select ", build_columns!(), " from workspace_builds as build where build.workspace_id = $1
        and (cast($2 as bigint) is null or build.created_us >= $2)
        and (cast($3 as text) is null or build.build_number <
            (select after.build_number from workspace_builds as after where after.id = $3))
        order by build.build_number desc limit $4 offset $5"));
    LIST_NAMES = sql("select build.job_id, workspace.name as workspace_name, owner.username as owner_name
        from workspace_builds as build join workspaces as workspace on workspace.id = build.workspace_id
        join users as owner on owner.id = workspace.owner_id
        where build.job_id in (select value from json_each($1))");
    SET_COST = sql("update workspace_builds set daily_cost = $2, updated_us = $3 where id = $1");
    SET_FLAGS = sql("update workspace_builds set has_ai_task = $2, has_external_agent = $3, updated_us = $4
        where id = $1");
    /// Does not write unchanged values.
    END = sql("update workspace_builds set has_ai_task = $2, has_external_agent = $3,
        deadline_us = coalesce($4, deadline_us), updated_us = $5, max_deadline_us = coalesce($6, max_deadline_us)
        where id = $1");
    FIND_STATE = sql("select workspace_build_id as id, state from workspace_build_states where workspace_build_id = $1");
    SET_STATE = sql("insert into workspace_build_states (workspace_build_id, state) values ($1, $2)
        on conflict (workspace_build_id) do update set state = excluded.state");
    /// Only when it is not encrypted, because an encrypted state is bound to its build.
    COPY_STATE = sql("insert into workspace_build_states (workspace_build_id, state)
        select $1, kept.state from workspace_build_states as kept where kept.workspace_build_id = $2
        and substr(kept.state, 1, 5) <> $3
        on conflict (workspace_build_id) do update set state = excluded.state");
    /// Only when the build has no state, and the other state is not encrypted.
    COPY_PREVIOUS_STATE = sql("insert into workspace_build_states (workspace_build_id, state)
        select build.id, kept.state from workspace_builds as build
        join workspace_builds as previous on previous.workspace_id = build.workspace_id
            and previous.build_number = build.build_number - 1
        join workspace_build_states as kept on kept.workspace_build_id = previous.id
        where build.id = $1 and substr(kept.state, 1, 5) <> $2 and not exists (select 1 from workspace_build_states as own
            where own.workspace_build_id = $1 and length(own.state) > 0)
        on conflict (workspace_build_id) do update set state = excluded.state");
    INSERT_PARAMETERS = sql("insert into workspace_build_parameters (workspace_build_id, name, value)
        select $1, json_extract(item.value, '$.name'), json_extract(item.value, '$.value') from json_each($2) as item");
    LIST_PARAMETERS = sql("select workspace_build_id || ' ' || name as sealed_id, name, value from workspace_build_parameters
        where workspace_build_id = $1 order by name");
}

/// Names of a workspace and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub workspace: String,
    pub owner: String,
}

/// The names of the workspaces that these jobs built. Jobs of imports and dry runs have none.
pub async fn list_names(tx: &mut Tx, jobs: &[JobId]) -> Result<BTreeMap<JobId, Names>> {
    let rows = tx.fetch(&LIST_NAMES, vec![list_value(jobs.iter().copied())]).await?;
    let read = |row: &Row| {
        let names = Names { workspace: row.get("workspace_name")?, owner: row.get("owner_name")? };
        Ok((row.get("job_id")?, names))
    };
    rows.iter().map(read).collect()
}

/// Adds the next build of a workspace. Insert its job before, in the same transaction. Returns the build number.
///
/// # Errors
/// [`Error::Stale`] when the last build's job has not ended; a conflict on `build_number` when two builds are requested
/// at once.
pub async fn insert(tx: &mut Tx, build: &NewBuild, now: Timestamp) -> Result<i64> {
    let row = tx.fetch_opt(&INSERT, new_row(build, now)).await?;
    row.ok_or(Error::Stale { table: "workspace_builds" })?.get("build_number")
}

fn new_row(build: &NewBuild, now: Timestamp) -> Vec<Value> {
    values![
        build.id,
        build.workspace_id,
        build.template_version_id,
        build.template_version_preset_id,
        build.job_id,
        build.initiator_id,
        build.transition,
        build.reason,
        now,
    ]
}

/// Like [`insert`], for a caller that has read the number of the last build. On Postgres this is pipelined, so an error
/// may come at the commit.
///
/// # Errors
/// Those of [`insert`].
pub async fn insert_numbered(tx: &mut Tx, build: &NewBuild, number: i64, now: Timestamp) -> Result<()> {
    let mut row = new_row(build, now);
    row.extend(values![number]);
    tx.execute_pipelined(&INSERT_NUMBERED, row, true).await
}

pub async fn find(tx: &mut Tx, id: BuildId) -> Result<Option<Build>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Build::from_row).transpose()
}

/// By id.
///
/// # Errors
/// [`Error::NotFound`].
pub async fn get(tx: &mut Tx, id: BuildId) -> Result<Build> {
    Build::from_row(&tx.fetch_one(&FIND, values![id]).await?)
}

/// Those of `ids` that exist.
pub async fn find_many(tx: &mut Tx, ids: &[BuildId]) -> Result<Vec<Build>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())]).await?.iter().map(Build::from_row).collect()
}

/// Finds the build of a job.
pub async fn find_by_job(tx: &mut Tx, job: JobId) -> Result<Option<Build>> {
    tx.fetch_opt(&FIND_BY_JOB, values![job]).await?.as_ref().map(Build::from_row).transpose()
}

pub async fn find_by_number(tx: &mut Tx, workspace: WorkspaceId, number: i64) -> Result<Option<Build>> {
    let row = tx.fetch_opt(&FIND_BY_NUMBER, values![workspace, number]).await?;
    row.as_ref().map(Build::from_row).transpose()
}

/// The newest build of a workspace.
pub async fn find_latest(tx: &mut Tx, workspace: WorkspaceId) -> Result<Option<Build>> {
    tx.fetch_opt(&FIND_LATEST, values![workspace]).await?.as_ref().map(Build::from_row).transpose()
}

/// The newest build of each of these workspaces.
pub async fn list_latest(tx: &mut Tx, workspaces: &[WorkspaceId]) -> Result<Vec<Build>> {
    let rows = tx.fetch(&LIST_LATEST, vec![list_value(workspaces.iter().copied())]).await?;
    rows.iter().map(Build::from_row).collect()
}

/// Selects a page of a workspace's builds.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildPage {
    /// Only builds that were created at or after this instant.
    pub since: Option<Timestamp>,
    /// Only builds older than this one.
    pub after: Option<BuildId>,
    /// The maximum number of rows; 0 for all.
    pub limit: i64,
    /// The number of rows to skip.
    pub offset: i64,
}

/// The builds of a workspace, newest first.
pub async fn list(tx: &mut Tx, workspace: WorkspaceId, page: BuildPage) -> Result<Vec<Build>> {
    let limit = if page.limit == 0 { crate::config::UNLIMITED } else { page.limit };
    let parameters = values![workspace, page.since, page.after, limit, page.offset];
    tx.fetch(&LIST, parameters).await?.iter().map(Build::from_row).collect()
}

/// Stores the daily cost of a build.
///
/// # Errors
/// [`Error::Stale`] when it does not exist any more.
pub async fn update_daily_cost(tx: &mut Tx, id: BuildId, daily_cost: i64, now: Timestamp) -> Result<()> {
    tx.change_one(&SET_COST, values![id, daily_cost, now]).await
}

/// Stores the flags that the job reported.
///
/// # Errors
/// [`Error::Stale`] when it does not exist any more.
pub async fn update_flags(
    tx: &mut Tx,
    id: BuildId,
    has_ai_task: bool,
    has_external_agent: bool,
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&SET_FLAGS, values![id, has_ai_task, has_external_agent, now]).await
}

/// The properties of a build that are known at the end of its job.
#[derive(Clone, Copy, Debug)]
pub struct BuildEnd {
    pub has_ai_task: bool,
    /// Whether it has an external agent.
    pub has_external_agent: bool,
    /// The new deadline of the workspace; none for no change.
    pub deadline_at: Option<Timestamp>,
    /// The latest possible deadline; none for no change.
    pub max_deadline_at: Option<Timestamp>,
}

/// Stores the properties of a build at the end of its job, with one statement.
///
/// # Errors
/// [`Error::Stale`] when it does not exist any more.
pub async fn update_ended(tx: &mut Tx, id: BuildId, ended: BuildEnd, now: Timestamp) -> Result<()> {
    let BuildEnd { has_ai_task, has_external_agent, deadline_at, max_deadline_at } = ended;
    let row = values![id, has_ai_task, has_external_agent, deadline_at, now, max_deadline_at];
    tx.execute_pipelined(&END, row, true).await
}

/// Terraform's state, if there is one.
///
/// # Errors
/// [`Error::RowKeyMissing`] when it is encrypted with a key that is not configured.
pub async fn find_state(tx: &mut Tx, id: BuildId) -> Result<Option<Vec<u8>>> {
    let Some(row) = tx.fetch_opt(&FIND_STATE, values![id]).await? else { return Ok(None) };
    tx.state_keys().open(Owner::Build(id), row.get("state")?).map(Some)
}

/// Stores or replaces Terraform's state.
///
/// # Errors
/// [`Error::Reference`] when the build is missing.
pub async fn update_state(tx: &mut Tx, id: BuildId, state: Vec<u8>) -> Result<()> {
    let mut row = values![id];
    row.push(Value::Bytes(tx.state_keys().seal(Owner::Build(id), state)));
    tx.execute_pipelined(&SET_STATE, row, false).await
}

/// Copies the state of another build (scheduling-and-auth BLD-2). The state is copied in the database, or in memory
/// when it is encrypted.
///
/// # Errors
/// [`Error::RowKeyMissing`] when it is encrypted with a key that is not configured.
pub async fn copy_state(tx: &mut Tx, to: BuildId, from: BuildId) -> Result<()> {
    if tx.state_keys().is_empty() && tx.execute(&COPY_STATE, values![to, from, MARK.to_vec()]).await? > 0 {
        return Ok(());
    }
    match find_state(tx, from).await? {
        Some(state) => update_state(tx, to, state).await,
        None => Ok(()),
    }
}

/// Like [`copy_state`], for a caller that has read whether the state is encrypted
/// ([`PreviousBuild`](crate::workspaces::build_inputs::PreviousBuild)).
///
/// # Errors
/// [`Error::Stale`] when the state was encrypted meanwhile.
pub async fn copy_known_state(tx: &mut Tx, to: BuildId, from: BuildId, sealed: Option<bool>) -> Result<()> {
    match sealed {
        None => Ok(()),
        Some(false) if tx.state_keys().is_empty() => {
            tx.execute_pipelined(&COPY_STATE, values![to, from, MARK.to_vec()], true).await
        }
        Some(_) => copy_state(tx, to, from).await,
    }
}

/// Copies the previous build's state to a build without a state (scheduling-and-auth REAP-5). Returns whether it did.
///
/// # Errors
/// [`Error::RowKeyMissing`] when it is encrypted with a key that is not configured.
pub async fn copy_previous_state(tx: &mut Tx, id: BuildId) -> Result<bool> {
    if tx.state_keys().is_empty() && tx.execute(&COPY_PREVIOUS_STATE, values![id, MARK.to_vec()]).await? > 0 {
        return Ok(true);
    }
    let own =
        tx.fetch_opt(&FIND_STATE, values![id]).await?.map(|row| row.get::<Vec<u8>>("state")).transpose()?;
    if own.is_some_and(|own| !own.is_empty()) {
        return Ok(false);
    }
    let Some(build) = find(tx, id).await? else { return Ok(false) };
    let Some(previous) = find_by_number(tx, build.workspace_id, build.build_number - 1).await? else {
        return Ok(false);
    };
    match find_state(tx, previous.id).await? {
        Some(state) => update_state(tx, id, state).await.map(|()| true),
        None => Ok(false),
    }
}

/// Stores the parameters of a build. Can be called once per build.
///
/// # Errors
/// A conflict when it has parameters already.
pub async fn insert_parameters(
    tx: &mut Tx,
    id: BuildId,
    parameters: &BTreeMap<String, String>,
) -> Result<()> {
    if parameters.is_empty() {
        return Ok(());
    }
    let row = |(name, value): (&String, &String)| {
        let sealed_id = format!("{id} {}", clean(name.clone()));
        let value = tx.sealed("workspace_build_parameters", "value", &sealed_id, value.to_value());
        vec![name.to_value(), value]
    };
    let rows = vec![id.to_value(), batch(&["name", "value"], parameters.iter().map(row))];
    tx.execute_pipelined(&INSERT_PARAMETERS, rows, false).await
}

/// The parameters of a build by name.
pub async fn list_parameters(tx: &mut Tx, id: BuildId) -> Result<BTreeMap<String, String>> {
    let rows = tx.fetch(&LIST_PARAMETERS, values![id]).await?;
    rows.iter().map(|row| Ok((row.get("name")?, read_parameter(row, "value")?))).collect()
}

/// Decrypts the value of a parameter. In this result the column is called `called`.
pub(crate) fn read_parameter(row: &Row, called: &'static str) -> Result<String> {
    row.open_text("value", called)?.ok_or_else(|| row.corrupt(called, "null"))
}
