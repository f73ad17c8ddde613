//! The server's side of extension calls: which exist for a connection, and how each is served.

use std::sync::Arc;

use super::journal::StateTransfer;
use super::messages::{HealthReceipt, JournalHeader, NotificationsRequest, ProgramReceipt, SlotsReceipt};
use super::service::{NotificationSender, Service};
use super::{Extension, Extensions, rpc};
use crate::daemon::call::{CallResult, Calls, IncomingCall};

/// Whether a connection with these extensions may make a call.
fn exists(granted: Extensions, name: &str) -> bool {
    use Extension::{Cancel, Drain, Health, Journal, Logs, Program, Resume, Slots};
    let any = |needed: &[Extension]| needed.iter().any(|extension| granted.has(*extension));
    match name {
        rpc::ATTACH => !granted.is_empty(),
        rpc::HOLD => any(&[Resume, Journal, Logs, Program]),
        rpc::LOGS => any(&[Logs]),
        rpc::JOURNAL | rpc::SALVAGE => any(&[Journal]),
        rpc::REPORT_SLOTS => any(&[Slots]),
        rpc::REPORT_PROGRAM => any(&[Program]),
        rpc::REPORT_HEALTH => any(&[Health]),
        rpc::NOTIFICATIONS => any(&[Drain, Cancel]),
        _ => false,
    }
}

/// Serves the calls that granted extensions add to a connection.
pub(crate) struct GrantedCalls<E> {
    pub(crate) service: Arc<E>,
    pub(crate) granted: Extensions,
}

impl<E: Service> Calls for GrantedCalls<E> {
    async fn call(&self, call: IncomingCall<'_>, name: &str) -> CallResult {
        if !exists(self.granted, name) {
            return call.unknown(name).await;
        }
        let service = &*self.service;
        let state_bytes = call.limits.state_bytes;
        match name {
            rpc::ATTACH => call.unary(|request, token| service.attach(request, token)).await,
            rpc::HOLD => call.unary(|request, token| service.hold(request, token)).await,
            rpc::LOGS => call.unary(|request, token| service.logs(request, token)).await,
            rpc::JOURNAL => {
                let begin = async |header: &JournalHeader| service.begin_state(header, false).await;
                let end = |header, state, token| service.journal(header, state, token);
                call.upload::<StateTransfer, _, _, _>(state_bytes, begin, end).await
            }
            rpc::SALVAGE => {
                let begin = async |header: &JournalHeader| service.begin_state(header, true).await;
                let end = |header, state, token| service.salvage(header, state, token);
                call.upload::<StateTransfer, _, _, _>(state_bytes, begin, end).await
            }
            rpc::REPORT_SLOTS => {
                let report =
                    async |report, token| service.report_slots(report, token).await.map(|()| SlotsReceipt {});
                call.unary(report).await
            }
            rpc::REPORT_PROGRAM => {
                let report = async |report, token| {
                    service.report_program(report, token).await.map(|()| ProgramReceipt {})
                };
                call.unary(report).await
            }
            rpc::REPORT_HEALTH => {
                let report = async |report, token| {
                    service.report_health(report, token).await.map(|()| HealthReceipt {})
                };
                call.unary(report).await
            }
            rpc::NOTIFICATIONS => notifications(call, service).await,
            _ => call.unknown(name).await,
        }
    }
}

async fn notifications<E: Service>(mut call: IncomingCall<'_>, service: &E) -> CallResult {
    if let Err(error) = call.request::<NotificationsRequest>().await {
        return call.reject_request(error).await;
    }
    // A daemon listens for hours without sending anything.
    call.permit.release();
    call.stream.set_read_timeout(None);
    let mut sender = NotificationSender::new(call.stream);
    let result = service.notifications(&mut sender).await;
    let mut stream = sender.stream;
    let ended = match result {
        Ok(()) => stream.close_send().await,
        Err(status) => stream.fail(&status).await,
    };
    match ended {
        Ok(()) => Ok(stream),
        Err(error) => Err((stream, error)),
    }
}
