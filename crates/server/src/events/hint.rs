//! The hints that servers on one database exchange: a letter and an id each, separated by spaces. A hint holds no data and no
//! secret. The receiver reads the database.

use coder_domain::ids::{AgentId, DaemonId, JobId, KeyId, OrganizationId, UserId, WorkspaceId};
use uuid::Uuid;

/// One object that other servers should read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hint {
    /// A job was inserted.
    Posted(JobId),
    /// A running job was canceled.
    Canceled(JobId),
    /// A server ended a job.
    Ended(JobId),
    /// A followed job has new lines, or another state.
    Changed(JobId),
    /// The sender has a follower of this job: send [`Self::Changed`].
    Followed(JobId),
    /// A daemon was drained or undrained.
    Drained(DaemonId),
    /// A connection of a daemon ended.
    Left(DaemonId),
    /// A key was deleted, expired, or changed.
    Key(KeyId),
    /// The rights of a user changed.
    User(UserId),
    /// A token of a user was deleted.
    Tokens(UserId),
    /// An organization was removed.
    Organization(OrganizationId),
    /// A workspace, its latest build, or what its agents report changed.
    Workspace(WorkspaceId),
    /// An agent has new log lines.
    AgentLogs(AgentId),
    /// An agent has new values of metadata.
    AgentMetadata(AgentId),
    /// Hints were lost: read everything.
    Everything,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id of the sending server process.
    pub by: Uuid,
    /// The hints; none in a heartbeat.
    pub hints: Vec<Hint>,
}

impl Hint {
    /// The text form.
    #[must_use]
    pub fn write(self) -> String {
        let (letter, id) = match self {
            Self::Posted(id) => ('p', id.0),
            Self::Canceled(id) => ('c', id.0),
            Self::Ended(id) => ('e', id.0),
            Self::Changed(id) => ('l', id.0),
            Self::Followed(id) => ('f', id.0),
            Self::Drained(id) => ('d', id.0),
            Self::Left(id) => ('g', id.0),
            Self::Key(id) => ('k', id.0),
            Self::User(id) => ('u', id.0),
            Self::Tokens(id) => ('t', id.0),
            Self::Organization(id) => ('o', id.0),
            Self::Workspace(id) => ('w', id.0),
            Self::AgentLogs(id) => ('j', id.0),
            Self::AgentMetadata(id) => ('m', id.0),
            Self::Everything => ('a', Uuid::nil()),
        };
        format!("{letter}{}", id.simple())
    }

    /// Reads the text form. `None` for hints of a newer release, and for invalid text.
    #[must_use]
    pub fn read(word: &str) -> Option<Self> {
        let (letter, id) = word.split_at_checked(1)?;
        let id = Uuid::try_parse(id).ok().filter(|_| id.len() == 32)?;
        Some(match letter {
            "p" => Self::Posted(JobId(id)),
            "c" => Self::Canceled(JobId(id)),
            "e" => Self::Ended(JobId(id)),
            "l" => Self::Changed(JobId(id)),
            "f" => Self::Followed(JobId(id)),
            "d" => Self::Drained(DaemonId(id)),
            "g" => Self::Left(DaemonId(id)),
            "k" => Self::Key(KeyId(id)),
            "u" => Self::User(UserId(id)),
            "t" => Self::Tokens(UserId(id)),
            "o" => Self::Organization(OrganizationId(id)),
            "w" => Self::Workspace(WorkspaceId(id)),
            "j" => Self::AgentLogs(AgentId(id)),
            "m" => Self::AgentMetadata(AgentId(id)),
            "a" => Self::Everything,
            _ => return None,
        })
    }
}

/// Messages of at most `longest` bytes with all hints. A message without hints is a heartbeat.
#[must_use]
pub fn write(by: Uuid, hints: impl IntoIterator<Item = Hint>, longest: usize) -> Vec<String> {
    let head = by.simple().to_string();
    let mut messages = vec![head.clone()];
    for word in hints.into_iter().map(Hint::write) {
        let room = messages.last().is_some_and(|message| message.len() + 1 + word.len() <= longest);
        if !room {
            messages.push(head.clone());
        }
        if let Some(message) = messages.last_mut() {
            message.push(' ');
            message.push_str(&word);
        }
    }
    messages
}

/// Reads a message; `None` when it is invalid.
#[must_use]
pub fn read(message: &str) -> Option<Message> {
    let mut words = message.split(' ');
    let by = words.next().filter(|word| word.len() == 32)?;
    Some(Message { by: Uuid::try_parse(by).ok()?, hints: words.filter_map(Hint::read).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hints_arrive_in_messages_of_bounded_length() {
        let by = Uuid::new_v4();
        let mut hints: Vec<_> = (0..300).map(|_| Hint::Posted(JobId::random())).collect();
        hints.extend([
            Hint::Canceled(JobId::random()),
            Hint::Ended(JobId::random()),
            Hint::Changed(JobId::random()),
            Hint::Followed(JobId::random()),
            Hint::Drained(DaemonId::random()),
            Hint::Left(DaemonId::random()),
            Hint::Key(KeyId::random()),
            Hint::User(UserId::random()),
            Hint::Tokens(UserId::random()),
            Hint::Organization(OrganizationId::random()),
            Hint::Workspace(WorkspaceId::random()),
            Hint::AgentLogs(AgentId::random()),
            Hint::AgentMetadata(AgentId::random()),
            Hint::Everything,
        ]);
        let messages = write(by, hints.clone(), 1000);
        assert!(messages.len() > 10 && messages.iter().all(|message| message.len() <= 1000));
        let heard: Vec<_> = messages.iter().flat_map(|message| read(message).unwrap().hints).collect();
        assert_eq!(heard, hints);
        assert_eq!(write(by, [], 1000).len(), 1, "a heartbeat");
    }

    #[test]
    fn nonsense_is_passed_over() {
        let by = Uuid::new_v4();
        let good = Hint::Key(KeyId::random());
        let message = format!("{} x k {} kk z{} \u{e9}1 p123", by.simple(), good.write(), by.simple());
        assert_eq!(read(&message), Some(Message { by, hints: vec![good] }));
        for message in ["", " ", "hello", "{\"a\":1}", &by.to_string()] {
            assert_eq!(read(message), None, "{message}");
        }
    }
}
