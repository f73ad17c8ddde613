//! The calls of granted extensions that a server implements.

use std::future::Future;

use tokio_util::sync::CancellationToken;

use super::messages::{
    AttachRequest, AttachResponse, HealthReport, HoldRequest, HoldResponse, JournalHeader, JournalReceipt,
    LogsRequest, LogsResponse, Notification, ProgramReport, SlotsReport,
};
use crate::drpc::server::{CallStream, Event};
use crate::drpc::{Error, Status};
use crate::transfer::ChunkWriter;

/// Answers the extension calls of one connection; docs/extensions.md says what each must do and check.
///
/// As in [`daemon::Service`](crate::daemon::Service) methods run many times at once, `canceled` fires when the caller
/// cancels the call or disconnects, futures are never dropped, and an error is final for the daemon. Only calls of
/// granted extensions arrive.
pub trait Service: Send + Sync + 'static {
    /// Receives a state.
    type State: ChunkWriter;

    /// Checks the header of a Journal, or of a Salvage, before any byte of the state is read. It has to find out whether
    /// the daemon may send the state: a refused state costs no memory.
    fn begin_state(
        &self,
        header: &JournalHeader,
        salvaged: bool,
    ) -> impl Future<Output = Result<Self::State, Status>> + Send;

    fn attach(
        &self,
        request: AttachRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<AttachResponse, Status>> + Send;

    fn hold(
        &self,
        request: HoldRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<HoldResponse, Status>> + Send;

    fn logs(
        &self,
        request: LogsRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<LogsResponse, Status>> + Send;

    /// Journal, once the state is complete and its hash has been checked.
    fn journal(
        &self,
        header: JournalHeader,
        state: Self::State,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<JournalReceipt, Status>> + Send;

    /// Salvage, once the state is complete and its hash has been checked.
    fn salvage(
        &self,
        header: JournalHeader,
        state: Self::State,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<JournalReceipt, Status>> + Send;

    fn report_slots(
        &self,
        report: SlotsReport,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    fn report_program(
        &self,
        report: ProgramReport,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    fn report_health(
        &self,
        report: HealthReport,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// Notifications: sends notifications until [`NotificationSender::closed`]. Returning ends the call without an error, and
    /// the daemon does not call again on this connection.
    fn notifications(
        &self,
        notifications: &mut NotificationSender,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// A daemon that listens for notifications.
#[derive(Debug)]
pub struct NotificationSender {
    pub(super) stream: CallStream,
    closed: bool,
}

impl NotificationSender {
    pub(super) const fn new(stream: CallStream) -> Self {
        Self { stream, closed: false }
    }

    /// Sends a notification; returns once it was passed on to the connection. It may still be lost.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn send(&mut self, notification: &Notification) -> Result<(), Error> {
        self.stream.send(notification).await?;
        self.stream.flush().await
    }

    /// Completes when the daemon no longer listens. Cancel safe: select over it and the next notification.
    pub async fn closed(&mut self) {
        while !self.closed {
            self.closed = !matches!(self.stream.recv().await, Ok(Event::Message(_) | Event::CloseSend));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::drpc::frame::{self, Kind};

    #[tokio::test]
    async fn a_daemon_listens_after_its_request_and_until_it_ends_the_call() {
        for last in [Some(Kind::CANCEL), Some(Kind::CLOSE), None] {
            let (near, mut far) = tokio::io::duplex(1024);
            let mut sent = 0;
            let mut packet = |kind| {
                sent += 1;
                let mut bytes = Vec::new();
                frame::encode(&mut bytes, kind, false, (1, sent), b"");
                bytes
            };
            far.write_all(&packet(Kind::INVOKE)).await.unwrap();
            let mut stream = CallStream::new(Box::new(near));
            stream.next().await.unwrap();
            let mut sender = NotificationSender::new(stream);
            assert!(sender.closed().now_or_never().is_none());
            for kind in [Kind::MESSAGE, Kind::CLOSE_SEND] {
                far.write_all(&packet(kind)).await.unwrap();
                assert!(sender.closed().now_or_never().is_none(), "{kind:?} belongs to the request");
            }
            match last {
                Some(kind) => far.write_all(&packet(kind)).await.unwrap(),
                None => far.shutdown().await.unwrap(),
            }
            for _ in 0..2 {
                sender.closed().now_or_never().expect("it no longer listens");
            }
        }
    }
}
