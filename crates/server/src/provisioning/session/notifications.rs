//! Notifications from the server to a daemon: drain, cancellation, revocation (docs/extensions.md, Notices).

use coder_wire::drpc::Status;
use coder_wire::extension::messages::notification::Notification as Kind;
use coder_wire::extension::messages::{Drain, JobCancel, JobRevoked, Notification};
use coder_wire::extension::{Extension, Extensions, NotificationSender};
use tokio::time::sleep;

use super::Session;
use super::held_jobs::PendingNotification;

/// Reasons that people read.
const CANCELED: &str = "a user canceled the job";
const FORCED: &str = "the job was canceled, and its time to stop is over";

/// Sends notifications until the daemon closes the stream.
pub(crate) async fn send(session: &Session, notifications: &mut NotificationSender) -> Result<(), Status> {
    let force_after = session.app.config.provisioning.force_cancel_after;
    loop {
        let (pending, next) = session.held_jobs.next_notifications(session.app.now(), force_after);
        for message in pending.into_iter().filter_map(|notification| message(notification, session.granted)) {
            if notifications.send(&message).await.is_err() {
                // The connection has ended.
                return Ok(());
            }
        }
        session.held_jobs.mark_sent();
        let timer = async {
            match next {
                Some(time) => sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = notifications.closed() => return Ok(()),
            () = session.held_jobs.changed() => {}
            () = timer => {}
        }
    }
}

fn message(notification: PendingNotification, granted: Extensions) -> Option<Notification> {
    let (extension, kind) = match notification {
        PendingNotification::Drain(reason) => (Extension::Drain, Kind::Drain(Drain { reason })),
        PendingNotification::Cancel(job, force) => {
            let reason = if force { FORCED } else { CANCELED }.to_owned();
            (Extension::Cancel, Kind::JobCancel(JobCancel { job_id: job.to_string(), reason, force }))
        }
        PendingNotification::Revoked(job, reason) => {
            (Extension::Cancel, Kind::JobRevoked(JobRevoked { job_id: job.to_string(), reason }))
        }
    };
    granted.has(extension).then_some(Notification { notification: Some(kind) })
}
