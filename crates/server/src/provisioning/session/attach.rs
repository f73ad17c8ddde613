//! Attach: identifies the daemon process of a connection, and resumes its jobs (docs/extensions.md, Attach).

use bytes::Bytes;
use coder_domain::Timestamp;
use coder_domain::ids::JobId;
use coder_domain::job::TransitionError;
use coder_domain::job::lifecycle::{Cause, Ending, Guard};
use coder_domain::key::Sha256Digest;
use coder_store::daemons::{self, DrainRequest};
use coder_store::jobs::{self, JobLease};
use coder_store::{Error, Tx, transaction};
use coder_wire::extension::messages::{AttachRequest, AttachResponse, HeldJob, JobVerdict, Verdict};
use coder_wire::extension::{MAX_SLOTS, MAX_TOKEN_SIZE, SESSION_SIZE};
use sha2::{Digest, Sha256};

use super::Session;
use crate::authn::token;
use crate::provisioning::reports::complete;
use crate::provisioning::reports::refusal::{self, Refusal};
use crate::provisioning::rescue::end_job::end_job;

/// A job that this connection holds from now on.
struct ResumedJob {
    held: JobLease,
    token: Option<Bytes>,
}

/// The result of the transaction.
struct AttachOutcome {
    known: bool,
    verdicts: Vec<JobVerdict>,
    resumed: Vec<ResumedJob>,
    /// Handed out, but never delivered.
    undelivered: Vec<JobId>,
    drain: Option<DrainRequest>,
}

/// Hash of a session or a token.
#[must_use]
pub fn hash(secret: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(secret).into())
}

/// A fresh token.
pub(crate) fn fresh() -> Bytes {
    let mut secret = vec![0; SESSION_SIZE];
    token::random(&mut secret);
    secret.into()
}

/// Bytes of a session that hold the start time of its process.
const TIME_BYTES: usize = 8;

/// A fresh session of a process that started at `since`. The remaining bytes are random.
#[must_use]
pub fn fresh_session(since: Timestamp) -> Bytes {
    let mut secret = vec![0; SESSION_SIZE];
    token::random(&mut secret[TIME_BYTES..]);
    secret[..TIME_BYTES].copy_from_slice(&since.as_microsecond().to_be_bytes());
    secret.into()
}

/// When the process of a session started. A daemon that changes it can only escape a drain, which it could ignore anyway.
fn since(session: &[u8], now: Timestamp) -> Timestamp {
    let micros = session.first_chunk::<TIME_BYTES>().map(|bytes| i64::from_be_bytes(*bytes));
    micros.and_then(|micros| Timestamp::from_microsecond(micros).ok()).map_or(now, |at| at.min(now))
}

/// Answers one call.
pub(crate) async fn attach(session: &Session, request: &AttachRequest) -> Result<AttachResponse, Refusal> {
    let app = &session.app;
    if session.held_jobs.session().is_some() {
        return Err(Refusal::invalid("attach is the first call of a connection, and made once"));
    }
    if !request.session.is_empty() && request.session.len() != SESSION_SIZE {
        return Err(Refusal::invalid(format!("a session has {SESSION_SIZE} bytes")));
    }
    if request.jobs.len() > MAX_SLOTS || request.jobs.iter().any(|job| job.token.len() > MAX_TOKEN_SIZE) {
        return Err(Refusal::invalid(format!(
            "at most {MAX_SLOTS} jobs with tokens of at most {MAX_TOKEN_SIZE} bytes"
        )));
    }
    let resumes = session.resumes();
    let listed = if resumes { &request.jobs[..] } else { &[] };
    let presented = (!request.session.is_empty()).then(|| hash(&request.session));
    let now = app.now();
    let outcome = match presented {
        Some(presented) => {
            transaction!(app.store, Refusal, |tx| { resume_jobs(tx, session, presented, listed, now).await })?
        }
        None => AttachOutcome {
            known: false,
            verdicts: all_lost(listed),
            resumed: vec![],
            undelivered: vec![],
            drain: None,
        },
    };
    let started_at = if presented.is_some() { since(&request.session, now) } else { now };
    let own = match &session.preset {
        Some(preset) => preset.clone(),
        None if outcome.known => request.session.clone(),
        None => fresh_session(started_at),
    };
    for ResumedJob { held, token } in outcome.resumed {
        session.held_jobs.hold(held.id, Some(held.attempt), token, held.canceled_at);
        if held.previous_token_hash.is_some() {
            session.held_jobs.expect_token_use(held.id);
        }
    }
    app.scheduler.connected().attach(&session.registration, hash(&own), started_at);
    // It was drained while it was disconnected, or on another server.
    if let Some(drain) = outcome.drain.filter(|drain| started_at <= drain.asked_at) {
        session.held_jobs.drain(&drain.reason);
    }
    for job in outcome.undelivered {
        let ending = Ending { guard: Guard::HeldBy(session.daemon), cause: Cause::NotDelivered };
        end_job(app, job, &ending).await?;
    }
    let grace = if resumes { app.config.provisioning.daemon_grace } else { std::time::Duration::ZERO };
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    Ok(AttachResponse { session: own, jobs: outcome.verdicts, grace_ms })
}

async fn resume_jobs(
    tx: &mut Tx,
    session: &Session,
    presented: Sha256Digest,
    listed: &[HeldJob],
    now: Timestamp,
) -> Result<AttachOutcome, Refusal> {
    let is_own = |held: &JobLease| held.session_hash.is_some_and(|own| own.verify(&presented));
    let open: Vec<JobLease> = jobs::list_held(tx, session.daemon).await?.into_iter().filter(is_own).collect();
    let mut known = !open.is_empty() || session.app.scheduler.connected().is_attached(&presented);
    let (mut verdicts, mut resumed, mut undelivered) = (Vec::new(), Vec::new(), Vec::new());
    for job in listed {
        let found = match refusal::job_id(&job.job_id) {
            Ok(id) => jobs::find_held(tx, id, session.daemon).await?.filter(is_own),
            Err(_) => None,
        };
        let Some(found) = found else {
            verdicts.push(lost(&job.job_id, "the job is not this daemon process's"));
            continue;
        };
        known = true;
        let is_repeated = resumed.iter().any(|resumed: &ResumedJob| resumed.held.id == found.id);
        let verdict = if is_repeated {
            lost(&job.job_id, "the job is listed twice")
        } else {
            decide(tx, session, presented, job, found.id, now, &mut resumed).await?
        };
        verdicts.push(verdict);
    }
    for held in open {
        if resumed.iter().any(|resumed: &ResumedJob| resumed.held.id == held.id) {
            continue;
        }
        let is_listed = listed.iter().any(|job| job.job_id == held.id.to_string());
        // Reports of the older connection are refused from now on.
        let held = jobs::resume(tx, held.id, session.daemon, presented, None, hash(&fresh()), now).await?;
        if !session.resumes() {
            resumed.push(ResumedJob { held, token: None });
        } else if !is_listed {
            undelivered.push(held.id);
        }
    }
    let drain = daemons::list_drains(tx, &[session.daemon]).await?.pop();
    Ok(AttachOutcome { known, verdicts, resumed, undelivered, drain })
}

async fn decide(
    tx: &mut Tx,
    session: &Session,
    presented: Sha256Digest,
    job: &HeldJob,
    id: JobId,
    now: Timestamp,
    resumed: &mut Vec<ResumedJob>,
) -> Result<JobVerdict, Refusal> {
    let fresh = fresh();
    // The session identifies the process. It may present an older token, when the answer with the newer one was lost.
    let presented_token = (!job.token.is_empty()).then(|| hash(&job.token));
    match jobs::resume(tx, id, session.daemon, presented, presented_token, hash(&fresh), now).await {
        Ok(held) => {
            let verdict = JobVerdict {
                job_id: job.job_id.clone(),
                verdict: Verdict::GoOn as i32,
                token: fresh.clone(),
                next_sequence: next_sequence(&held),
                canceled: held.canceled_at.is_some(),
                reason: String::new(),
            };
            resumed.push(ResumedJob { held, token: Some(fresh) });
            Ok(verdict)
        }
        Err(Error::Stale { .. }) => {
            let row = jobs::find(tx, id).await?.ok_or(Refusal::NoSuchJob)?;
            Ok(ended(&job.job_id, &row))
        }
        Err(error) => Err(error.into()),
    }
}

/// The verdict for a job that cannot be resumed.
fn ended(id: &str, row: &jobs::Job) -> JobVerdict {
    if row.completed_at.is_none() {
        return lost(id, &TransitionError::Superseded.to_string());
    }
    if complete::accepted(row).is_some() {
        let reason = "the job's result is recorded".to_owned();
        return JobVerdict { verdict: Verdict::Ended as i32, reason, ..lost(id, "") };
    }
    lost(id, if row.error.is_empty() { "the server has ended the job" } else { &row.error })
}

fn lost(id: &str, reason: &str) -> JobVerdict {
    let (verdict, reason) = (Verdict::Lost as i32, reason.to_owned());
    JobVerdict { job_id: id.to_owned(), verdict, reason, ..JobVerdict::default() }
}

fn all_lost(listed: &[HeldJob]) -> Vec<JobVerdict> {
    listed.iter().map(|job| lost(&job.job_id, "a daemon process without a session has no jobs")).collect()
}

/// Number of the first log line that is not stored.
pub(crate) fn next_sequence(held: &JobLease) -> u64 {
    u64::try_from(held.logs_sequence).unwrap_or_default() + 1
}
