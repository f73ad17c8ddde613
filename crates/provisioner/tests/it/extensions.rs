//! The server side of granted extensions, as specified in docs/extensions.md.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use coder_wire::drpc::server::{CallStream, Event};
use coder_wire::drpc::{Error, Status};
use coder_wire::extension::messages::notification::Notification as Kind;
use coder_wire::extension::messages::{
    AttachRequest, AttachResponse, HealthReceipt, HealthReport, HoldRequest, HoldResponse, JobVerdict,
    JournalHeader, JournalPiece, JournalReceipt, LogsRequest, LogsResponse, Notification, ProgramReceipt,
    ProgramReport, SlotsReceipt, SlotsReport, Verdict,
};
use coder_wire::extension::{Extensions, Journal, MAX_STATE_SIZE, SESSION_SIZE, StateTransfer};
use coder_wire::messages::provisionerd as pb;
use coder_wire::transfer::Transfer as _;
use tokio::sync::watch;

use crate::fake_server::{Record, answer_with, request};

/// A job as the server knows it.
#[derive(Default)]
struct Job {
    tokens: u64,
    stored: u64,
    over: Option<(Verdict, &'static str)>,
    canceled: bool,
}

impl Job {
    fn token(&self) -> Bytes {
        format!("token {}", self.tokens).into()
    }
}

/// What the server has granted, and the state of these extensions.
pub(crate) struct Extended {
    granted: Mutex<Extensions>,
    jobs: Mutex<HashMap<String, Job>>,
    notifications: watch::Sender<Vec<Kind>>,
    /// This many answers to Logs are lost after the lines were stored.
    lost_answers: Mutex<usize>,
    pub(crate) grace_ms: Mutex<i64>,
}

impl Default for Extended {
    fn default() -> Self {
        Self {
            granted: Mutex::new(Extensions::NONE),
            jobs: Mutex::default(),
            notifications: watch::Sender::default(),
            lost_answers: Mutex::default(),
            grace_ms: Mutex::new(120_000),
        }
    }
}

impl Extended {
    pub(crate) fn grant(&self, extensions: Extensions) {
        *self.granted.lock().unwrap() = extensions;
    }

    pub(crate) fn granted(&self) -> Extensions {
        *self.granted.lock().unwrap()
    }

    pub(crate) fn say(&self, notification: Kind) {
        self.notifications.send_modify(|notifications| notifications.push(notification));
    }

    pub(crate) fn end(&self, job_id: &str, verdict: Verdict, reason: &'static str) {
        self.jobs.lock().unwrap().entry(job_id.to_owned()).or_default().over = Some((verdict, reason));
    }

    pub(crate) fn cancel(&self, job_id: &str) {
        self.jobs.lock().unwrap().entry(job_id.to_owned()).or_default().canceled = true;
    }

    pub(crate) fn lose_answers(&self, count: usize) {
        *self.lost_answers.lock().unwrap() = count;
    }

    /// Answers a call of an extension; returns false for other calls.
    pub(crate) async fn call(
        &self,
        method: &str,
        call: &mut CallStream,
        record: &watch::Sender<Record>,
    ) -> Result<bool, Error> {
        match method {
            "Attach" => {
                let request = request(call).await?;
                let answer = self.attach(&request);
                record.send_modify(|record| record.attaches.push(request));
                answer_with(call, &answer).await?;
            }
            "Hold" => {
                let request: HoldRequest = request(call).await?;
                let answer = {
                    let mut jobs = self.jobs.lock().unwrap();
                    let job = jobs.entry(request.job_id).or_default();
                    HoldResponse { token: job.token(), next_sequence: job.stored + 1 }
                };
                answer_with(call, &answer).await?;
            }
            "Logs" => self.logs(call, record).await?,
            "Journal" => {
                let journal = journal(call).await?;
                if !self.holds(&journal.job_id, &journal.token) {
                    call.fail(&Status::new("the token is not the newest")).await?;
                    return Ok(true);
                }
                let serial = journal.serial;
                record.send_modify(|record| record.journals.push(journal));
                answer_with(call, &JournalReceipt { serial, kept: true }).await?;
            }
            "Salvage" => {
                let journal = journal(call).await?;
                let serial = journal.serial;
                record.send_modify(|record| record.salvages.push(journal));
                answer_with(call, &JournalReceipt { serial, kept: true }).await?;
            }
            "ReportSlots" => {
                let report: SlotsReport = request(call).await?;
                record.send_modify(|record| record.slots.push(report));
                answer_with(call, &SlotsReceipt {}).await?;
            }
            "ReportProgram" => {
                let report: ProgramReport = request(call).await?;
                if !self.holds(&report.job_id, &report.token) {
                    call.fail(&Status::new("the token is not the newest")).await?;
                    return Ok(true);
                }
                record.send_modify(|record| record.programs.push(report));
                answer_with(call, &ProgramReceipt {}).await?;
            }
            "ReportHealth" => {
                let report: HealthReport = request(call).await?;
                record.send_modify(|record| record.health.push(report));
                answer_with(call, &HealthReceipt {}).await?;
            }
            "Notices" => self.notifications(call).await?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn holds(&self, job_id: &str, token: &Bytes) -> bool {
        self.jobs.lock().unwrap().get(job_id).is_some_and(|job| job.token() == *token && job.over.is_none())
    }

    fn attach(&self, request: &AttachRequest) -> AttachResponse {
        let mut jobs = self.jobs.lock().unwrap();
        let verdicts = request.jobs.iter().map(|held| {
            let job = jobs.entry(held.job_id.clone()).or_default();
            let mut verdict = JobVerdict { job_id: held.job_id.clone(), ..JobVerdict::default() };
            match job.over {
                Some((over, reason)) => {
                    verdict.set_verdict(over);
                    verdict.reason = reason.to_owned();
                }
                None => {
                    job.tokens += 1;
                    verdict.set_verdict(Verdict::GoOn);
                    verdict.token = job.token();
                    verdict.next_sequence = job.stored + 1;
                    verdict.canceled = job.canceled;
                }
            }
            verdict
        });
        let jobs = verdicts.collect();
        AttachResponse {
            session: vec![1; SESSION_SIZE].into(),
            jobs,
            grace_ms: *self.grace_ms.lock().unwrap(),
        }
    }

    async fn logs(&self, call: &mut CallStream, record: &watch::Sender<Record>) -> Result<(), Error> {
        let request: LogsRequest = request(call).await?;
        if !self.holds(&request.job_id, &request.token) {
            return call.fail(&Status::new("the token is not the newest")).await;
        }
        let (answer, new) = {
            let mut jobs = self.jobs.lock().unwrap();
            let job = jobs.get_mut(&request.job_id).unwrap();
            let known = (job.stored + 1).saturating_sub(request.first_sequence);
            let mut new = Vec::new();
            if request.first_sequence <= job.stored + 1 {
                new = request.lines.into_iter().skip(usize::try_from(known).unwrap()).collect();
                job.stored += new.len() as u64;
            }
            let canceled = job.canceled;
            (LogsResponse { next_sequence: job.stored + 1, canceled, overflowed: false }, new)
        };
        record.send_modify(|record| {
            record.numbered += new.len();
            let job_id = request.job_id;
            record.update(pb::UpdateJobRequest { job_id, logs: new, ..Default::default() });
        });
        let lost = {
            let mut left = self.lost_answers.lock().unwrap();
            let lost = *left > 0;
            *left = left.saturating_sub(1);
            lost
        };
        if lost { call.close().await } else { answer_with(call, &answer).await }
    }

    async fn notifications(&self, call: &mut CallStream) -> Result<(), Error> {
        let _: coder_wire::extension::messages::NotificationsRequest = request(call).await?;
        let mut notifications = self.notifications.subscribe();
        let mut said = 0;
        loop {
            let next: Vec<Kind> = notifications.borrow_and_update()[said..].to_vec();
            said += next.len();
            for notification in next {
                call.send(&Notification { notification: Some(notification) }).await?;
                call.flush().await?;
            }
            tokio::select! {
                changed = notifications.changed() => if changed.is_err() { return Ok(()) },
                event = call.recv() => if !matches!(event, Ok(Event::CloseSend)) { return Ok(()) },
            }
        }
    }
}

async fn journal(call: &mut CallStream) -> Result<Journal, Error> {
    let first: JournalPiece = request(call).await?;
    let (mut transfer, header) = StateTransfer::begin(first, MAX_STATE_SIZE).unwrap();
    let mut state = Vec::new();
    while !transfer.is_complete().unwrap() {
        state.extend_from_slice(&transfer.take(request(call).await?).unwrap());
    }
    let JournalHeader { job_id, token, serial, lineage, .. } = header;
    Ok(Journal { job_id, token, serial, lineage, state: state.into() })
}
