//! What agents report about themselves: startup, lifecycle, metadata, scripts, and the health of their apps.

use coder_domain::ids::{AgentId, AppId, ScriptId};
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, batch, list as list_value, record, sql, statements, values};

/// What an agent says when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// Its version.
    pub version: String,
    /// Its protocol version.
    pub api_version: String,
    /// The directory it works in, with variables expanded.
    pub expanded_directory: String,
    /// Where it runs, for example `envbuilder`.
    pub subsystems: Vec<String>,
}

/// When a lifecycle state began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleChange {
    /// The state.
    pub state: String,
    /// Whether the scripts began with it.
    pub starts: bool,
    /// Whether the scripts ended with it.
    pub ends_start: bool,
    /// When.
    pub changed_at: Timestamp,
}

record! {
    /// The newest value of a metadata item.
    pub struct MetadataValue {
        /// Its agent.
        pub agent_id: AgentId,
        /// The name of the item.
        pub key: String,
        /// The value.
        pub value: String,
        /// Why there is no value.
        pub error: String,
        /// When the server got it.
        pub collected_at: Timestamp = "collected_us",
    }
}

record! {
    /// The newest run of a script.
    pub struct ScriptTiming {
        /// Its agent.
        pub agent_id: AgentId,
        /// The script.
        pub script_id: ScriptId,
        /// `start`, `stop` or `cron`.
        pub stage: String,
        /// `ok`, `exit_failure`, `timed_out` or `pipes_left_open`.
        pub status: String,
        /// Its exit code.
        pub exit_code: i64,
        /// When it began.
        pub started_at: Timestamp = "started_us",
        /// When it ended.
        pub ended_at: Timestamp = "ended_us",
    }
}

statements! { "workspace_agent_reports";
    STARTUP = sql("update workspace_agents set version = $2, api_version = $3, expanded_directory = $4, subsystems = $5,
        updated_us = $6 where id = $1 and not deleted");
    /// A state that starts clears the end of an earlier start; one that ends a start has a beginning in any case.
    LIFECYCLE = sql("update workspace_agents set lifecycle_state = $2,
        started_us = case when cast($3 as boolean) then $5 when cast($4 as boolean) then coalesce(started_us, $5) else started_us end,
        ready_us = case when cast($3 as boolean) then null when cast($4 as boolean) then $5 else ready_us end,
        updated_us = $6 where id = $1 and not deleted");
    APP_HEALTH = sql("update workspace_apps set health = $2
        where id in (select value from json_each($1)) and health <> $2");
    PUT_METADATA = sql("insert into workspace_agent_metadata (agent_id, key, value, error, collected_us)
        select json_extract(item.value, '$.agent_id'), json_extract(item.value, '$.key'),
        json_extract(item.value, '$.value'), json_extract(item.value, '$.error'),
        cast(json_extract(item.value, '$.collected_us') as bigint) from json_each($1) as item
        where exists (select 1 from workspace_agents as agent where agent.id = json_extract(item.value, '$.agent_id'))
        on conflict (agent_id, key) do update set value = excluded.value, error = excluded.error,
        collected_us = excluded.collected_us");
    LIST_METADATA = sql("select agent_id, key, value, error, collected_us from workspace_agent_metadata
        where agent_id = $1 order by key");
    PUT_TIMING = sql("insert into workspace_agent_script_timings (agent_id, script_id, stage, status, exit_code, started_us,
        ended_us) values ($1, $2, $3, $4, $5, $6, $7)
        on conflict (agent_id, script_id, stage) do update set status = excluded.status,
        exit_code = excluded.exit_code, started_us = excluded.started_us, ended_us = excluded.ended_us");
    LIST_TIMINGS = sql("select agent_id, script_id, stage, status, exit_code, started_us, ended_us
        from workspace_agent_script_timings where agent_id in (select value from json_each($1))
        order by started_us, agent_id, script_id, stage");
}

/// Stores what an agent says when it starts.
///
/// # Errors
/// [`crate::Error::Stale`] when the agent is gone.
pub async fn update_startup(tx: &mut Tx, agent: AgentId, startup: &Startup, now: Timestamp) -> Result<()> {
    let Startup { version, api_version, expanded_directory, subsystems } = startup.clone();
    tx.change_one(&STARTUP, values![agent, version, api_version, expanded_directory, subsystems, now]).await
}

/// Stores a lifecycle state.
///
/// # Errors
/// [`crate::Error::Stale`] when the agent is gone.
pub async fn update_lifecycle(
    tx: &mut Tx,
    agent: AgentId,
    change: &LifecycleChange,
    now: Timestamp,
) -> Result<()> {
    let LifecycleChange { state, starts, ends_start, changed_at } = change.clone();
    tx.change_one(&LIFECYCLE, values![agent, state, starts, ends_start, changed_at, now]).await
}

/// Stores the same health for several apps; returns how many had another one.
pub async fn update_app_health(tx: &mut Tx, apps: &[AppId], health: &str) -> Result<u64> {
    let mut row = vec![list_value(apps.iter().copied())];
    row.extend(values![health.to_owned()]);
    tx.execute(&APP_HEALTH, row).await
}

/// Stores values of any number of agents with one statement. Those of removed agents are left out.
pub async fn upsert_metadata(tx: &mut Tx, items: &[MetadataValue]) -> Result<()> {
    let rows = batch(MetadataValue::COLUMNS, items.iter().map(MetadataValue::values));
    tx.execute(&PUT_METADATA, vec![rows]).await.map(|_| ())
}

/// The values of an agent, by key.
pub async fn list_metadata(tx: &mut Tx, agent: AgentId) -> Result<Vec<MetadataValue>> {
    tx.fetch(&LIST_METADATA, values![agent]).await?.iter().map(MetadataValue::from_row).collect()
}

/// Stores the newest run of a script.
///
/// # Errors
/// [`crate::Error::Reference`] when the agent is missing.
pub async fn upsert_script_timing(tx: &mut Tx, timing: &ScriptTiming) -> Result<()> {
    let ScriptTiming { agent_id, script_id, stage, status, exit_code, started_at, ended_at } = timing.clone();
    let row = values![agent_id, script_id, stage, status, exit_code, started_at, ended_at];
    tx.execute(&PUT_TIMING, row).await.map(|_| ())
}

/// The newest runs of all scripts of these agents.
pub async fn list_script_timings(tx: &mut Tx, agents: &[AgentId]) -> Result<Vec<ScriptTiming>> {
    let rows = tx.fetch(&LIST_TIMINGS, vec![list_value(agents.iter().copied())]).await?;
    rows.iter().map(ScriptTiming::from_row).collect()
}
