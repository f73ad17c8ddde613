//! Handles notifications of the server: drain, cancel a job, revoke a job (docs/extensions.md, Notices).

use std::convert::Infallible;

use coder_wire::extension::Extension;
use coder_wire::extension::messages::notification::Notification;

use super::Connection;
use super::held_jobs::{HeldJobs, JobEnd};
use crate::cancel::{Shutdown, Urgency};

/// Listens while it is polled.
pub(crate) async fn listen(connection: &Connection, held_jobs: &HeldJobs, shutdown: &Shutdown) -> Infallible {
    let granted = connection.granted();
    if granted.has(Extension::Drain) || granted.has(Extension::Cancel) {
        match connection.extensions().notifications().await {
            Ok(mut notifications) => {
                while let Ok(Some(notification)) = notifications.next().await {
                    apply(notification.notification, held_jobs, shutdown);
                }
            }
            Err(error) => tracing::debug!(%error, "the server sends no notifications"),
        }
    }
    // Another task detects the end of the connection; without a stream the server sends no further
    // notification.
    std::future::pending().await
}

fn apply(notification: Option<Notification>, held_jobs: &HeldJobs, shutdown: &Shutdown) {
    match notification {
        Some(Notification::Drain(drain)) => {
            tracing::info!(target: "provisioner", reason = drain.reason, "the server asks the daemon to drain");
            shutdown.drain();
        }
        Some(Notification::JobCancel(cancel)) => {
            if let Some(hold) = held_jobs.find(&cancel.job_id) {
                let urgency = if cancel.force { Urgency::Forced } else { Urgency::Graceful };
                tracing::info!(target: "provisioner", job_id = cancel.job_id, reason = cancel.reason, force = cancel.force, "the job is canceled");
                hold.cancel(urgency);
            }
        }
        Some(Notification::JobRevoked(revoked)) => {
            if let Some(hold) = held_jobs.find(&revoked.job_id) {
                hold.end(JobEnd::Lost(revoked.reason));
            }
        }
        // A notification of a newer version.
        None => {}
    }
}
