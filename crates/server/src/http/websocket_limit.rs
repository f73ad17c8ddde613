//! Limits the number of open WebSockets of one user: followed logs, and daemons that joined with the user's token. The limit of
//! connections does not count upgraded ones, because thousands of daemons may share one address.

use std::sync::Arc;

use coder_domain::ids::UserId;
use http::StatusCode;

use super::error::Error;
use super::open_count::{OpenCount, OpenPermit};

/// The open WebSockets of all users of one server.
pub struct WebSocketLimit(Arc<OpenCount<UserId>>);

/// The right to one open WebSocket, until it is dropped.
pub type WebSocketPermit = OpenPermit<UserId>;

impl WebSocketLimit {
    /// At most `most` WebSockets for each user.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self(OpenCount::new(most)))
    }

    /// Admits another WebSocket of this user.
    ///
    /// # Errors
    /// 429 when the user has too many.
    pub fn admit(&self, user: UserId) -> Result<WebSocketPermit, Error> {
        self.0.admit(user).ok_or_else(|| {
            let message = format!("You have {} open WebSockets, which is the limit.", self.0.most());
            Error::new(StatusCode::TOO_MANY_REQUESTS, message)
                .detail("Stop following a log, or join daemons with a provisioner key instead of your token.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_limit() {
        let limit = WebSocketLimit::new(1);
        let (first, second) = (UserId::random(), UserId::random());
        let _held = limit.admit(first).ok().unwrap();
        assert_eq!(limit.admit(first).err().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(limit.admit(second).is_ok());
    }
}
