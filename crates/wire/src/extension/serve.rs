//! The server's side of extension calls: which exist for a connection, and how each is read.

use std::future::Future;

use super::journal::{Error, Pieces, Step};
use super::messages::{
    HealthReceipt, JournalHeader, JournalPiece, JournalReceipt, ProgramReceipt, SlotsReceipt,
};
use super::service::{NoticeSender, Service};
use super::{Extension, Extensions, rpc};
use crate::daemon::called::{Called, Outcome, watched};
use crate::drpc::Status;
use crate::file::Sink as _;
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
        rpc::JOURNAL => {
            journal(called, service, false, |header, state, token| service.journal(header, state, token))
                .await
        }
        rpc::SALVAGE => {
            journal(called, service, true, |header, state, token| service.salvage(header, state, token)).await
        }
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

async fn journal<E: Service, F>(
    mut called: Called<'_>,
    service: &E,
    salvaged: bool,
    handler: impl FnOnce(JournalHeader, E::State, CancellationToken) -> F,
) -> Outcome
where
    F: Future<Output = Result<JournalReceipt, Status>>,
{
    let (mut pieces, mut begun) = (Pieces::new(called.limits.state_bytes), None);
    let received = loop {
        let piece = match called.exchange.request::<JournalPiece>().await {
            Ok(Some(piece)) => piece,
            Ok(None) => break Err(Status::chain(&Error::Ended)),
            Err(error) => return called.broken(error).await,
        };
        let taken = async {
            match pieces.take(piece).map_err(|error| Status::chain(&error))? {
                Step::Header(header) => {
                    let state = service.begin_state(&header, salvaged).await?;
                    begun = Some((header, state));
                }
                Step::Data(data) => {
                    let (_, state) = begun.as_mut().ok_or_else(|| Status::chain(&Error::Order))?;
                    state.write(data).await?;
                }
            }
            pieces.is_complete().map_err(|error| Status::chain(&error))
        };
        let taken = taken.await;
        called.exchange.release();
        match taken {
            Ok(false) => {}
            Ok(true) => break begun.take().ok_or_else(|| Status::chain(&Error::Order)),
            Err(status) => break Err(status),
        }
    };
    let answer = match received {
        Ok((header, state)) => watched(&mut called.exchange, |token| handler(header, state, token)).await,
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
