//! The state that the handles and the task of a session share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::state::State;
use crate::budget::Account;

pub(super) struct Inner {
    pub(super) state: Mutex<State>,
    pub(super) account: Option<Account>,
    pub(super) large: Semaphore,
    /// The state changed in a way that callers of `open`, `accept`, `closed` or `close` may wait for.
    pub(super) changed: Notify,
}

impl Inner {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere does not make the state wrong: every change is completed under one lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
