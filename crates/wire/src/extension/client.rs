//! The daemon's side of extension calls: one stream per call, as with the official ones.

use super::journal::{Journal, pieces};
use super::messages::{
    AttachRequest, AttachResponse, HealthReceipt, HealthReport, HoldRequest, HoldResponse, JournalReceipt,
    LogsRequest, LogsResponse, Notice, NoticesRequest, ProgramReceipt, ProgramReport, SlotsReceipt,
    SlotsReport,
};
use super::rpc;
use crate::drpc::client::{Call, unary};
use crate::drpc::{Error, MESSAGE};
use crate::mux::{Session, Stream};

/// Makes extension calls over a session. Clones share it.
///
/// Make only calls of granted extensions: the others do not exist. Dropping the future of a call cancels it.
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
        if size > MESSAGE {
            return Err(Error::TooLarge { size, limit: MESSAGE });
        }
        let _turn = self.session.turn(size).await;
        unary(self.session.open().await?, rpc, request).await
    }

    /// Begins a connection.
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

    /// Hands over the state of a job whose process was killed.
    ///
    /// # Errors
    /// How the call ended; refused when the state can be of no use any more.
    pub async fn salvage(&self, journal: &Journal) -> Result<JournalReceipt, Error> {
        self.state(rpc::SALVAGE, journal).await
    }

    async fn state(&self, rpc: &str, journal: &Journal) -> Result<JournalReceipt, Error> {
        let _turn = self.session.turn(journal.state.len()).await;
        let mut call = Call::new(self.session.open().await?, rpc);
        for piece in pieces(journal) {
            call.send(&piece).await?;
        }
        call.close_send().await?;
        let receipt = call.recv().await?.ok_or(Error::NoAnswer)?;
        call.close().await;
        Ok(receipt)
    }

    /// Says how many jobs fit and how many run.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn report_slots(&self, report: &SlotsReport) -> Result<(), Error> {
        self.unary::<SlotsReceipt>(rpc::REPORT_SLOTS, report).await.map(drop)
    }

    /// Says which program runs a job.
    ///
    /// # Errors
    /// How the call ended; refused when the token is not the newest.
    pub async fn report_program(&self, report: &ProgramReport) -> Result<(), Error> {
        self.unary::<ProgramReceipt>(rpc::REPORT_PROGRAM, report).await.map(drop)
    }

    /// Says whether the daemon can run jobs.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn report_health(&self, report: &HealthReport) -> Result<(), Error> {
        self.unary::<HealthReceipt>(rpc::REPORT_HEALTH, report).await.map(drop)
    }

    /// Begins to listen for notices.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn notices(&self) -> Result<Notices, Error> {
        let mut call = Call::new(self.session.open().await?, rpc::NOTICES);
        call.send(&NoticesRequest {}).await?;
        call.close_send().await?;
        Ok(Notices { call })
    }
}

/// What the server says unasked.
#[derive(Debug)]
pub struct Notices {
    call: Call<Stream>,
}

impl Notices {
    /// Waits for the next notice; none when the server will send no more. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn next(&mut self) -> Result<Option<Notice>, Error> {
        self.call.recv().await
    }
}
