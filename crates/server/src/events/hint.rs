//! What servers on one database tell each other, and how it is written: a letter and an id for each thing, with blanks
//! between. Nothing in it is a fact or a secret; whoever hears it reads the database.

use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use uuid::Uuid;

/// One thing that another server may want to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hint {
    /// A job waits.
    Posted(JobId),
    /// Somebody asked to stop a job that a daemon has.
    Canceled(JobId),
    /// The server ended a job on its own account.
    Ended(JobId),
    /// A job that somebody follows has new lines, or another state.
    Changed(JobId),
    /// Somebody follows a job here: tell when it changes.
    Followed(JobId),
    /// A daemon was asked to leave.
    Drained(DaemonId),
    /// A connection of a daemon has ended.
    Left(DaemonId),
    /// A key was deleted, has expired, or has other terms now.
    Key(KeyId),
    /// What a user may do has changed.
    User(UserId),
    /// A token of a user is gone.
    Tokens(UserId),
    /// An organization was removed.
    Organization(OrganizationId),
    /// Something was not told: look at everything.
    Everything,
}

/// What one message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Which server process said it.
    pub by: Uuid,
    /// What it is about; nothing in a sign of life.
    pub hints: Vec<Hint>,
}

impl Hint {
    /// As one word.
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
            Self::Everything => ('a', Uuid::nil()),
        };
        format!("{letter}{}", id.simple())
    }

    /// None for what a newer release says, and for nonsense.
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
            "a" => Self::Everything,
            _ => return None,
        })
    }
}

/// Messages of at most `longest` bytes that say all of it; one without hints is a sign of life.
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

/// Reads a message; none when it is no message of ours.
#[must_use]
pub fn read(message: &str) -> Option<Said> {
    let mut words = message.split(' ');
    let by = words.next().filter(|word| word.len() == 32)?;
    Some(Said { by: Uuid::try_parse(by).ok()?, hints: words.filter_map(Hint::read).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_said_is_heard_in_messages_that_fit() {
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
            Hint::Everything,
        ]);
        let messages = write(by, hints.clone(), 1000);
        assert!(messages.len() > 10 && messages.iter().all(|message| message.len() <= 1000));
        let heard: Vec<_> = messages.iter().flat_map(|message| read(message).unwrap().hints).collect();
        assert_eq!(heard, hints);
        assert_eq!(write(by, [], 1000).len(), 1, "a sign of life");
    }

    #[test]
    fn nonsense_is_passed_over() {
        let by = Uuid::new_v4();
        let good = Hint::Key(KeyId::random());
        let message = format!("{} x k {} kk z{} \u{e9}1 p123", by.simple(), good.write(), by.simple());
        assert_eq!(read(&message), Some(Said { by, hints: vec![good] }));
        for message in ["", " ", "hello", "{\"a\":1}", &by.to_string()] {
            assert_eq!(read(message), None, "{message}");
        }
    }
}
