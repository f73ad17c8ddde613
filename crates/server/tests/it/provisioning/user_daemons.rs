//! Helpers for daemons that joined with the token of a user.

use bytes::Bytes;
use coder_wire::extension::messages::notification::Notification;

use super::daemon_process::{DaemonConnection, JoinOptions, next_notification};
use super::*;
use crate::harness::Answer;

/// A daemon that joined with this token of this user. An empty token means another token of the user.
pub(super) async fn joined(server: &TestServer, name: &str, user: UserId, token: &str) -> DaemonConnection {
    let connection = DaemonConnection::open(
        &server.app,
        JoinOptions { name, user: Some(user), token, ..JoinOptions::default() },
    )
    .await;
    connection.attach(&Bytes::new(), vec![]).await.unwrap();
    connection
}

/// Two daemons of a user, each with a job. One is connected, and the other one has lost its connection.
pub(super) struct Two {
    pub(super) here: DaemonConnection,
    _away: DaemonConnection,
    held: JobId,
    lost: JobId,
}

impl Two {
    pub(super) async fn with_jobs(
        server: &TestServer,
        owner: &str,
        name: &str,
        user: UserId,
        token: &str,
    ) -> Self {
        let here = joined(server, name, user, token).await;
        let away = joined(server, &format!("{name}-away"), user, token).await;
        let held = import(server, owner, json!({})).await.1;
        here.take(held).await;
        let lost = import(server, owner, json!({})).await.1;
        away.take(lost).await;
        away.cut();
        until(server, lost, |job| job.lost_at.is_some()).await;
        Self { here, _away: away, held, lost }
    }

    /// Sends a request that ends both daemons. The connected one is notified before, and both jobs fail with this
    /// reason.
    pub(super) async fn end(self, server: &TestServer, request: impl Future<Output = Answer>, why: &str) {
        assert!(self.here.calls.session().end().is_none(), "it is still connected");
        let mut notifications = self.here.ext.notifications().await.unwrap();
        // The request may hash passwords, which takes long on a busy machine, so the time counts from the notification.
        let told = async { (next_notification(&mut notifications).await, std::time::Instant::now()) };
        let (answer, (notification, started)) = tokio::join!(request, told);
        assert!(answer.status.is_success(), "{answer:?}");
        let Notification::JobRevoked(revoked) = notification else { panic!("{notification:?}") };
        assert_eq!(revoked.job_id, self.held.to_string());
        tokio::time::timeout(WAIT_LIMIT, self.here.calls.session().closed()).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        for id in [self.held, self.lost] {
            let error = job(server, id).await.error;
            assert!(error.starts_with(&format!("{why} (daemon ")), "{error}");
        }
    }
}
