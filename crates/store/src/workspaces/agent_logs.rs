//! Log lines of agents and their sources. A batch is one row, whatever its size (agent 2.6).

use coder_domain::ids::{AgentId, LogSourceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Column as _, Row, Tx, clean, record, sql, statements, to_json, values};
use crate::jobs::logs::Level;

/// Bytes of output that one agent may store, as on the official server.
pub const MAX_BYTES: i64 = 1 << 20;
/// Lines that one agent may store.
pub const MAX_LINES: i64 = 65_536;
/// Sources that one agent may have beside its scripts.
pub const MAX_SOURCES: i64 = 64;
/// Rows of one page.
const PAGE_ROWS: i64 = 64;

/// A line without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAgentLogLine {
    /// How important it is.
    pub level: Level,
    /// The text, without the line end.
    pub output: String,
}

/// A stored line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLogLine {
    /// Its number in the agent's log, from 1.
    pub id: i64,
    /// When the server got it.
    pub created_at: Timestamp,
    /// Where it is from.
    pub source_id: LogSourceId,
    /// The line.
    pub line: NewAgentLogLine,
}

/// How a line looks inside a batch.
#[derive(Serialize, Deserialize)]
struct PackedAgentLogLine {
    l: Level,
    o: String,
}

/// What came of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentLogOutcome {
    /// The lines are stored; the number of the first one.
    Stored(i64),
    /// They do not fit; the log is full from now on. Says whether it was not before.
    Overflowed(bool),
}

record! {
    /// A source of logs.
    pub struct LogSource {
        /// Its agent.
        pub agent_id: AgentId,
        /// Id.
        pub id: LogSourceId,
        /// For people.
        pub display_name: String,
        /// URL or emoji path.
        pub icon: String,
        /// When it was made.
        pub created_at: Timestamp = "created_us",
    }
}

statements! { "workspace_agent_logs";
    COUNT = sql("update workspace_agents set logs_last_id = logs_last_id + $2, logs_bytes = logs_bytes + $3
        where id = $1 and not deleted and not logs_overflowed and logs_bytes + $3 <= $4 and logs_last_id + $2 <= $5
        returning logs_last_id");
    OVERFLOW = sql("update workspace_agents set logs_overflowed = true where id = $1 and not logs_overflowed");
    INSERT = sql("insert into workspace_agent_logs (agent_id, first_id, last_id, source_id, created_us, lines)
        values ($1, $2, $3, $4, $5, $6)");
    LIST = sql("select agent_id || ' ' || cast(first_id as text) as sealed_id, first_id, source_id, created_us, lines
        from workspace_agent_logs where agent_id = $1 and last_id > $2 order by first_id limit $3");
    INSERT_SOURCE = sql("insert into workspace_agent_log_sources (agent_id, id, display_name, icon, created_us)
        select $1, $2, $3, $4, $5 where (select count(*) from workspace_agent_log_sources where agent_id = $1) < $6
        on conflict (agent_id, id) do nothing");
    LIST_SOURCES = sql("select agent_id, id, display_name, icon, created_us from workspace_agent_log_sources
        where agent_id in (select value from json_each($1)) order by agent_id, created_us, id");
    /// Logs of agents whose workspace has a later build.
    PURGE = sql("delete from workspace_agent_logs where created_us < $1 and agent_id in (
        select agent.id from workspace_agents as agent
        join workspace_resources as resource on resource.id = agent.resource_id
        join workspace_builds as build on build.job_id = resource.job_id
        join workspace_builds as later on later.workspace_id = build.workspace_id
            and later.build_number = build.build_number + 1)");
}

/// Stores lines of one source: two statements however many lines there are. All of them, or none when they do not fit.
/// Needs a transaction.
pub async fn append(
    tx: &mut Tx,
    agent: AgentId,
    source: LogSourceId,
    lines: &[NewAgentLogLine],
    now: Timestamp,
) -> Result<AgentLogOutcome> {
    let (count, bytes) = (len(lines.len()), lines.iter().map(|line| len(line.output.len())).sum::<i64>());
    let counted = tx.fetch_opt(&COUNT, values![agent, count, bytes, MAX_BYTES, MAX_LINES]).await?;
    let Some(row) = counted else {
        return Ok(AgentLogOutcome::Overflowed(tx.execute(&OVERFLOW, values![agent]).await? > 0));
    };
    let last: i64 = row.get("logs_last_id")?;
    let first = last - count + 1;
    let pack = |line: &NewAgentLogLine| PackedAgentLogLine { l: line.level, o: clean(line.output.clone()) };
    let packed = to_json(&lines.iter().map(pack).collect::<Vec<_>>());
    let mut row = values![agent, first, last, source, now];
    row.push(tx.sealed("workspace_agent_logs", "lines", &format!("{agent} {first}"), packed.to_value()));
    tx.execute(&INSERT, row).await?;
    Ok(AgentLogOutcome::Stored(first))
}

/// The lines after number `after`, in order. Fewer lines than there are do not mean the end; an empty answer does.
///
/// # Errors
/// [`crate::Error::Corrupt`].
pub async fn list(tx: &mut Tx, agent: AgentId, after: i64) -> Result<Vec<AgentLogLine>> {
    let after = after.max(0);
    let rows = tx.fetch(&LIST, values![agent, after, PAGE_ROWS]).await?;
    let mut lines = Vec::new();
    for row in &rows {
        lines.extend(unpack(row)?.into_iter().filter(|line| line.id > after));
    }
    Ok(lines)
}

fn unpack(row: &Row) -> Result<Vec<AgentLogLine>> {
    let first: i64 = row.get("first_id")?;
    let (created_at, source_id): (Timestamp, LogSourceId) = (row.get("created_us")?, row.get("source_id")?);
    let packed: Vec<PackedAgentLogLine> = row.open_json("lines")?.unwrap_or_default();
    let line = |(id, line): (i64, PackedAgentLogLine)| AgentLogLine {
        id,
        created_at,
        source_id,
        line: NewAgentLogLine { level: line.l, output: line.o },
    };
    Ok((first..).zip(packed).map(line).collect())
}

/// Adds a source, unless there is one with this id or there are too many.
///
/// # Errors
/// [`crate::Error::Reference`] when the agent is missing.
pub async fn insert_source(tx: &mut Tx, source: &LogSource) -> Result<()> {
    let LogSource { agent_id, id, display_name, icon, created_at } = source.clone();
    let row = values![agent_id, id, display_name, icon, created_at, MAX_SOURCES];
    tx.execute(&INSERT_SOURCE, row).await.map(|_| ())
}

/// The sources of these agents beside their scripts, the oldest first.
pub async fn list_sources(tx: &mut Tx, agents: &[AgentId]) -> Result<Vec<LogSource>> {
    let rows = tx.fetch(&LIST_SOURCES, vec![crate::engine::list(agents.iter().copied())]).await?;
    rows.iter().map(LogSource::from_row).collect()
}

/// Removes older lines of agents whose workspace was built again.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}

fn len(count: usize) -> i64 {
    i64::try_from(count).expect("a count in memory is below 2^63")
}
