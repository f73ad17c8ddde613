//! Extension calls between our own two ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use coder_wire::daemon::{self, Limits, serve_extended};
use coder_wire::drpc::{self, Status};
use coder_wire::extension::messages::notification::Notification as Kind;
use coder_wire::extension::messages::{
    AttachRequest, AttachResponse, Drain, HealthReport, HeldJob, HoldRequest, HoldResponse, JobVerdict,
    JournalHeader, JournalReceipt, LogsRequest, LogsResponse, Notification, ProgramReport, SlotsReport,
    Verdict,
};
use coder_wire::extension::{
    CHUNK_SIZE, Client, Extension, Extensions, Journal, NotificationSender, Service,
};
use coder_wire::messages::provisionerd::{Log, UpdateJobRequest};
use coder_wire::mux::{Config, Session};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::harness::Script;

const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Answers with the request; sends one notification.
#[derive(Debug, Default)]
struct Echo {
    reports: Mutex<Vec<SlotsReport>>,
    programs: Mutex<Vec<ProgramReport>>,
    health: Mutex<Vec<HealthReport>>,
    left: tokio::sync::Notify,
}

impl Service for Echo {
    type State = BytesMut;

    async fn begin_state(&self, header: &JournalHeader, _: bool) -> Result<BytesMut, Status> {
        if header.token == "forged" { Err(Status::new("not yours")) } else { Ok(BytesMut::new()) }
    }

    async fn attach(&self, request: AttachRequest, _: CancellationToken) -> Result<AttachResponse, Status> {
        let verdict = |job: HeldJob| JobVerdict {
            job_id: job.job_id,
            verdict: Verdict::GoOn.into(),
            token: job.token,
            next_sequence: job.next_sequence,
            ..JobVerdict::default()
        };
        let jobs = request.jobs.into_iter().map(verdict).collect();
        Ok(AttachResponse { session: vec![7; 32].into(), jobs, grace_ms: 120_000 })
    }

    async fn hold(&self, request: HoldRequest, _: CancellationToken) -> Result<HoldResponse, Status> {
        match request.job_id.as_str() {
            "mine" => Ok(HoldResponse { token: "t".into(), next_sequence: 1 }),
            _ => Err(Status::new("not yours")),
        }
    }

    async fn logs(&self, request: LogsRequest, _: CancellationToken) -> Result<LogsResponse, Status> {
        let next_sequence = request.first_sequence + request.lines.len() as u64;
        Ok(LogsResponse { next_sequence, canceled: false, overflowed: false })
    }

    async fn journal(
        &self,
        header: JournalHeader,
        state: BytesMut,
        _: CancellationToken,
    ) -> Result<JournalReceipt, Status> {
        Ok(JournalReceipt { serial: header.serial + state.len() as u64, kept: true })
    }

    async fn salvage(
        &self,
        header: JournalHeader,
        _: BytesMut,
        _: CancellationToken,
    ) -> Result<JournalReceipt, Status> {
        Ok(JournalReceipt { serial: header.serial, kept: false })
    }

    async fn report_slots(&self, report: SlotsReport, _: CancellationToken) -> Result<(), Status> {
        self.reports.lock().unwrap().push(report);
        Ok(())
    }

    async fn report_program(&self, report: ProgramReport, _: CancellationToken) -> Result<(), Status> {
        self.programs.lock().unwrap().push(report);
        Ok(())
    }

    async fn report_health(&self, report: HealthReport, _: CancellationToken) -> Result<(), Status> {
        self.health.lock().unwrap().push(report);
        Ok(())
    }

    async fn notifications(&self, notifications: &mut NotificationSender) -> Result<(), Status> {
        let drain = Drain { reason: "maintenance".to_owned() };
        notifications.send(&Notification { notification: Some(Kind::Drain(drain)) }).await.unwrap();
        notifications.closed().await;
        self.left.notify_one();
        Ok(())
    }
}

fn connect(granted: Extensions) -> (Session, Arc<Echo>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let echo = Arc::new(Echo::default());
    let (session, service) = (Session::server(far, Config::default()), Arc::clone(&echo));
    let script = Script::new(None);
    tokio::spawn(async move { serve_extended(&session, script, service, granted, Limits::default()).await });
    (Session::client(near, Config::default()), echo)
}

fn journal(size: usize) -> Journal {
    let state = (0..size).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
    Journal { job_id: "mine".to_owned(), token: "t".into(), serial: 5, lineage: "l".to_owned(), state }
}

#[tokio::test]
async fn every_call_arrives_and_is_answered() {
    let (session, echo) = connect(Extensions::ALL);
    let client = Client::new(session);
    let held = HeldJob { job_id: "mine".to_owned(), token: "t".into(), next_sequence: 9 };
    let attached = client.attach(&AttachRequest { session: Bytes::new(), jobs: vec![held] }).await.unwrap();
    assert_eq!((attached.session.len(), attached.grace_ms), (32, 120_000));
    assert_eq!((attached.jobs[0].verdict(), attached.jobs[0].next_sequence), (Verdict::GoOn, 9));

    let hold = async |job: &str| client.hold(&HoldRequest { job_id: job.to_owned() }).await;
    assert_eq!(hold("mine").await.unwrap().token, "t");
    assert!(matches!(hold("other").await, Err(drpc::Error::Refused(_))));

    let lines = vec![Log::default(); 3];
    let request = LogsRequest { job_id: "mine".to_owned(), token: "t".into(), first_sequence: 4, lines };
    assert_eq!(client.logs(&request).await.unwrap().next_sequence, 7);

    let large = client.journal(&journal(5 * CHUNK_SIZE + 1)).await.unwrap();
    assert_eq!(large, JournalReceipt { serial: 5 + 5 * (CHUNK_SIZE as u64) + 1, kept: true });
    assert_eq!(client.journal(&journal(0)).await.unwrap().serial, 5);
    assert!(!client.salvage(&journal(10)).await.unwrap().kept);
    let forged = Journal { token: "forged".into(), ..journal(3 * CHUNK_SIZE) };
    for refused in [client.journal(&forged).await, client.salvage(&forged).await] {
        assert!(refused.unwrap_err().to_string().contains("not yours"), "at the announcement");
    }
    assert!(client.journal(&journal(1)).await.unwrap().kept, "the connection continues");

    let report = SlotsReport { slots: 4, busy: 1, draining: false };
    client.report_slots(&report).await.unwrap();
    assert_eq!(*echo.reports.lock().unwrap(), [report]);

    let program = ProgramReport {
        job_id: "mine".to_owned(),
        token: "t".into(),
        product: "opentofu".to_owned(),
        version: "1.10.6".to_owned(),
    };
    client.report_program(&program).await.unwrap();
    assert_eq!(*echo.programs.lock().unwrap(), [program]);

    let health = HealthReport { problem: "no Terraform".to_owned(), detail: "install one".to_owned() };
    client.report_health(&health).await.unwrap();
    assert_eq!(*echo.health.lock().unwrap(), [health]);

    let mut notifications = client.notifications().await.unwrap();
    let notification = timeout(WAIT_LIMIT, notifications.next()).await.unwrap().unwrap().unwrap();
    assert!(
        matches!(notification.notification, Some(Kind::Drain(Drain { reason })) if reason == "maintenance")
    );
    drop(notifications);
    timeout(WAIT_LIMIT, echo.left.notified()).await.unwrap();
}

#[tokio::test]
async fn a_request_of_the_largest_size_is_sent() {
    let client = Client::new(connect(Extensions::ALL).0);
    // A tag and a length of four bytes.
    let hold = async |size: usize| client.hold(&HoldRequest { job_id: "x".repeat(size - 5) }).await;
    let sent = hold(drpc::MAX_MESSAGE_SIZE).await;
    assert!(matches!(&sent, Err(drpc::Error::Refused(status)) if status.text == "not yours"), "{sent:?}");
    let too_large = hold(drpc::MAX_MESSAGE_SIZE + 1).await;
    assert!(matches!(too_large, Err(drpc::Error::TooLarge { .. })), "{too_large:?}");
}

/// Which calls exist follows from what was granted; the others are answered like any unknown name.
#[tokio::test]
async fn a_call_that_was_not_granted_is_unknown() {
    let calls = async |granted: Extensions| {
        let client = Client::new(connect(granted).0);
        let exists = |result: Result<(), drpc::Error>| match result {
            Ok(()) => true,
            Err(drpc::Error::Refused(status)) => !status.text.contains("unknown call"),
            Err(error) => panic!("{error}"),
        };
        let hold = HoldRequest { job_id: "mine".to_owned() };
        let logs = LogsRequest::default();
        let notifications = async { client.notifications().await?.next().await.map(drop) };
        [
            exists(client.attach(&AttachRequest::default()).await.map(drop)),
            exists(client.hold(&hold).await.map(drop)),
            exists(client.logs(&logs).await.map(drop)),
            exists(client.journal(&journal(1)).await.map(drop)),
            exists(client.salvage(&journal(1)).await.map(drop)),
            exists(client.report_slots(&SlotsReport::default()).await),
            exists(client.report_program(&ProgramReport::default()).await),
            exists(client.report_health(&HealthReport::default()).await),
            exists(notifications.await),
        ]
    };
    let [yes, no] = [true, false];
    assert_eq!(calls(Extensions::NONE).await, [no; 9]);
    assert_eq!(calls(Extensions::ALL).await, [yes; 9]);
    for (extension, expected) in [
        (Extension::Resume, [yes, yes, no, no, no, no, no, no, no]),
        (Extension::Logs, [yes, yes, yes, no, no, no, no, no, no]),
        (Extension::Journal, [yes, yes, no, yes, yes, no, no, no, no]),
        (Extension::Slots, [yes, no, no, no, no, yes, no, no, no]),
        (Extension::Program, [yes, yes, no, no, no, no, yes, no, no]),
        (Extension::Health, [yes, no, no, no, no, no, no, yes, no]),
        (Extension::Drain, [yes, no, no, no, no, no, no, no, yes]),
        (Extension::Cancel, [yes, no, no, no, no, no, no, no, yes]),
    ] {
        assert_eq!(calls(Extensions::NONE.with(extension)).await, expected, "{extension:?}");
    }
}

#[tokio::test]
async fn a_state_that_is_too_long_or_ends_early_is_refused() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let session = Session::server(far, Config::default());
    let limits = Limits { state_bytes: 10, ..Limits::default() };
    let (script, echo) = (Script::new(None), Arc::new(Echo::default()));
    tokio::spawn(async move { serve_extended(&session, script, echo, Extensions::ALL, limits).await });
    let client = Client::new(Session::client(near, Config::default()));
    assert!(client.journal(&journal(10)).await.is_ok());
    match client.journal(&journal(11)).await {
        Err(drpc::Error::Refused(status)) => assert!(status.text.contains("limit"), "{status}"),
        other => panic!("{other:?}"),
    }
}

/// Acquires and notifications wait for hours, so they must not take the places of calls that work.
#[tokio::test]
async fn waiting_calls_block_no_others_and_calls_at_work_are_read_permit_by_permit() {
    let (session, _echo) = connect(Extensions::ALL);
    let official = daemon::Client::new(session.clone());
    let extensions = Client::new(session);
    let mut waiting = Vec::new();
    for _ in 0..Limits::default().calls {
        let client = official.clone();
        waiting.push(tokio::spawn(async move {
            let _ = client.acquire(std::future::pending()).await;
        }));
        let mut notifications = extensions.notifications().await.unwrap();
        notifications.next().await.unwrap();
        waiting.push(tokio::spawn(async move {
            let _ = notifications.next().await;
        }));
    }
    let update = |job: &str| UpdateJobRequest { job_id: job.to_owned(), ..UpdateJobRequest::default() };
    timeout(WAIT_LIMIT, official.update_job(&update("job"))).await.unwrap().unwrap();

    let mut at_work = Vec::new();
    for _ in 0..Limits::default().calls {
        let (client, request) = (official.clone(), update("wait"));
        at_work.push(tokio::spawn(async move { client.update_job(&request).await.map(drop) }));
    }
    let client = official.clone();
    let request = update("job");
    let mut late = tokio::spawn(async move { client.update_job(&request).await });
    assert!(timeout(Duration::from_millis(200), &mut late).await.is_err(), "a 17th call is not read yet");
    at_work.pop().unwrap().abort();
    timeout(WAIT_LIMIT, late).await.unwrap().unwrap().unwrap();
}
