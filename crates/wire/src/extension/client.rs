//! The daemon's side of extension calls: one stream per call, as with the official ones.

use super::journal::Journal;
use super::messages::{
    AttachRequest, AttachResponse, HealthReceipt, HealthReport, HoldRequest, HoldResponse, JournalReceipt,
    LogsRequest, LogsResponse, Notification, NotificationsRequest, ProgramReceipt, ProgramReport,
    SlotsReceipt, SlotsReport,
};
use super::rpc;
use crate::drpc::client::{Call, unary};
use crate::drpc::{Error, MAX_MESSAGE_SIZE};
use crate::mux::{Session, Stream};

/// Makes extension calls over a session. Clones share it.
///
/// Only calls of granted extensions exist. Dropping the future of a call cancels the call.
#[derive(Debug, Clone)]
pub struct Client {
    session: Session,
}

impl Client {
    /// Calls over `session`, beside those of [`daemon::Client`](crate::daemon::Client).
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self { session }
    }

    async fn unary<M: prost::Message + Default>(
        &self,
        rpc: &str,
        request: &impl prost::Message,
    ) -> Result<M, Error> {
        let size = request.encoded_len();
        if size > MAX_MESSAGE_SIZE {
            return Err(Error::TooLarge { size, limit: MAX_MESSAGE_SIZE });
        }
        let _permit = self.session.large_message_permit(size).await;
        unary(self.session.open().await?, rpc, request).await
    }

    /// Makes the first call of a connection.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn attach(&self, request: &AttachRequest) -> Result<AttachResponse, Error> {
        self.unary(rpc::ATTACH, request).await
    }

    /// Gets the token of a job that was just acquired.
    ///
    /// # Errors
    /// How the call ended; refused when the job is not this daemon process's.
    pub async fn hold(&self, request: &HoldRequest) -> Result<HoldResponse, Error> {
        self.unary(rpc::HOLD, request).await
    }

    /// Sends log lines.
    ///
    /// # Errors
    /// How the call ended; refused when the token is not the newest.
    pub async fn logs(&self, request: &LogsRequest) -> Result<LogsResponse, Error> {
        self.unary(rpc::LOGS, request).await
    }

    /// Sends a state.
    ///
    /// # Errors
    /// How the call ended; refused when the token is not the newest.
    pub async fn journal(&self, journal: &Journal) -> Result<JournalReceipt, Error> {
        self.state(rpc::JOURNAL, journal).await
    }

    /// Sends the state of a job whose daemon process was killed.
    ///
    /// # Errors
    /// How the call ended; refused when the server has no use for the state any more.
    pub async fn salvage(&self, journal: &Journal) -> Result<JournalReceipt, Error> {
        self.state(rpc::SALVAGE, journal).await
    }

    async fn state(&self, rpc: &str, journal: &Journal) -> Result<JournalReceipt, Error> {
        let _permit = self.session.large_message_permit(journal.state.len()).await;
        let mut call = Call::new(self.session.open().await?, rpc);
        for message in journal.to_messages() {
            call.send(&message).await?;
        }
        call.close_send().await?;
        let receipt = call.recv().await?.ok_or(Error::NoAnswer)?;
        call.close().await;
        Ok(receipt)
    }

    /// Reports the number of slots and of running jobs.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn report_slots(&self, report: &SlotsReport) -> Result<(), Error> {
        self.unary::<SlotsReceipt>(rpc::REPORT_SLOTS, report).await.map(drop)
    }

    /// Reports the program that runs a job.
    ///
    /// # Errors
    /// How the call ended; refused when the token is not the newest.
    pub async fn report_program(&self, report: &ProgramReport) -> Result<(), Error> {
        self.unary::<ProgramReceipt>(rpc::REPORT_PROGRAM, report).await.map(drop)
    }

    /// Reports whether the daemon can run jobs.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn report_health(&self, report: &HealthReport) -> Result<(), Error> {
        self.unary::<HealthReceipt>(rpc::REPORT_HEALTH, report).await.map(drop)
    }

    /// Subscribes to notifications.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn notifications(&self) -> Result<Notifications, Error> {
        let mut call = Call::new(self.session.open().await?, rpc::NOTIFICATIONS);
        call.send(&NotificationsRequest {}).await?;
        call.close_send().await?;
        Ok(Notifications { call })
    }
}

/// The notifications of the server.
#[derive(Debug)]
pub struct Notifications {
    call: Call<Stream>,
}

impl Notifications {
    /// Waits for the next notification; none after the last. Cancel safe.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn next(&mut self) -> Result<Option<Notification>, Error> {
        self.call.recv().await
    }
}
