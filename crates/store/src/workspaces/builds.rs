//! Builds of workspaces, their parameters, and Terraform's state (in a table of its own, so that no list loads it).

use std::collections::BTreeMap;

use coder_domain::build::{Reason, Transition};
use coder_domain::ids::{BuildId, JobId, PresetId, TemplateVersionId, UserId, WorkspaceId};
use jiff::Timestamp;

use crate::encryption::keys::{MARK, Owner};
use crate::engine::{
    Column, Row, Tx, Value, batch, clean, list as list_value, record, sql, statements, values,
};
use crate::{Error, Result};

record! {
    /// One build.
    pub struct Build {
        /// Id.
        pub id: BuildId,
        /// Whose.
        pub workspace_id: WorkspaceId,
        /// From 1, without gaps.
        pub build_number: i64,
        /// What is built.
        pub template_version_id: TemplateVersionId,
        /// With which preset.
        pub template_version_preset_id: Option<PresetId>,
        /// The job that does it.
        pub job_id: JobId,
        /// Who caused it.
        pub initiator_id: UserId,
        /// What it does.
        pub transition: Transition,
        /// Why.
        pub reason: Reason,
        /// What it costs a day.
        pub daily_cost: i64,
        /// When it will be stopped.
        pub deadline_at: Option<Timestamp> = "deadline_us",
        /// Latest value of the deadline.
        pub max_deadline_at: Option<Timestamp> = "max_deadline_us",
        /// Known when the job has ended.
        pub has_ai_task: Option<bool>,
        /// Known when the job has ended.
        pub has_external_agent: Option<bool>,
        /// When it was made.
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
    }
}

/// A build to be made; its number is given by the store.
#[derive(Clone, Debug)]
pub struct NewBuild {
    /// Id.
    pub id: BuildId,
    /// Whose.
    pub workspace_id: WorkspaceId,
    /// What is built.
    pub template_version_id: TemplateVersionId,
    /// With which preset.
    pub template_version_preset_id: Option<PresetId>,
    /// The job that does it; it must exist.
    pub job_id: JobId,
    /// Who causes it.
    pub initiator_id: UserId,
    /// What it does.
    pub transition: Transition,
    /// Why.
    pub reason: Reason,
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
    /// The number and the condition each refuse a second build that was asked for at the same moment.
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
    SET_COST = sql("update workspace_builds set daily_cost = $2, updated_us = $3 where id = $1");
    SET_FLAGS = sql("update workspace_builds set has_ai_task = $2, has_external_agent = $3, updated_us = $4
        where id = $1");
    /// What was no news stays as it is.
    END = sql("update workspace_builds set has_ai_task = $2, has_external_agent = $3,
        deadline_us = coalesce($4, deadline_us), updated_us = $5 where id = $1");
    FIND_STATE = sql("select workspace_build_id as id, state from workspace_build_states where workspace_build_id = $1");
    SET_STATE = sql("insert into workspace_build_states (workspace_build_id, state) values ($1, $2)
        on conflict (workspace_build_id) do update set state = excluded.state");
    /// Only when it is not encrypted: that would bind it to the other build.
    COPY_STATE = sql("insert into workspace_build_states (workspace_build_id, state)
        select $1, kept.state from workspace_build_states as kept where kept.workspace_build_id = $2
        and substr(kept.state, 1, 5) <> $3
        on conflict (workspace_build_id) do update set state = excluded.state");
    /// Only when the build has no state itself, and the other's is not encrypted.
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

/// Adds the next build of a workspace, whose job was inserted before in the same transaction; returns its number.
///
/// # Errors
/// [`Error::Stale`] when the last build's job has not ended; a conflict on `build_number` when two builds were asked
/// for at once.
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

/// As [`insert`], for somebody who has read the number of the last build. On Postgres it is done together with what else
/// the transaction writes, so the error may come at its end.
///
/// # Errors
/// As [`insert`].
pub async fn insert_numbered(tx: &mut Tx, build: &NewBuild, number: i64, now: Timestamp) -> Result<()> {
    let mut row = new_row(build, now);
    row.extend(values![number]);
    tx.execute_pipelined(&INSERT_NUMBERED, row, true).await
}

/// By id.
///
/// # Errors
/// Only when the database fails.
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
///
/// # Errors
/// Only when the database fails.
pub async fn find_many(tx: &mut Tx, ids: &[BuildId]) -> Result<Vec<Build>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())]).await?.iter().map(Build::from_row).collect()
}

/// The build that a job does.
///
/// # Errors
/// Only when the database fails.
pub async fn find_by_job(tx: &mut Tx, job: JobId) -> Result<Option<Build>> {
    tx.fetch_opt(&FIND_BY_JOB, values![job]).await?.as_ref().map(Build::from_row).transpose()
}

/// By number.
///
/// # Errors
/// Only when the database fails.
pub async fn find_by_number(tx: &mut Tx, workspace: WorkspaceId, number: i64) -> Result<Option<Build>> {
    let row = tx.fetch_opt(&FIND_BY_NUMBER, values![workspace, number]).await?;
    row.as_ref().map(Build::from_row).transpose()
}

/// The newest build of a workspace.
///
/// # Errors
/// Only when the database fails.
pub async fn find_latest(tx: &mut Tx, workspace: WorkspaceId) -> Result<Option<Build>> {
    tx.fetch_opt(&FIND_LATEST, values![workspace]).await?.as_ref().map(Build::from_row).transpose()
}

/// The newest build of each of these workspaces.
///
/// # Errors
/// Only when the database fails.
pub async fn list_latest(tx: &mut Tx, workspaces: &[WorkspaceId]) -> Result<Vec<Build>> {
    let rows = tx.fetch(&LIST_LATEST, vec![list_value(workspaces.iter().copied())]).await?;
    rows.iter().map(Build::from_row).collect()
}

/// Which page of a workspace's builds.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildPage {
    /// Only those made at or after this instant.
    pub since: Option<Timestamp>,
    /// Only those older than this one.
    pub after: Option<BuildId>,
    /// At most this many; 0 for all.
    pub limit: i64,
    /// Leave out this many.
    pub offset: i64,
}

/// The builds of a workspace, newest first.
///
/// # Errors
/// Only when the database fails.
pub async fn list(tx: &mut Tx, workspace: WorkspaceId, page: BuildPage) -> Result<Vec<Build>> {
    let limit = if page.limit == 0 { crate::config::UNLIMITED } else { page.limit };
    let parameters = values![workspace, page.since, page.after, limit, page.offset];
    tx.fetch(&LIST, parameters).await?.iter().map(Build::from_row).collect()
}

/// Stores what the build costs a day.
///
/// # Errors
/// [`Error::Stale`] when it is gone.
pub async fn update_daily_cost(tx: &mut Tx, id: BuildId, daily_cost: i64, now: Timestamp) -> Result<()> {
    tx.change_one(&SET_COST, values![id, daily_cost, now]).await
}

/// Stores what the job found out.
///
/// # Errors
/// [`Error::Stale`] when it is gone.
pub async fn update_flags(
    tx: &mut Tx,
    id: BuildId,
    has_ai_task: bool,
    has_external_agent: bool,
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&SET_FLAGS, values![id, has_ai_task, has_external_agent, now]).await
}

/// What the end of a build's job says about the build.
#[derive(Clone, Copy, Debug)]
pub struct BuildEnd {
    /// Whether it has a task.
    pub has_ai_task: bool,
    /// Whether it has an agent outside.
    pub has_external_agent: bool,
    /// When the workspace will be stopped; none leaves it.
    pub deadline_at: Option<Timestamp>,
}

/// Stores what the job found out when it ended: all with one statement.
///
/// # Errors
/// [`Error::Stale`] when it is gone.
pub async fn update_ended(tx: &mut Tx, id: BuildId, ended: BuildEnd, now: Timestamp) -> Result<()> {
    let BuildEnd { has_ai_task, has_external_agent, deadline_at } = ended;
    let row = values![id, has_ai_task, has_external_agent, deadline_at, now];
    tx.execute_pipelined(&END, row, true).await
}

/// Terraform's state, if there is one.
///
/// # Errors
/// [`Error::RowKeyMissing`] when it is encrypted with a key that is not there.
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

/// Gives a build the state of another one, without moving it through memory unless it is encrypted
/// (scheduling-and-auth BLD-2).
///
/// # Errors
/// [`Error::RowKeyMissing`] when it is encrypted with a key that is not there.
pub async fn copy_state(tx: &mut Tx, to: BuildId, from: BuildId) -> Result<()> {
    if tx.state_keys().is_empty() && tx.execute(&COPY_STATE, values![to, from, MARK.to_vec()]).await? > 0 {
        return Ok(());
    }
    match find_state(tx, from).await? {
        Some(state) => update_state(tx, to, state).await,
        None => Ok(()),
    }
}

/// As [`copy_state`], for somebody who has read whether the state is encrypted
/// ([`PreviousBuild`](crate::workspaces::build_inputs::PreviousBuild)).
///
/// # Errors
/// [`Error::Stale`] when it was encrypted meanwhile.
pub async fn copy_known_state(tx: &mut Tx, to: BuildId, from: BuildId, sealed: Option<bool>) -> Result<()> {
    match sealed {
        None => Ok(()),
        Some(false) if tx.state_keys().is_empty() => {
            tx.execute_pipelined(&COPY_STATE, values![to, from, MARK.to_vec()], true).await
        }
        Some(_) => copy_state(tx, to, from).await,
    }
}

/// Gives a build without a state the one of the build before it; says whether it did (scheduling-and-auth REAP-5).
///
/// # Errors
/// [`Error::RowKeyMissing`] when it is encrypted with a key that is not there.
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

/// Stores the parameters of a build, once.
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
///
/// # Errors
/// Only when the database fails.
pub async fn list_parameters(tx: &mut Tx, id: BuildId) -> Result<BTreeMap<String, String>> {
    let rows = tx.fetch(&LIST_PARAMETERS, values![id]).await?;
    rows.iter().map(|row| Ok((row.get("name")?, read_parameter(row, "value")?))).collect()
}

/// The value of a parameter, which in this result is called `called`.
pub(crate) fn read_parameter(row: &Row, called: &'static str) -> Result<String> {
    row.open_text("value", called)?.ok_or_else(|| row.corrupt(called, "null"))
}
