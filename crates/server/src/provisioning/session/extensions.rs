//! The calls of granted extensions (docs/extensions.md). Attach is in `attach.rs`, states in `reports/states.rs`, notifications of
//! the server in `notifications.rs`.

use bytes::Bytes;
use coder_domain::ids::JobId;
use coder_domain::key::Sha256Digest;
use coder_store::jobs::{self, Holder};
use coder_store::{daemons, transaction};
use coder_wire::drpc::Status;
use coder_wire::extension::messages::{
    AttachRequest, AttachResponse, HealthReport, HoldRequest, HoldResponse, JournalHeader, JournalReceipt,
    LogsRequest, LogsResponse, ProgramReport, SlotsReport,
};
use coder_wire::extension::{
    MAX_PROBLEM_DETAIL_SIZE, MAX_PROBLEM_SIZE, MAX_SLOTS, NotificationSender, Service,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Session;
use super::serve::answer;
use super::{attach, notifications};
use crate::provisioning::reports::refusal::{self, Refusal};
use crate::provisioning::reports::{logs, states};
use crate::spool::Spool;

/// Most lines of a batch, and most bytes of their texts.
const MAX_BATCH_LINES: usize = 500;
const BATCH_BYTES: usize = 256 << 10;
/// Longest line, in bytes.
const LINE_BYTES: usize = 16 << 10;
/// Programs that run templates.
const PRODUCTS: [&str; 2] = ["terraform", "opentofu"];
/// Longest version of a program, in bytes.
const VERSION_BYTES: usize = 64;

impl Service for Session {
    type State = Spool;

    async fn attach(
        &self,
        request: AttachRequest,
        canceled: CancellationToken,
    ) -> Result<AttachResponse, Status> {
        answer!(self, "Attach", canceled, attach::attach(self, &request))
    }

    async fn hold(&self, request: HoldRequest, canceled: CancellationToken) -> Result<HoldResponse, Status> {
        answer!(self, "Hold", canceled, hold(self, &request))
    }

    async fn logs(&self, request: LogsRequest, canceled: CancellationToken) -> Result<LogsResponse, Status> {
        answer!(self, "Logs", canceled, append(self, &request))
    }

    async fn begin_state(&self, header: &JournalHeader, salvaged: bool) -> Result<Spool, Status> {
        let canceled = CancellationToken::new();
        answer!(self, "Journal", canceled, states::begin(self, header, salvaged))
    }

    async fn journal(
        &self,
        header: JournalHeader,
        mut state: Spool,
        canceled: CancellationToken,
    ) -> Result<JournalReceipt, Status> {
        answer!(self, "Journal", canceled, states::journal(self, &header, &mut state))
    }

    async fn salvage(
        &self,
        header: JournalHeader,
        mut state: Spool,
        canceled: CancellationToken,
    ) -> Result<JournalReceipt, Status> {
        answer!(self, "Salvage", canceled, states::salvage(self, &header, &mut state))
    }

    async fn report_slots(&self, report: SlotsReport, canceled: CancellationToken) -> Result<(), Status> {
        answer!(self, "ReportSlots", canceled, report_slots(self, &report))
    }

    async fn report_program(&self, report: ProgramReport, canceled: CancellationToken) -> Result<(), Status> {
        answer!(self, "ReportProgram", canceled, report_program(self, &report))
    }

    async fn report_health(&self, report: HealthReport, canceled: CancellationToken) -> Result<(), Status> {
        answer!(self, "ReportHealth", canceled, report_health(self, &report))
    }

    async fn notifications(&self, notifications: &mut NotificationSender) -> Result<(), Status> {
        notifications::send(self, notifications).await
    }
}

/// The answer to every refused Hold. It does not contain the reason.
fn not_held() -> Refusal {
    Refusal::invalid("the job was not handed out to this session, or has ended")
}

async fn hold(session: &Session, request: &HoldRequest) -> Result<HoldResponse, Refusal> {
    let job = refusal::job_id(&request.job_id).map_err(|_| not_held())?;
    let own = session.held_jobs.session().ok_or_else(not_held)?;
    // Kept in memory before it is stored, so that two concurrent calls store the same token.
    let token = session.held_jobs.token_or_insert_with(job, attach::fresh).ok_or_else(not_held)?;
    let daemon = session.daemon;
    let mut tx = session.app.store.single().await?;
    // Storing the same token again changes nothing.
    let held = match jobs::update_token(&mut tx, job, daemon, own, attach::hash(&token)).await {
        Ok(held) if Some(held.attempt) == session.holder(job).epoch => held,
        Ok(_) | Err(coder_store::Error::Stale { .. }) => return Err(not_held()),
        Err(error) => return Err(error.into()),
    };
    if held.previous_token_hash.is_some() {
        session.held_jobs.expect_token_use(job);
    }
    Ok(HoldResponse { token, next_sequence: attach::next_sequence(&held) })
}

/// The job and its holder, if the token is the newest one of this connection. The database then checks the epoch.
pub(crate) fn by_token(session: &Session, job: &str, token: &Bytes) -> Result<(JobId, Holder), Refusal> {
    let job = refusal::job_id(job)?;
    let newest: Option<Sha256Digest> = session.held_jobs.token(job).map(|token| attach::hash(&token));
    if !newest.is_some_and(|newest| newest.verify(&attach::hash(token))) {
        return Err(Refusal::invalid("the token is not the newest of the job"));
    }
    Ok((job, session.holder(job)))
}

/// Stores that the daemon used the newest token. After that, a salvage with an older token is refused.
pub(crate) async fn note_use(session: &Session, job: JobId, holder: Holder) -> Result<(), Refusal> {
    if session.held_jobs.note_token_use(job) {
        jobs::update_token_used(&mut session.app.store.single().await?, job, holder).await?;
    }
    Ok(())
}

async fn append(session: &Session, request: &LogsRequest) -> Result<LogsResponse, Refusal> {
    let app = &session.app;
    let bytes: usize = request.lines.iter().map(|line| line.output.len() + line.stage.len()).sum();
    let is_long = |line: &coder_wire::messages::provisionerd::Log| line.output.len() > LINE_BYTES;
    if request.lines.len() > MAX_BATCH_LINES || bytes > BATCH_BYTES || request.lines.iter().any(is_long) {
        return Err(Refusal::invalid(format!(
            "a batch has at most {MAX_BATCH_LINES} lines of {LINE_BYTES} bytes and {BATCH_BYTES} bytes in all"
        )));
    }
    let last = i64::try_from(request.lines.len()).unwrap_or(i64::MAX);
    let first = i64::try_from(request.first_sequence).ok().filter(|first| *first >= 1);
    let first = first.filter(|first| first.checked_add(last).is_some());
    let first = first.ok_or_else(|| Refusal::invalid("lines are numbered from 1"))?;
    let (job, holder) = by_token(session, &request.job_id, &request.token)?;
    let now = app.now();
    let lines = logs::read_numbered(&request.lines, now)?;
    let cap = app.config.provisioning.log_bytes;
    let numbered = transaction!(app.store, Refusal, |tx| {
        match jobs::logs::append_numbered(tx, job, holder, first, &lines, cap, now).await {
            Ok(numbered) => Ok(numbered),
            Err(error) => Err(refusal::explain(tx, session, job, holder, error).await),
        }
    })?;
    note_use(session, job, holder).await?;
    let canceled = numbered.appended.cancel_requested;
    session.note_report(job, canceled, now);
    app.events.job_changed(job);
    let next_sequence = u64::try_from(numbered.next_sequence).unwrap_or(1);
    Ok(LogsResponse { next_sequence, canceled, overflowed: numbered.appended.overflowed })
}

async fn report_slots(session: &Session, report: &SlotsReport) -> Result<(), Refusal> {
    let limit = u32::try_from(MAX_SLOTS).unwrap_or(u32::MAX);
    if report.slots == 0 || report.slots > limit || report.busy > limit {
        return Err(Refusal::invalid(format!("a daemon has from 1 to {limit} slots")));
    }
    let mut tx = session.app.store.single().await?;
    let (slots, busy) = (i64::from(report.slots), i64::from(report.busy));
    let draining = report.draining || session.held_jobs.is_paused();
    daemons::update_slots(&mut tx, session.daemon, slots, busy, draining).await?;
    Ok(())
}

async fn report_health(session: &Session, report: &HealthReport) -> Result<(), Refusal> {
    let HealthReport { problem, detail } = report;
    // It is printed in terminals.
    let is_plain = |text: &str| !text.chars().any(char::is_control);
    if problem.len() > MAX_PROBLEM_SIZE
        || detail.len() > MAX_PROBLEM_DETAIL_SIZE
        || (problem.is_empty() && !detail.is_empty())
        || !is_plain(problem)
        || !is_plain(detail)
    {
        return Err(Refusal::invalid(format!(
            "a problem is text of at most {MAX_PROBLEM_SIZE} bytes, with a detail of at most {MAX_PROBLEM_DETAIL_SIZE}"
        )));
    }
    let mut tx = session.app.store.single().await?;
    daemons::update_health(&mut tx, session.daemon, problem, detail).await?;
    Ok(())
}

async fn report_program(session: &Session, report: &ProgramReport) -> Result<(), Refusal> {
    let ProgramReport { product, version, .. } = report;
    let is_version = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    if !PRODUCTS.contains(&product.as_str())
        || version.is_empty()
        || version.len() > VERSION_BYTES
        || !version.bytes().all(is_version)
    {
        return Err(Refusal::invalid(
            "a program is terraform or opentofu, and has a version of at most 64 bytes",
        ));
    }
    let (job, holder) = by_token(session, &report.job_id, &report.token)?;
    let mut tx = session.app.store.single().await?;
    match jobs::update_program(&mut tx, job, holder, product, version).await {
        Ok(()) => {}
        Err(coder_store::Error::Stale { .. }) => return Err(not_held()),
        Err(error) => return Err(error.into()),
    }
    drop(tx);
    note_use(session, job, holder).await
}
