//! Limits the number of open WebSockets of one user: followed logs, and daemons that joined with the user's token. The limit of
//! connections does not count upgraded ones, because thousands of daemons may share one address.

use std::collections::HashMap;
use std::sync::Arc;

use coder_domain::ids::UserId;
use http::StatusCode;
use parking_lot::Mutex;

use super::error::Error;

/// The open WebSockets of all users of one server.
pub struct WebSocketLimit {
    most: usize,
    open: Mutex<HashMap<UserId, usize>>,
}

/// The right to one open WebSocket, until it is dropped.
pub struct WebSocketPermit {
    limit: Arc<WebSocketLimit>,
    user: UserId,
}

impl WebSocketLimit {
    /// At most `most` WebSockets for each user.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// Admits another WebSocket of this user.
    ///
    /// # Errors
    /// 429 when the user has too many.
    pub fn admit(self: &Arc<Self>, user: UserId) -> Result<WebSocketPermit, Error> {
        let mut open = self.open.lock();
        let count = open.entry(user).or_insert(0);
        if *count >= self.most {
            let message = format!("You have {} open WebSockets, which is the limit.", self.most);
            return Err(Error::new(StatusCode::TOO_MANY_REQUESTS, message).detail(
                "Stop following a log, or join daemons with a provisioner key instead of your token.",
            ));
        }
        *count += 1;
        Ok(WebSocketPermit { limit: Arc::clone(self), user })
    }
}

impl Drop for WebSocketPermit {
    fn drop(&mut self) {
        let mut open = self.limit.open.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_limit_and_closed_websockets_do_not_count() {
        let limit = WebSocketLimit::new(2);
        let (first, second) = (UserId::random(), UserId::random());
        let held: Vec<_> = (0..2).map(|_| limit.admit(first).ok().unwrap()).collect();
        assert_eq!(limit.admit(first).err().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(limit.admit(second).is_ok());
        drop(held);
        assert!(limit.open.lock().is_empty());
        assert!(limit.admit(first).is_ok());
    }
}
