//! Users whose connections are checked next.

use std::collections::BTreeSet;
use std::sync::Arc;

use coder_domain::ids::UserId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The users whose connections are checked next, because a token of theirs ended. Each build replaces a token, so many are
/// checked with one statement.
#[derive(Debug, Default)]
pub struct EndedTokens {
    users: Mutex<BTreeSet<UserId>>,
    /// Wakes the task that checks.
    pub added: Arc<Notify>,
}

impl EndedTokens {
    /// The task checks these too.
    pub fn add(&self, users: impl IntoIterator<Item = UserId>) {
        self.users.lock().extend(users);
        self.added.notify_one();
    }

    /// Removes and returns them.
    pub fn take(&self) -> Vec<UserId> {
        std::mem::take(&mut *self.users.lock()).into_iter().collect()
    }
}
