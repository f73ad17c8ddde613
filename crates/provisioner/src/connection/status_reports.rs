//! Reports about the daemon as a whole, whenever they change: slots in use, and health (docs/extensions.md,
//! ReportSlots and ReportHealth).

use std::convert::Infallible;

use coder_wire::drpc;
use coder_wire::extension::messages::{HealthReport, SlotsReport};
use coder_wire::extension::{Client, Extension};
use tokio::sync::watch;

use super::Connection;
use crate::daemon::status::Status;

/// Sends both reports while it is polled.
pub(crate) async fn report(connection: &Connection, status: &watch::Receiver<Status>) -> Infallible {
    let slots =
        each_change(connection, Extension::Slots, status.clone(), slots_of, async |client, report| {
            client.report_slots(report).await
        });
    let health =
        each_change(connection, Extension::Health, status.clone(), health_of, async |client, report| {
            client.report_health(report).await
        });
    tokio::join!(slots, health).0
}

fn slots_of(status: &Status) -> SlotsReport {
    SlotsReport {
        slots: u32::try_from(status.slots).unwrap_or(u32::MAX),
        busy: u32::try_from(status.jobs.len()).unwrap_or(u32::MAX),
        draining: status.draining,
    }
}

fn health_of(status: &Status) -> HealthReport {
    match status.health.problem() {
        Some(problem) => HealthReport { problem: problem.summary.clone(), detail: problem.detail.clone() },
        None => HealthReport::default(),
    }
}

async fn each_change<Report: PartialEq>(
    connection: &Connection,
    extension: Extension,
    mut status: watch::Receiver<Status>,
    make: impl Fn(&Status) -> Report,
    send: impl AsyncFn(&Client, &Report) -> Result<(), drpc::Error>,
) -> Infallible {
    let mut said = None;
    while connection.granted().has(extension) {
        let now = make(&status.borrow_and_update());
        if said.as_ref() != Some(&now) {
            if let Err(error) = send(connection.extensions(), &now).await {
                tracing::debug!(%error, extension = extension.name(), "the server rejects a report");
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
