//! Does what the server asks unasked: drain, cancel a job now, let go of a job (docs/extensions.md, Notices).

use std::convert::Infallible;

use coder_wire::extension::Extension;
use coder_wire::extension::messages::notification::Notification;

use crate::cancel::{Shutdown, Urgency};
use crate::hand::{HeldJobs, JobEnd};
use crate::session::Connection;

/// Listens as long as it is polled.
pub(crate) async fn listen(line: &Connection, hand: &HeldJobs, shutdown: &Shutdown) -> Infallible {
    let granted = line.granted();
    if granted.has(Extension::Drain) || granted.has(Extension::Cancel) {
        match line.extensions().notifications().await {
            Ok(mut notifications) => {
                while let Ok(Some(notification)) = notifications.next().await {
                    obey(notification.notification, hand, shutdown);
                }
            }
            Err(error) => tracing::debug!(%error, "the server has no notifications"),
        }
    }
    // The connection's end is seen elsewhere; without it the server has nothing more to say.
    std::future::pending().await
}

fn obey(notification: Option<Notification>, hand: &HeldJobs, shutdown: &Shutdown) {
    match notification {
        Some(Notification::Drain(drain)) => {
            tracing::info!(target: "provisioner", reason = drain.reason, "the server asks the daemon to drain");
            shutdown.drain();
        }
        Some(Notification::JobCancel(cancel)) => {
            if let Some(held) = hand.find(&cancel.job_id) {
                let urgency = if cancel.force { Urgency::Forced } else { Urgency::Graceful };
                tracing::info!(target: "provisioner", job_id = cancel.job_id, reason = cancel.reason, force = cancel.force, "the job is canceled");
                held.cancel(urgency);
            }
        }
        Some(Notification::JobRevoked(revoked)) => {
            if let Some(held) = hand.find(&revoked.job_id) {
                held.end(JobEnd::Lost(revoked.reason));
            }
        }
        // A notification of a later version.
        None => {}
    }
}
