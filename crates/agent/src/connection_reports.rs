//! Who connected and left, on its way to the server (agent 2.9).

use std::collections::VecDeque;
use std::net::IpAddr;

use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use jiff::Timestamp;
use messages::connection::Action;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::calls::{Calls, is_unimplemented, timestamp};
use crate::sessions::Kind;

/// Reports that wait. More are dropped.
const MAX_QUEUED_REPORTS: usize = 2048;

/// Reports that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct ConnectionReports {
    queue: Mutex<VecDeque<messages::Connection>>,
    changed: Notify,
    drained: Notify,
}

impl ConnectionReports {
    /// Somebody connected. The result names the connection when it ends.
    pub(crate) fn connected(&self, at: Timestamp, kind: Kind, from: IpAddr) -> Reported {
        let reported = Reported { id: Uuid::new_v4(), kind, from };
        self.push(reported.message(Action::Connect, at, 0, None));
        reported
    }

    /// A connection ended.
    pub(crate) fn disconnected(&self, reported: Reported, at: Timestamp, status: i32, reason: &str) {
        let reason = (!reason.is_empty()).then(|| reason.to_owned());
        self.push(reported.message(Action::Disconnect, at, status, reason));
    }

    fn push(&self, report: messages::Connection) {
        let mut queue = self.queue.lock();
        if queue.len() < MAX_QUEUED_REPORTS {
            queue.push_back(report);
            drop(queue);
            self.changed.notify_one();
        } else {
            tracing::debug!("too many connection reports wait; one is dropped");
        }
    }

    /// Sends over one connection until it fails.
    pub(crate) async fn send(&self, calls: &Calls) -> Result<(), Error> {
        loop {
            let changed = self.changed.notified();
            // It stays in the queue until the server has it.
            let first = self.queue.lock().front().cloned();
            let Some(report) = first else {
                self.drained.notify_waiters();
                changed.await;
                continue;
            };
            match calls.connection(messages::ReportConnectionRequest { connection: Some(report) }).await {
                Ok(()) => {}
                Err(error) if is_unimplemented(&error) => return std::future::pending().await,
                Err(Error::Refused(status)) => {
                    tracing::debug!(error = %status, "the server does not take a connection report");
                }
                Err(error) => return Err(error),
            }
            self.queue.lock().pop_front();
        }
    }

    /// Waits until the server knows everything.
    pub(crate) async fn drain(&self) {
        loop {
            let drained = self.drained.notified();
            if self.queue.lock().is_empty() {
                return;
            }
            drained.await;
        }
    }
}

/// A connection that was reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported {
    id: Uuid,
    kind: Kind,
    from: IpAddr,
}

impl Reported {
    fn message(
        self,
        action: Action,
        at: Timestamp,
        status: i32,
        reason: Option<String>,
    ) -> messages::Connection {
        messages::Connection {
            id: self.id.as_bytes().to_vec(),
            action: action.into(),
            r#type: self.kind.report_type().into(),
            timestamp: Some(timestamp(at)),
            ip: self.from.to_string(),
            status_code: status,
            reason,
        }
    }
}
