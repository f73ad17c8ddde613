//! Open sessions of users by kind, for the statistics (agent 2.9, 4.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use coder_wire::messages::coder::agent::v2::connection::Type;
use tokio::sync::Notify;

/// Names the kind of an SSH session; removed from the environment.
pub(crate) const TYPE_VARIABLE: &str = "CODER_SSH_SESSION_TYPE";

/// The kind of client that a user has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ssh,
    VsCode,
    JetBrains,
    ReconnectingPty,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Ssh, Self::VsCode, Self::JetBrains, Self::ReconnectingPty];

    /// The kind that a client names itself. Case does not matter.
    pub(crate) fn from_variable(value: &str) -> Self {
        match value.to_ascii_lowercase().as_str() {
            "vscode" => Self::VsCode,
            "jetbrains" => Self::JetBrains,
            _ => Self::Ssh,
        }
    }

    /// As connection reports name it.
    pub(crate) fn report_type(self) -> Type {
        match self {
            Self::Ssh => Type::Ssh,
            Self::VsCode => Type::Vscode,
            Self::JetBrains => Type::Jetbrains,
            Self::ReconnectingPty => Type::ReconnectingPty,
        }
    }
}

/// How many are open.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Arc<[AtomicI64; 4]>,
    ended: Arc<Notify>,
}

impl Sessions {
    /// Counts a session for as long as the result exists.
    pub(crate) fn enter(&self, kind: Kind) -> OpenSession {
        self.open[kind as usize].fetch_add(1, Ordering::SeqCst);
        OpenSession { open: Arc::clone(&self.open), ended: Arc::clone(&self.ended), kind }
    }

    /// Waits until no session is open.
    pub(crate) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if Kind::ALL.iter().all(|kind| self.count(*kind) == 0) {
                return;
            }
            ended.await;
        }
    }

    /// Open sessions of a kind.
    pub(crate) fn count(&self, kind: Kind) -> i64 {
        self.open[kind as usize].load(Ordering::SeqCst)
    }
}

/// A counted session.
#[derive(Debug)]
pub(crate) struct OpenSession {
    open: Arc<[AtomicI64; 4]>,
    ended: Arc<Notify>,
    kind: Kind,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.open[self.kind as usize].fetch_sub(1, Ordering::SeqCst);
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_count_while_they_are_open() {
        let sessions = Sessions::default();
        let kind = Kind::from_variable("VSCode");
        let (first, second) = (sessions.enter(kind), sessions.enter(kind));
        assert_eq!((sessions.count(Kind::VsCode), sessions.count(Kind::Ssh)), (2, 0));
        drop(first);
        drop(second);
        assert_eq!(sessions.count(Kind::VsCode), 0);
        assert_eq!(
            (Kind::from_variable("JETBRAINS"), Kind::from_variable("other")),
            (Kind::JetBrains, Kind::Ssh)
        );
    }
}
