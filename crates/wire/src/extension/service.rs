//! What a server implements to answer the calls of granted extensions.

use std::future::Future;

use tokio_util::sync::CancellationToken;

use super::messages::{
    AttachRequest, AttachResponse, HealthReport, HoldRequest, HoldResponse, JournalHeader, JournalReceipt,
    LogsRequest, LogsResponse, Notice, ProgramReport, SlotsReport,
};
use crate::drpc::server::{Event, Exchange};
use crate::drpc::{Error, Status};
use crate::file::Sink;

/// Answers the extension calls of one connection; docs/extensions.md says what each must do and check.
///
/// As in [`daemon::Service`](crate::daemon::Service) methods run many times at once, `canceled` fires when the caller
/// gives up or its connection is gone, futures are never dropped, and an error is final for the daemon. Only calls of
/// granted extensions arrive.
pub trait Service: Send + Sync + 'static {
    /// Where a state goes while it arrives.
    type State: Sink;

    /// Looks at the announcement of a Journal, or of a Salvage, before any byte of the state is read. It has to find out
    /// whether the daemon may send it: whatever it refuses costs no memory.
    fn begin_state(
        &self,
        header: &JournalHeader,
        salvaged: bool,
    ) -> impl Future<Output = Result<Self::State, Status>> + Send;

    /// Attach.
    fn attach(
        &self,
        request: AttachRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<AttachResponse, Status>> + Send;

    /// Hold.
    fn hold(
        &self,
        request: HoldRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<HoldResponse, Status>> + Send;

    /// Logs.
    fn logs(
        &self,
        request: LogsRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<LogsResponse, Status>> + Send;

    /// Journal, once the whole state is there and its hash has been checked.
    fn journal(
        &self,
        header: JournalHeader,
        state: Self::State,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<JournalReceipt, Status>> + Send;

    /// Salvage, once the whole state is there and its hash has been checked.
    fn salvage(
        &self,
        header: JournalHeader,
        state: Self::State,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<JournalReceipt, Status>> + Send;

    /// ReportSlots.
    fn report_slots(
        &self,
        report: SlotsReport,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// ReportProgram.
    fn report_program(
        &self,
        report: ProgramReport,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// ReportHealth.
    fn report_health(
        &self,
        report: HealthReport,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// Notices: sends what there is to say until [`NoticeSender::gone`]; returning ends the call in good order, and the
    /// daemon does not call again on this connection.
    fn notices(&self, notices: &mut NoticeSender) -> impl Future<Output = Result<(), Status>> + Send;
}

/// A daemon that listens for notices.
#[derive(Debug)]
pub struct NoticeSender {
    pub(super) exchange: Exchange,
    gone: bool,
}

impl NoticeSender {
    pub(super) const fn new(exchange: Exchange) -> Self {
        Self { exchange, gone: false }
    }

    /// Sends a notice; returns once it is on its way, which is not yet a promise that it arrives.
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn send(&mut self, notice: &Notice) -> Result<(), Error> {
        self.exchange.send(notice).await?;
        self.exchange.flush().await
    }

    /// Waits until the daemon listens no longer. Nothing is lost when the future is dropped, so select over it and the
    /// next notice.
    pub async fn gone(&mut self) {
        while !self.gone {
            self.gone = !matches!(self.exchange.recv().await, Ok(Event::Message(_) | Event::CloseSend));
        }
    }
}

/// Serves nothing; stands where there are no extensions.
pub(crate) enum NoService {}

impl Service for NoService {
    type State = bytes::BytesMut;

    async fn begin_state(&self, _: &JournalHeader, _: bool) -> Result<Self::State, Status> {
        match *self {}
    }

    async fn attach(&self, _: AttachRequest, _: CancellationToken) -> Result<AttachResponse, Status> {
        match *self {}
    }

    async fn hold(&self, _: HoldRequest, _: CancellationToken) -> Result<HoldResponse, Status> {
        match *self {}
    }

    async fn logs(&self, _: LogsRequest, _: CancellationToken) -> Result<LogsResponse, Status> {
        match *self {}
    }

    async fn journal(
        &self,
        _: JournalHeader,
        _: Self::State,
        _: CancellationToken,
    ) -> Result<JournalReceipt, Status> {
        match *self {}
    }

    async fn salvage(
        &self,
        _: JournalHeader,
        _: Self::State,
        _: CancellationToken,
    ) -> Result<JournalReceipt, Status> {
        match *self {}
    }

    async fn report_slots(&self, _: SlotsReport, _: CancellationToken) -> Result<(), Status> {
        match *self {}
    }

    async fn report_program(&self, _: ProgramReport, _: CancellationToken) -> Result<(), Status> {
        match *self {}
    }

    async fn report_health(&self, _: HealthReport, _: CancellationToken) -> Result<(), Status> {
        match *self {}
    }

    async fn notices(&self, _: &mut NoticeSender) -> Result<(), Status> {
        match *self {}
    }
}
