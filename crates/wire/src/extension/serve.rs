//! The server's side of extension calls: which exist for a connection, and how each is read.

use std::future::Future;

use super::journal::{Error, Journal, Receiver};
use super::messages::{HealthReceipt, JournalPiece, JournalReceipt, ProgramReceipt, SlotsReceipt};
use super::service::{NoticeSender, Service};
use super::{Extension, Extensions, rpc};
use crate::daemon::called::{Called, Outcome, watched};
use crate::drpc::Status;
use tokio_util::sync::CancellationToken;

/// Whether a connection with these extensions may make a call.
fn exists(granted: Extensions, name: &str) -> bool {
    use Extension::{Cancel, Drain, Health, Journal, Logs, Program, Resume, Slots};
    let any = |wanted: &[Extension]| wanted.iter().any(|extension| granted.has(*extension));
    match name {
        rpc::ATTACH => !granted.is_empty(),
        rpc::HOLD => any(&[Resume, Journal, Logs, Program]),
        rpc::LOGS => any(&[Logs]),
        rpc::JOURNAL | rpc::SALVAGE => any(&[Journal]),
        rpc::REPORT_SLOTS => any(&[Slots]),
        rpc::REPORT_PROGRAM => any(&[Program]),
        rpc::REPORT_HEALTH => any(&[Health]),
        rpc::NOTICES => any(&[Drain, Cancel]),
        _ => false,
    }
}

/// Runs a call that is none of the official ones.
pub(crate) async fn call<E: Service>(
    called: Called<'_>,
    name: &str,
    service: &E,
    granted: Extensions,
) -> Outcome {
    if !exists(granted, name) {
        return called.unknown(name).await;
    }
    match name {
        rpc::ATTACH => called.unary(|request, token| service.attach(request, token)).await,
        rpc::HOLD => called.unary(|request, token| service.hold(request, token)).await,
        rpc::LOGS => called.unary(|request, token| service.logs(request, token)).await,
        rpc::JOURNAL => journal(called, |journal, token| service.journal(journal, token)).await,
        rpc::SALVAGE => journal(called, |journal, token| service.salvage(journal, token)).await,
        rpc::REPORT_SLOTS => {
            let report =
                async |report, token| service.report_slots(report, token).await.map(|()| SlotsReceipt {});
            called.unary(report).await
        }
        rpc::REPORT_PROGRAM => {
            let report =
                async |report, token| service.report_program(report, token).await.map(|()| ProgramReceipt {});
            called.unary(report).await
        }
        rpc::REPORT_HEALTH => {
            let report =
                async |report, token| service.report_health(report, token).await.map(|()| HealthReceipt {});
            called.unary(report).await
        }
        rpc::NOTICES => notices(called, service).await,
        _ => called.unknown(name).await,
    }
}

async fn journal<F>(mut called: Called<'_>, handler: impl FnOnce(Journal, CancellationToken) -> F) -> Outcome
where
    F: Future<Output = Result<JournalReceipt, Status>>,
{
    let mut receiver = Receiver::new(called.limits.state_bytes);
    let received = loop {
        match called.exchange.request::<JournalPiece>().await {
            Ok(Some(piece)) => match receiver.take(piece) {
                Ok(None) => {}
                Ok(Some(journal)) => break Ok(journal),
                Err(error) => break Err(Status::chain(&error)),
            },
            Ok(None) => break Err(Status::chain(&Error::Ended)),
            Err(error) => return called.broken(error).await,
        }
    };
    let answer = match received {
        Ok(journal) => watched(&mut called.exchange, |token| handler(journal, token)).await,
        Err(status) => Err(status),
    };
    called.answer(answer).await
}

async fn notices<E: Service>(mut called: Called<'_>, service: &E) -> Outcome {
    if let Err(error) = called.request::<super::messages::NoticesRequest>().await {
        return called.broken(error).await;
    }
    // A daemon listens for hours without a word.
    called.seat.leave();
    called.exchange.set_patience(None);
    let mut sender = NoticeSender::new(called.exchange);
    let result = service.notices(&mut sender).await;
    let mut exchange = sender.exchange;
    let ended = match result {
        Ok(()) => exchange.close_send().await,
        Err(status) => exchange.fail(&status).await,
    };
    match ended {
        Ok(()) => Ok(exchange),
        Err(error) => Err((exchange, error)),
    }
}
