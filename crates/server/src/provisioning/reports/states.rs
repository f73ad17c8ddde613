//! Terraform states that arrive while a job runs, or after it ended (docs/extensions.md, Journal and Salvage).

use coder_domain::ids::{BuildId, JobId};
use coder_domain::job::Type;
use coder_domain::job::lifecycle::{Cause, Ending, Guard};
use coder_domain::key::Sha256Digest;
use coder_store::jobs::journals::{self, PutOutcome, StateVersion};
use coder_store::jobs::{self, Job, JobLease};
use coder_store::workspaces::builds;
use coder_store::{Tx, transaction};
use coder_wire::extension::messages::{JournalHeader, JournalReceipt};
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::module_files::disk;
use super::refusal::{self, Refusal};
use crate::provisioning::rescue::end_job::end_job;
use crate::provisioning::session::Session;
use crate::provisioning::session::attach::hash;
use crate::provisioning::session::extensions::{by_token, note_use};
use crate::spool::Spool;

/// Longer states are processed one at a time, because encrypting and storing a state takes several copies in memory.
const LARGE_STATE_BYTES: usize = 1 << 20;
static LONG_STATES: Semaphore = Semaphore::const_new(1);

/// Waits until a state of this length may be loaded.
async fn long_state_permit(state: &Spool) -> Option<SemaphorePermit<'static>> {
    // The semaphore is never closed.
    if state.size() > LARGE_STATE_BYTES { LONG_STATES.acquire().await.ok() } else { None }
}

/// Whether the daemon may send a state of this job. It is checked before the state is read.
pub(crate) async fn begin(
    session: &Session,
    header: &JournalHeader,
    salvaged: bool,
) -> Result<Spool, Refusal> {
    version(header)?;
    if salvaged {
        salvageable(session, header).await?;
    } else {
        by_token(session, &header.job_id, &header.token)?;
    }
    Ok(Spool::new(&session.holds, &session.app.memory))
}

/// Stores a state of a running job.
pub(crate) async fn journal(
    session: &Session,
    header: &JournalHeader,
    state: &mut Spool,
) -> Result<JournalReceipt, Refusal> {
    let (job, holder) = by_token(session, &header.job_id, &header.token)?;
    let (version, now) = (version(header)?, session.app.now());
    let _permit = long_state_permit(state).await;
    let outcome = transaction!(session.app.store, Refusal, |tx| {
        // This statement comes first: it checks the holder, and updates the time of the job's last update.
        if let Err(error) = jobs::update_alive(tx, job, holder, now).await {
            return Err(refusal::explain(tx, session, job, holder, error).await);
        }
        let build = build_of(&jobs::get(tx, job).await?)?;
        let base = base(tx, job, build).await?;
        let state = state.content().map_err(disk)?;
        Ok(journals::put(tx, job, &version, state, base.as_ref(), now).await?)
    })?;
    note_use(session, job, holder).await?;
    receipt(outcome)
}

/// Whether a token proves that its sender has the directory of the job's last holder. The answer with the newest token may
/// have been lost, so the previous one is valid until the newest is used.
fn proves(held: &JobLease, token: &[u8]) -> bool {
    let token = hash(token);
    let is = |known: Option<Sha256Digest>| known.is_some_and(|known| known.verify(&token));
    is(held.token_hash) || is(held.previous_token_hash)
}

fn not_the_last() -> Refusal {
    Refusal::invalid("the state is outdated: the token is not the job's last")
}

/// The job of a state, if its sender has the directory of the job's last holder.
async fn salvageable(session: &Session, header: &JournalHeader) -> Result<(JobId, JobLease), Refusal> {
    let job = refusal::job_id(&header.job_id)?;
    let held = jobs::find_held(&mut session.app.store.reader().await?, job, session.daemon).await?;
    let held = held.filter(|held| proves(held, &header.token)).ok_or_else(not_the_last)?;
    Ok((job, held))
}

/// Stores the state that a killed process saved.
pub(crate) async fn salvage(
    session: &Session,
    header: &JournalHeader,
    state: &mut Spool,
) -> Result<JournalReceipt, Refusal> {
    let app = &session.app;
    let (job, held) = salvageable(session, header).await?;
    let version = version(header)?;
    let _permit = long_state_permit(state).await;
    if held.completed_at.is_none() {
        let ending = Ending { guard: Guard::HeldBy(session.daemon), cause: Cause::DaemonProcessGone };
        end_job(app, job, &ending).await?;
    }
    let now = app.now();
    let (outcome, workspace) = transaction!(app.store, Refusal, |tx| {
        let row = jobs::get(tx, job).await?;
        let held = jobs::find_held(tx, job, session.daemon).await?;
        if row.completed_at.is_none() || !held.is_some_and(|held| proves(&held, &header.token)) {
            return Err(not_the_last());
        }
        let build = builds::get(tx, build_of(&row)?).await?;
        let latest = builds::find_latest(tx, build.workspace_id).await?;
        if latest.is_none_or(|latest| latest.id != build.id) {
            return Err(Refusal::invalid("the workspace has been built again since"));
        }
        let base = base(tx, job, build.id).await?;
        let state = state.content().map_err(disk)?;
        let outcome = journals::put(tx, job, &version, state, base.as_ref(), now).await?;
        if outcome.kept {
            journals::apply(tx, job, build.id).await?;
        }
        Ok((outcome, build.workspace_id))
    })?;
    if outcome.kept {
        app.events.workspace_changed(workspace);
        tracing::info!(job_id = %job, serial = outcome.serial, "the state of a killed daemon was saved");
    }
    receipt(outcome)
}

fn build_of(job: &Job) -> Result<BuildId, Refusal> {
    let build = job.workspace_build_id.filter(|_| job.kind == Type::WorkspaceBuild);
    build.ok_or_else(|| Refusal::invalid("only a workspace build has a state"))
}

/// The version of a state. Its hash was checked on arrival.
fn version(header: &JournalHeader) -> Result<StateVersion, Refusal> {
    let serial =
        i64::try_from(header.serial).map_err(|_| Refusal::invalid("the serial of the state is too large"))?;
    let sha256 =
        <[u8; 32]>::try_from(&header.sha256[..]).map_err(|_| Refusal::invalid("a hash has 32 bytes"))?;
    Ok(StateVersion { serial, lineage: header.lineage.clone(), sha256: Sha256Digest(sha256) })
}

fn receipt(outcome: PutOutcome) -> Result<JournalReceipt, Refusal> {
    let serial = u64::try_from(outcome.serial).unwrap_or_default();
    Ok(JournalReceipt { serial, kept: outcome.kept })
}

/// The fields of a state that identify its version.
#[derive(Deserialize)]
struct StateHeader {
    #[serde(default)]
    serial: i64,
    #[serde(default)]
    lineage: String,
}

/// The version of the state that the build has or began with; `None` without a state, or when it is not Terraform's.
async fn base(tx: &mut Tx, job: JobId, build: BuildId) -> Result<Option<StateVersion>, Refusal> {
    if journals::find_version(tx, job).await?.is_some() {
        // The journal compares with its own version.
        return Ok(None);
    }
    let state = match builds::find_state(tx, build).await? {
        Some(own) => Some(own),
        None => begun_with(tx, build).await?,
    };
    let Some(state) = state.filter(|state| !state.is_empty()) else { return Ok(None) };
    let head: Option<StateHeader> = serde_json::from_slice(&state).ok();
    let head = head.filter(|head| !head.lineage.is_empty());
    Ok(head.map(|head| StateVersion { serial: head.serial, lineage: head.lineage, sha256: hash(&state) }))
}

async fn begun_with(tx: &mut Tx, build: BuildId) -> Result<Option<Vec<u8>>, Refusal> {
    let build = builds::get(tx, build).await?;
    let before = builds::find_by_number(tx, build.workspace_id, build.build_number - 1).await?;
    match before {
        Some(before) => Ok(builds::find_state(tx, before.id).await?),
        None => Ok(None),
    }
}
