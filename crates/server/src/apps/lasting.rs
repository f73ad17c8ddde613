//! Ends what outlives the minute of a signed token when its visitor may not open the app any more: upgraded connections at once, and
//! requests and responses that take longer within a further minute.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use coder_domain::apps::may_open;
use coder_domain::rbac::Subject;
use coder_store::{Error as StoreError, Tx};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::grant::{AppRequest, Grant};
use super::resolve::{self, Content};
use crate::context::App;
use crate::events::{Subscription, Topic};
use crate::http::{Error, Result};
use crate::network::revoke;
use crate::network::user_connections::{Target, UserConnection, UserRegistration};
use crate::routes::workspaces::find::object;

/// How often a right is looked up without a cause: a template may lower the level of its apps.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Changes of a workspace within this time are looked at together.
const COALESCE_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a visitor may open an app now.
///
/// # Errors
/// Only when the database fails.
pub async fn may_still_open(
    app: &App,
    tx: &mut Tx,
    request: &AppRequest,
    visitor: Option<&Subject>,
) -> std::result::Result<bool, StoreError> {
    let Some(found) = resolve::find(app, tx, request).await? else { return Ok(false) };
    let Content::App(content) = found.content else { return Ok(false) };
    let rules = app.config.apps.path_rules;
    Ok(may_open(request.access_method.into(), content.level, visitor, object(&found.workspace), rules))
}

/// The right of a visitor to an app.
#[derive(Clone)]
pub(super) struct Right {
    app: App,
    connection: UserConnection,
}

impl Right {
    pub(super) fn of(app: &App, grant: &Grant) -> Self {
        let connection = UserConnection {
            user: grant.user_id,
            token: grant.key_id.as_deref().map(Arc::from),
            target: Target::App(Arc::new(grant.request.clone())),
            revoked: CancellationToken::new(),
        };
        Self { app: app.clone(), connection }
    }

    /// Waits until it has ended, for what only sometimes lasts long: it is looked up once a minute.
    pub(super) async fn ended_slowly(self) {
        loop {
            sleep(LOOK_AGAIN).await;
            if self.has_ended().await {
                return;
            }
        }
    }

    /// Whether it has ended. While the database is unavailable it goes on.
    async fn has_ended(&self) -> bool {
        match revoke::is_allowed(&self.app, &self.connection).await {
            Ok(allowed) => !allowed,
            Err(error) => {
                tracing::debug!(%error, "cannot look up the right of an app's visitor");
                false
            }
        }
    }
}

/// An upgraded connection, which is in the list of connections that end with their right.
pub(super) struct Upgraded {
    right: Right,
    changes: Subscription,
    _registration: UserRegistration,
}

impl Upgraded {
    /// # Errors
    /// 404 when the right has ended since the visitor's token was signed.
    pub(super) async fn begin(right: Right, grant: &Grant) -> Result<Self> {
        let app = &right.app;
        // Subscribed and listed before the look, so that no change is missed.
        let changes = app.events.subscribe(Topic::Workspace(grant.workspace_id));
        let registration = app.network.users.add(right.connection.clone()).ok_or_else(Error::not_found)?;
        if !revoke::is_allowed(app, &right.connection).await? {
            return Err(Error::not_found());
        }
        Ok(Self { right, changes, _registration: registration })
    }

    /// Waits until its right has ended.
    pub(super) async fn ended(mut self) {
        let revoked = self.right.connection.revoked.clone();
        let looking = async {
            loop {
                tokio::select! {
                    () = self.changes.changed() => {}
                    () = sleep(LOOK_AGAIN) => {}
                }
                if self.right.has_ended().await {
                    return;
                }
                sleep(COALESCE_INTERVAL).await;
            }
        };
        tokio::select! {
            () = revoked.cancelled() => {}
            () = looking => tracing::info!(user_id = %self.right.connection.user, "ended a connection of an app"),
        }
    }
}

/// The body of a response, until the right of its visitor ends.
pub(super) struct LastingBody<B> {
    body: B,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<B> LastingBody<B> {
    pub(super) fn new(body: B, ended: Pin<Box<dyn Future<Output = ()> + Send>>) -> Self {
        Self { body, ended }
    }
}

impl<B> Body for LastingBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            let text = "the visitor may not open the app any more";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::PermissionDenied, text))));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(io::Error::other)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn body_is_cut_off_when_the_right_ends() {
        let endless = stream::repeat_with(|| Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"x"))));
        let (end, ended) = oneshot::channel::<()>();
        let mut body = LastingBody::new(
            StreamBody::new(endless),
            Box::pin(async move {
                let _ = ended.await;
            }),
        );
        for _ in 0..10 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        end.send(()).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
