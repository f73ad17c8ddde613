//! What followers of job logs and of agents' logs share.

use coder_domain::ids::UserId;
use coder_wire::budget::Reservation;

use crate::context::App;
use crate::http::text_socket::{SocketError, TextSocket};
use crate::http::upgrade::WebSocketConnection;
use crate::network::reading::Reading;

/// Why following ended before the log did.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("the database failed")]
    Store(#[from] coder_store::Error),
    #[error("a line could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// A client that follows a log.
pub(super) struct LogFollower {
    pub(super) socket: TextSocket,
    /// Memory of the user for what was read and not sent yet.
    pub(super) memory: Reservation,
    /// The connection is listed as long as this lives.
    _reading: Reading,
}

impl LogFollower {
    pub(super) async fn open(
        app: &App,
        user: UserId,
        reading: Reading,
        connection: WebSocketConnection,
    ) -> Self {
        let (stop, revoked) = (app.lifecycle.soft().clone(), reading.revoked.clone());
        let socket = TextSocket::new(connection, stop, revoked).await;
        let memory = app.memory.holder(user.0.as_u128()).memory().reserve();
        Self { socket, memory, _reading: reading }
    }

    /// Closes the connection. Returns an error that is the server's.
    pub(super) async fn close(self, result: Result<(), FollowError>) -> Result<(), FollowError> {
        match result {
            Ok(()) => self.socket.close(None).await,
            Err(FollowError::Socket(error)) => self.socket.close(Some(&error)).await,
            Err(error) => {
                self.socket.close(Some(&error)).await;
                return Err(error);
            }
        }
        Ok(())
    }
}
