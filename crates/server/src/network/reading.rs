//! Streams over which a user reads for long: followed logs, and what is watched. Rights are looked up when one begins. It ends when
//! they may have changed, and a reader who still has them begins again.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::revoke;
use super::user_connections::{Target, UserConnection, UserRegistration};
use crate::authn::session::signed_out;
use crate::context::App;
use crate::http::websocket_limit::WebSocketPermit;
use crate::http::{Caller, Result};

/// The right to one such stream, until it is dropped.
pub struct Reading {
    /// Fires when it has ended.
    pub revoked: CancellationToken,
    _permit: WebSocketPermit,
    _registration: UserRegistration,
}

impl Reading {
    /// # Errors
    /// 429 when the user has too many; 401 when the session or token has ended since the request was authenticated.
    pub async fn begin(app: &App, caller: &Caller) -> Result<Self> {
        let permit = app.websockets.admit(caller.user.id)?;
        let ended = || signed_out("The token is unknown or has been revoked.");
        let connection = UserConnection {
            user: caller.user.id,
            token: Some(Arc::from(caller.key.id.as_str())),
            target: Target::Reading,
            revoked: CancellationToken::new(),
        };
        let registration = app.network.users.add(connection.clone()).ok_or_else(ended)?;
        if !revoke::is_allowed(app, &connection).await? {
            return Err(ended());
        }
        Ok(Self { revoked: connection.revoked, _permit: permit, _registration: registration })
    }
}
