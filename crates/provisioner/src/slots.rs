//! Tells the server how many jobs fit and how many run, whenever that changes (docs/extensions.md, ReportSlots).

use std::convert::Infallible;

use coder_wire::extension::Extension;
use coder_wire::extension::messages::SlotsReport;
use tokio::sync::watch;

use crate::session::Line;
use crate::status::Status;

/// Reports as long as it is polled.
pub(crate) async fn report(line: &Line, mut status: watch::Receiver<Status>) -> Infallible {
    let mut said = None;
    while line.granted().has(Extension::Slots) {
        let now = {
            let status = status.borrow_and_update();
            SlotsReport {
                slots: u32::try_from(status.slots).unwrap_or(u32::MAX),
                busy: u32::try_from(status.jobs.len()).unwrap_or(u32::MAX),
                draining: status.draining,
            }
        };
        if said != Some(now) {
            if let Err(error) = line.extensions().report_slots(&now).await {
                tracing::debug!(%error, "the server does not take the report of slots");
                break;
            }
            said = Some(now);
        }
        if status.changed().await.is_err() {
            break;
        }
    }
    std::future::pending().await
}
