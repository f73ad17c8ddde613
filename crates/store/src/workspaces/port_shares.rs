//! Ports of workspaces that others may open.

use coder_domain::ids::WorkspaceId;

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};

/// Shares that one workspace may have.
pub const MAX_SHARES: i64 = 1000;

record! {
    /// A shared port.
    pub struct PortShare {
        /// Whose.
        pub workspace_id: WorkspaceId,
        /// The agent that listens.
        pub agent_name: String,
        /// The port.
        pub port: i64,
        /// `authenticated`, `organization` or `public`.
        pub share_level: String,
        /// `http` or `https`.
        pub protocol: String,
    }
}

statements! { "workspace_port_shares";
    UPSERT = sql("insert into workspace_port_shares (workspace_id, agent_name, port, share_level, protocol)
        select $1, $2, $3, $4, $5 where (select count(*) from workspace_port_shares where workspace_id = $1) < $6
        on conflict (workspace_id, agent_name, port)
        do update set share_level = excluded.share_level, protocol = excluded.protocol");
    LIST = sql("select workspace_id, agent_name, port, share_level, protocol from workspace_port_shares
        where workspace_id = $1 order by agent_name, port");
    DELETE = sql("delete from workspace_port_shares where workspace_id = $1 and agent_name = $2 and port = $3");
}

/// Shares a port, or changes how it is shared. Says whether there was room.
///
/// # Errors
/// [`crate::Error::Reference`] when the workspace is missing.
pub async fn upsert(tx: &mut Tx, share: &PortShare) -> Result<bool> {
    let PortShare { workspace_id, agent_name, port, share_level, protocol } = share.clone();
    let row = values![workspace_id, agent_name, port, share_level, protocol, MAX_SHARES];
    Ok(tx.execute(&UPSERT, row).await? > 0)
}

/// The shared ports of a workspace.
pub async fn list(tx: &mut Tx, workspace: WorkspaceId) -> Result<Vec<PortShare>> {
    tx.fetch(&LIST, values![workspace]).await?.iter().map(PortShare::from_row).collect()
}

/// Ends the sharing of a port.
///
/// # Errors
/// [`crate::Error::Stale`] when it is not shared.
pub async fn delete(tx: &mut Tx, workspace: WorkspaceId, agent_name: &str, port: i64) -> Result<()> {
    tx.change_one(&DELETE, values![workspace, agent_name.to_owned(), port]).await
}
