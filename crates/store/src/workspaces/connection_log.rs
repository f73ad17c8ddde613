//! Sessions that agents report: SSH, editors and terminals.

use coder_domain::ids::AgentId;
use jiff::Timestamp;
use uuid::Uuid;

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};

/// Sessions of one agent that are kept.
pub const MAX_SESSIONS: i64 = 10_000;

record! {
    /// A session.
    pub struct Session {
        /// The agent that reports it.
        pub agent_id: AgentId,
        /// Given by the agent.
        pub id: Uuid,
        /// `ssh`, `vscode`, `jetbrains` or `reconnecting_pty`.
        pub kind: String = "type",
        /// The address of the other side, as the agent sees it.
        pub ip: String,
        /// When it began.
        pub connected_at: Timestamp = "connected_us",
        /// When it ended.
        pub disconnected_at: Option<Timestamp> = "disconnected_us",
        /// The exit code of its command.
        pub status_code: i64,
        /// Why it ended.
        pub reason: String,
    }
}

statements! { "workspace_connections";
    INSERT = sql("insert into workspace_connections (agent_id, id, type, ip, connected_us, status_code, reason)
        select $1, $2, $3, $4, $5, 0, '' where (select count(*) from workspace_connections where agent_id = $1) < $6
        on conflict (agent_id, id) do nothing");
    END = sql("update workspace_connections set disconnected_us = $3, status_code = $4, reason = $5
        where agent_id = $1 and id = $2 and disconnected_us is null");
    LIST = sql("select agent_id, id, type, ip, connected_us, disconnected_us, status_code, reason
        from workspace_connections where agent_id = $1 order by connected_us, id");
    PURGE = sql("delete from workspace_connections where connected_us < $1");
}

/// A session has begun. Nothing is stored when the agent has reported too many, or the same one before.
///
/// # Errors
/// [`crate::Error::Reference`] when the agent is missing.
pub async fn insert(
    tx: &mut Tx,
    agent: AgentId,
    id: Uuid,
    kind: &str,
    ip: &str,
    connected_at: Timestamp,
) -> Result<()> {
    let row = values![agent, id, kind.to_owned(), ip.to_owned(), connected_at, MAX_SESSIONS];
    tx.execute(&INSERT, row).await.map(|_| ())
}

/// A session has ended.
///
/// # Errors
/// Only when the database fails.
pub async fn update_ended(
    tx: &mut Tx,
    agent: AgentId,
    id: Uuid,
    disconnected_at: Timestamp,
    status_code: i64,
    reason: &str,
) -> Result<()> {
    let row = values![agent, id, disconnected_at, status_code, reason.to_owned()];
    tx.execute(&END, row).await.map(|_| ())
}

/// The sessions of an agent, the oldest first.
///
/// # Errors
/// Only when the database fails.
pub async fn list(tx: &mut Tx, agent: AgentId) -> Result<Vec<Session>> {
    tx.fetch(&LIST, values![agent]).await?.iter().map(Session::from_row).collect()
}

/// Removes old sessions.
///
/// # Errors
/// Only when the database fails.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
