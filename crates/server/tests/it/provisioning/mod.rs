//! Provisioner daemons: joining, waiting, reporting. They use the real protocol over memory.

mod acquire;
mod answers;
mod audit_entries;
mod builtin;
mod clock;
mod daemon_process;
mod database_outage;
mod deleted_tokens;
mod explain;
mod external_auth_tokens;
mod failing_daemons;
mod fault_injection;
mod followers;
mod idle;
mod join;
mod keys;
mod lists;
mod lost_notifications;
mod many_daemons;
mod metrics;
mod official_drain;
mod owner_credentials;
mod polling;
mod presence;
mod reap;
mod removed_users;
mod replicas;
mod report;
mod schedules;
mod sessions;
mod statement_counts;
mod uploads;
mod user_daemons;
mod zero_trust;

use std::collections::BTreeMap;
use std::time::Duration;

use coder_domain::ids::{DaemonId, JobId, KeyId, TemplateVersionId, UserId};
use coder_domain::job::Status;
use coder_domain::protocol;
use coder_domain::tags::TagSet;
use coder_server::provisioning::session::Session;
use coder_store::daemons::{self, NewDaemon};
use coder_store::jobs::{self, Job};
use coder_testkit::wait::{WAIT_LIMIT, eventually, poll_until, settled};
use coder_wire::daemon::{Client, Error};
use coder_wire::messages::provisioner::{LogLevel, Resource, TemplateVariable};
use coder_wire::messages::provisionerd::{
    AcquiredJob, CompletedJob, FailedJob, Log, UpdateJobRequest, UpdateJobResponse, completed_job,
};
use coder_wire::mux;
use serde_json::{Value, json};

use crate::harness::TestServer;

/// A daemon over memory.
struct Daemon {
    id: DaemonId,
    calls: Client,
}

impl Daemon {
    async fn untagged(server: &TestServer, name: &str) -> Self {
        Self::join(server, name, KeyId::USER_AUTH, &[]).await
    }

    async fn tagged(server: &TestServer, name: &str, tags: &[(&str, &str)]) -> Self {
        Self::join(server, name, KeyId::USER_AUTH, tags).await
    }

    async fn join(server: &TestServer, name: &str, key_id: KeyId, tags: &[(&str, &str)]) -> Self {
        Self::join_for(server, name, key_id, UserId::NIL, tags).await
    }

    async fn join_for(
        server: &TestServer,
        name: &str,
        key_id: KeyId,
        user: UserId,
        tags: &[(&str, &str)],
    ) -> Self {
        let app = &server.app;
        let tags: BTreeMap<_, _> = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let join = NewDaemon {
            organization_id: app.default_organization,
            name: name.to_owned(),
            key_id,
            provisioners: vec!["terraform".to_owned()],
            tags: TagSet::canonical(user, [&tags]),
            version: String::new(),
            api_version: protocol::CURRENT.to_string(),
        };
        let id = daemons::upsert(&mut app.store.single().await.unwrap(), &join, app.now()).await.unwrap();
        let (near, far) = tokio::io::duplex(64 << 10);
        let session = Session::new(app.clone(), id, &join, "http://coder.test".to_owned());
        app.lifecycle.spawn("session", session.run(near));
        Self { id, calls: Client::new(mux::Session::client(far, mux::Config::default())) }
    }

    async fn acquire(&self) -> AcquiredJob {
        let waiting = self.calls.acquire(std::future::pending());
        tokio::time::timeout(WAIT_LIMIT, waiting).await.unwrap().unwrap().unwrap()
    }

    async fn update(&self, job: JobId, lines: usize) -> Result<UpdateJobResponse, Error> {
        let logs = (0..lines).map(|at| line(&format!("line {at}"))).collect();
        let request = UpdateJobRequest { job_id: job.to_string(), logs, ..UpdateJobRequest::default() };
        self.calls.update_job(&request).await
    }

    async fn fail(&self, job: JobId, error: &str) -> Result<(), Error> {
        let failed = FailedJob { job_id: job.to_string(), error: error.to_owned(), ..FailedJob::default() };
        self.calls.fail_job(&failed).await
    }

    /// Waits for a job that must be `want`.
    async fn take(&self, want: JobId) {
        assert_eq!(self.acquire().await.job_id, want.to_string());
    }
}

fn line(output: &str) -> Log {
    Log {
        source: 1,
        level: LogLevel::Info as i32,
        created_at: 1_780_000_000_000,
        stage: "Plan".to_owned(),
        output: output.to_owned(),
    }
}

fn variable(name: &str, default: &str, required: bool) -> TemplateVariable {
    TemplateVariable {
        name: name.to_owned(),
        default_value: default.to_owned(),
        required,
        ..TemplateVariable::default()
    }
}

fn import_result(job: JobId, resources: Vec<Resource>) -> CompletedJob {
    let import = completed_job::TemplateImport { start_resources: resources, ..Default::default() };
    CompletedJob { job_id: job.to_string(), r#type: Some(completed_job::Type::TemplateImport(import)) }
}

fn build_result(job: JobId, state: &'static [u8]) -> CompletedJob {
    let build = completed_job::WorkspaceBuild { state: state.into(), ..Default::default() };
    CompletedJob { job_id: job.to_string(), r#type: Some(completed_job::Type::WorkspaceBuild(build)) }
}

fn resource(name: &str) -> Resource {
    Resource { name: name.to_owned(), r#type: "terraform_data".to_owned(), ..Resource::default() }
}

/// The error text of a refused call.
#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.unwrap_err().to_string()
}

async fn job(server: &TestServer, id: JobId) -> Job {
    jobs::get(&mut server.app.store.reader().await.unwrap(), id).await.unwrap()
}

/// Waits until a job satisfies a condition.
async fn until(server: &TestServer, id: JobId, done: impl Fn(&Job) -> bool) -> Job {
    poll_until("the job as it should be", async || Some(job(server, id).await).filter(&done)).await
}

/// Waits until this number of daemons is waiting, in this number of domains.
async fn all_wait(server: &TestServer, size: (usize, usize)) {
    eventually("this many daemons wait", || server.app.scheduler.size() == size).await;
}

/// Waits until no daemon is connected.
async fn all_gone(server: &TestServer) {
    eventually("all daemons have disconnected", || server.app.scheduler.connected().is_empty()).await;
}

/// Waits until no statement runs.
async fn quiet(server: &TestServer) {
    settled(|| server.app.store.statement_counts()).await;
}

/// Lets this many seconds pass for the timers of a server on SQLite. The clock of the runtime is paused, so no real
/// time passes: the clock moves to the next timer whenever no task can run.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// A waiting import with these tags.
async fn import(server: &TestServer, token: &str, tags: Value) -> (TemplateVersionId, JobId) {
    server.version(token, json!({ "tags": tags })).await
}

async fn cancel(server: &TestServer, token: &str, version: TemplateVersionId) {
    server.patch(token, &format!("/api/v2/templateversions/{version}/cancel"), Value::Null).await.expect(200);
}

fn status(job: &Job) -> Status {
    job.status()
}
