//! Races cancels against daemons that acquire jobs, with the real server: a job that was canceled while it waited is
//! never handed out, and each job ends once. `CODER_TEST_LONG=1` or `CODER_TEST_CANCEL_RACES` runs more than the short
//! form.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use coder_api::client::{Client, Credential, JobFilter, ServeProvisionerDaemonRequest};
use coder_api::files::TAR;
use coder_api::jobs::Status;
use coder_api::versions::CreateTemplateVersionRequest;
use coder_domain::ids::{FileId, OrganizationId, TemplateVersionId};
use coder_testkit::daemon::{BUILD_VERSION, FakeDaemon, failure, import_result, import_update};
use coder_testkit::random::{Random, count};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::crash_recovery::{Api, SMALL_TEMPLATE};
use crate::durability::archive;
use crate::fault_fixture::{on_postgres, on_sqlite};
use crate::processes::Server;
use crate::program::Home;

/// Fewer daemons than clients, so that jobs wait.
const DAEMONS: usize = 2;

/// Clients that post and cancel.
const CLIENTS: usize = 8;

/// The largest number of requests between a job and its cancel, during which a daemon may acquire the job.
const MOST_READS: u64 = 6;

fn races() -> usize {
    let given = std::env::var("CODER_TEST_CANCEL_RACES").map(|text| text.parse().unwrap());
    given.unwrap_or_else(|_| count(120, 10_000))
}

/// How often each job was handed out.
type Handed = Arc<Mutex<HashMap<String, usize>>>;

/// Acquires jobs and ends them, canceled or not, with the messages of an official daemon.
async fn work(daemon: FakeDaemon, handed: Handed, stop: CancellationToken) {
    while let Some(job) = daemon.calls.acquire(stop.cancelled()).await.unwrap() {
        *handed.lock().unwrap().entry(job.job_id.clone()).or_default() += 1;
        let told = daemon.calls.update_job(&import_update(&job.job_id, 1, 0)).await.unwrap();
        if told.canceled {
            daemon.calls.fail_job(&failure(&job.job_id, "canceled")).await.unwrap();
        } else {
            daemon.calls.complete_job(&import_result(&job.job_id)).await.unwrap();
        }
    }
    daemon.leave().await;
}

/// Posts imports one after the other and cancels each a moment later. Returns the server's response to each cancel.
async fn race(
    client: Client,
    organization: OrganizationId,
    file: FileId,
    count: usize,
    mut random: Random,
) -> Vec<(TemplateVersionId, String, bool)> {
    let mut races = Vec::with_capacity(count);
    for _ in 0..count {
        let request = CreateTemplateVersionRequest { file_id: Some(file), ..Default::default() };
        let version = client.create_version(organization, &request).await.unwrap();
        for _ in 0..random.below(MOST_READS) {
            client.version(version.id).await.unwrap();
        }
        let canceled = match client.cancel_version(version.id).await {
            Ok(()) => true,
            // Its daemon was faster.
            Err(error) if error.status().is_some_and(|status| status == 400) => false,
            Err(error) => panic!("{error}"),
        };
        races.push((version.id, version.job.id.to_string(), canceled));
    }
    races
}

/// The results of the races.
#[derive(Debug, Default)]
struct Ends {
    while_waiting: usize,
    while_running: usize,
    too_late: usize,
}

fn cancel(home: Home) {
    let server = Server::in_home(home, "127.0.0.1:0", &[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let mut random = Random::new();
    eprintln!("CODER_TEST_SEED={}", random.seed());
    let (handed, stop) = (Handed::default(), CancellationToken::new());
    let file = api.run(async |client| client.upload(TAR, archive(SMALL_TEMPLATE).into()).await).unwrap();
    let total = races();
    let (client, organization) = (api.client.clone(), api.organization);
    let raced = api.runtime.block_on(async {
        let mut daemons = JoinSet::new();
        for number in 0..DAEMONS {
            let serve = ServeProvisionerDaemonRequest::new(
                Credential::Session,
                format!("racer-{number}"),
                BUILD_VERSION,
            );
            let daemon = FakeDaemon::join(&client, &serve).await.unwrap();
            daemons.spawn(work(daemon, Arc::clone(&handed), stop.clone()));
        }
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let random = Random::from_seed(random.below(u64::MAX));
            clients.spawn(race(client.clone(), organization, file, total.div_ceil(CLIENTS), random));
        }
        let raced = clients.join_all().await.concat();
        // A daemon without further jobs holds no job either.
        stop.cancel();
        daemons.join_all().await;
        raced
    });
    let handed = handed.lock().unwrap();
    let mut ends = Ends::default();
    for (version, job, canceled) in &raced {
        let row = api.run(async |client| client.version(*version).await).unwrap().job;
        let times = handed.get(job).copied().unwrap_or_default();
        let has_started = row.started_at.is_some() || row.worker_id.is_some();
        assert_eq!(times, usize::from(has_started), "{row:?} was handed out {times} times");
        match (row.status, has_started) {
            (Status::Canceled, false) => ends.while_waiting += 1,
            (Status::Canceled, true) => ends.while_running += 1,
            (Status::Succeeded, true) => {
                assert!(!canceled || row.canceled_at.is_some(), "{row:?}");
                ends.too_late += 1;
            }
            // The daemon was notified of the cancel and reported it with its own message.
            (Status::Failed, true) if row.canceled_at.is_some() => ends.while_running += 1,
            _ => panic!("{row:?}"),
        }
    }
    let left = JobFilter { status: vec!["pending".into(), "running".into()], ..JobFilter::default() };
    assert_eq!(api.run(async |client| client.jobs(organization, &left).await).unwrap(), []);
    eprintln!("{} races: {ends:?}", raced.len());
    assert!(
        ends.while_waiting > 0 && ends.while_waiting < raced.len(),
        "each side must win some races: {ends:?}"
    );
    server.home().run(&["server", "check"]).success();
}

#[test]
fn a_canceled_job_is_never_handed_out_on_sqlite() {
    on_sqlite(cancel);
}

#[test]
fn a_canceled_job_is_never_handed_out_on_postgres() {
    on_postgres(cancel);
}
