//! What users have open here: connections to the coordinator, terminals, connections of apps, and what is followed. Each ends when
//! the right to it ends.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use coder_domain::ids::{AgentId, UserId};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::apps::grant::AppRequest;

/// What a connection reaches.
#[derive(Clone, Debug)]
pub enum Target {
    /// All agents of the user's workspaces.
    OwnAgents,
    /// One agent.
    Agent(AgentId),
    /// A log or something that is watched.
    Reading,
    /// An app.
    App(Arc<AppRequest>),
}

/// A user's connection.
#[derive(Clone, Debug)]
pub struct UserConnection {
    /// The user; the nil id for a visitor of an app who is not signed in.
    pub user: UserId,
    /// The id of the token that it authenticated with; none for a visitor who is not signed in.
    pub token: Option<Arc<str>>,
    /// What it may reach.
    pub target: Target,
    /// Fires when it may not go on.
    pub revoked: CancellationToken,
}

/// The list. Clones are the same list.
#[derive(Clone, Debug)]
pub struct UserConnections {
    open: Arc<Mutex<Open>>,
    most: usize,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, UserConnection>,
    counts: HashMap<UserId, usize>,
}

/// A connection in the list, until it is dropped.
#[derive(Debug)]
pub struct UserRegistration {
    list: UserConnections,
    id: u64,
}

impl UserConnection {
    const fn is_counted(&self) -> bool {
        matches!(self.target, Target::OwnAgents | Target::Agent(_))
    }
}

impl UserConnections {
    /// An empty list with at most `most` connections of each user to agents. Others are bounded elsewhere.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { open: Arc::default(), most }
    }

    /// Adds a connection; none when its user has too many.
    #[must_use]
    pub fn add(&self, connection: UserConnection) -> Option<UserRegistration> {
        let mut open = self.open();
        if connection.is_counted() {
            let count = open.counts.entry(connection.user).or_insert(0);
            if *count >= self.most {
                return None;
            }
            *count += 1;
        }
        let id = open.next;
        open.next += 1;
        open.connections.insert(id, connection);
        drop(open);
        Some(UserRegistration { list: self.clone(), id })
    }

    /// The connections that `is` selects.
    #[must_use]
    pub fn matching(&self, is: impl Fn(&UserConnection) -> bool) -> Vec<UserConnection> {
        self.open().connections.values().filter(|connection| is(connection)).cloned().collect()
    }

    /// The tokens that connections authenticated with.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        let tokens: BTreeSet<_> =
            self.open().connections.values().filter_map(|connection| connection.token.clone()).collect();
        tokens.into_iter().map(|token| token.to_string()).collect()
    }

    /// Whether a user has a connection here.
    #[must_use]
    pub fn has_user(&self, user: UserId) -> bool {
        let open = self.open();
        open.counts.contains_key(&user) || open.connections.values().any(|connection| connection.user == user)
    }

    /// Connections to agents now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open().counts.values().sum()
    }

    /// Whether nobody is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

impl Drop for UserRegistration {
    fn drop(&mut self) {
        let mut open = self.list.open();
        let Some(connection) = open.connections.remove(&self.id).filter(UserConnection::is_counted) else {
            return;
        };
        if let Some(count) = open.counts.get_mut(&connection.user) {
            *count -= 1;
            if *count == 0 {
                open.counts.remove(&connection.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(user: UserId) -> UserConnection {
        let token = Some("t".into());
        UserConnection { user, token, target: Target::OwnAgents, revoked: CancellationToken::new() }
    }

    #[test]
    fn user_has_a_bounded_number_of_connections() {
        let (list, user, other) = (UserConnections::new(2), UserId::random(), UserId::random());
        let (first, _second) = (list.add(connection(user)), list.add(connection(user)));
        assert!(list.add(connection(user)).is_none());
        let kept = list.add(connection(other));
        assert!(kept.is_some(), "the limit is one user's");
        drop(first);
        assert!(list.add(connection(user)).is_some());
        drop(kept);
        assert!(!list.has_user(other) && list.has_user(user));
        assert_eq!(list.tokens(), ["t"]);
    }

    #[test]
    fn only_connections_to_agents_are_counted() {
        let (list, user) = (UserConnections::new(2), UserId::random());
        let reading = || UserConnection { target: Target::Reading, token: None, ..connection(user) };
        let readings: Vec<_> = (0..3).map(|_| list.add(reading()).unwrap()).collect();
        assert!(list.is_empty() && list.tokens().is_empty());
        assert!(list.has_user(user) && !list.has_user(UserId::random()));
        let agents: Vec<_> = (0..2).map(|_| list.add(connection(user)).unwrap()).collect();
        let to_agent = UserConnection { target: Target::Agent(AgentId::random()), ..connection(user) };
        assert!(list.add(to_agent).is_none());
        assert_eq!((list.len(), list.is_empty()), (2, false));
        assert_eq!(list.matching(|one| matches!(one.target, Target::Reading)).len(), 3);
        drop(readings);
        assert_eq!((list.len(), list.matching(|_| true).len()), (2, 2));
        drop(agents);
        assert!(list.is_empty() && !list.has_user(user) && list.open().counts.is_empty());
    }
}
