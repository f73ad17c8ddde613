//! The agents that are connected to this process.

use std::collections::HashMap;
use std::sync::Arc;

use coder_domain::ids::AgentId;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A clone is the same list.
#[derive(Clone, Debug, Default)]
pub struct ConnectedAgents(Arc<Mutex<HashMap<AgentId, Entry>>>);

#[derive(Debug)]
struct Entry {
    connection: Uuid,
    close: CancellationToken,
    sessions: SessionCounts,
}

/// Sessions that an agent has reported as open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// VS Code.
    pub vscode: i64,
    /// JetBrains.
    pub jetbrains: i64,
    /// Web terminals.
    pub reconnecting_pty: i64,
    /// SSH.
    pub ssh: i64,
}

/// One connection in the list; it leaves the list when this is dropped.
#[derive(Debug)]
pub struct AgentRegistration {
    list: ConnectedAgents,
    agent: AgentId,
    connection: Uuid,
    close: CancellationToken,
}

impl ConnectedAgents {
    /// Enters a connection. It closes an earlier one of the same agent: an agent has one, and a connection that broke
    /// without a word is still there for a while when the agent comes back.
    #[must_use]
    pub fn register(&self, agent: AgentId) -> AgentRegistration {
        let (connection, close) = (Uuid::new_v4(), CancellationToken::new());
        let entry = Entry { connection, close: close.clone(), sessions: SessionCounts::default() };
        if let Some(earlier) = self.0.lock().insert(agent, entry) {
            earlier.close.cancel();
        }
        AgentRegistration { list: self.clone(), agent, connection, close }
    }

    /// All connected agents.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentId> {
        self.0.lock().keys().copied().collect()
    }

    /// How many agents are connected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether no agent is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the connection of an agent, if it has one here.
    pub fn close(&self, agent: AgentId) {
        if let Some(entry) = self.0.lock().get(&agent) {
            entry.close.cancel();
        }
    }

    /// The open sessions of all connected agents together.
    #[must_use]
    pub fn sessions(&self) -> SessionCounts {
        self.0.lock().values().fold(SessionCounts::default(), |sum, entry| SessionCounts {
            vscode: sum.vscode.saturating_add(entry.sessions.vscode),
            jetbrains: sum.jetbrains.saturating_add(entry.sessions.jetbrains),
            reconnecting_pty: sum.reconnecting_pty.saturating_add(entry.sessions.reconnecting_pty),
            ssh: sum.ssh.saturating_add(entry.sessions.ssh),
        })
    }
}

impl AgentRegistration {
    /// The name of this connection.
    #[must_use]
    pub const fn connection(&self) -> Uuid {
        self.connection
    }

    /// Fires when the connection must end.
    #[must_use]
    pub const fn close(&self) -> &CancellationToken {
        &self.close
    }

    /// Notes the open sessions.
    pub fn set_sessions(&self, sessions: SessionCounts) {
        if let Some(entry) = self.list.0.lock().get_mut(&self.agent)
            && entry.connection == self.connection
        {
            entry.sessions = sessions;
        }
    }
}

impl Drop for AgentRegistration {
    fn drop(&mut self) {
        let mut list = self.list.0.lock();
        if list.get(&self.agent).is_some_and(|entry| entry.connection == self.connection) {
            list.remove(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_connection_closes_the_first_and_stays_in_the_list() {
        let (list, agent) = (ConnectedAgents::default(), AgentId::random());
        let first = list.register(agent);
        let second = list.register(agent);
        assert!(first.close().is_cancelled() && !second.close().is_cancelled());
        first.set_sessions(SessionCounts { ssh: 7, ..SessionCounts::default() });
        assert_eq!(list.sessions(), SessionCounts::default(), "its sessions are over");
        drop(first);
        assert_eq!(list.agents(), [agent]);
        second.set_sessions(SessionCounts { ssh: 2, ..SessionCounts::default() });
        assert_eq!(list.sessions().ssh, 2);
        list.close(agent);
        assert!(second.close().is_cancelled());
        drop(second);
        assert!(list.is_empty());
    }
}
