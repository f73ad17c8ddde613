//! Restarts of Postgres under load: every accepted job ends with one result, and no daemon needs a restart.
//! `CODER_TEST_LONG=1` restarts it 20 times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use coder_api::client::{Client, Credential, ServeProvisionerDaemonRequest};
use coder_api::files::TAR;
use coder_api::jobs::Status;
use coder_api::versions::CreateTemplateVersionRequest;
use coder_domain::ids::{OrganizationId, TemplateVersionId};
use coder_store::testing;
use coder_testkit::daemon::{BUILD_VERSION, FakeDaemon};
use coder_testkit::random::{Random, count, is_long};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::crash_recovery::SMALL_TEMPLATE;
use crate::durability::{archive, runtime};
use crate::fault_fixture::FaultFixture;
use crate::log_template::LogTemplate;
use crate::processes::WAIT_LIMIT;
use crate::program::{Home, until};

/// Imports for scripted daemons, in addition to the builds of the real one.
const CLIENTS: usize = 3;
const DAEMONS: usize = 3;

/// The delay of official daemons before the next acquire.
const ACQUIRE_AGAIN: Duration = Duration::from_millis(100);

/// Their tag.
const POOL: (&str, &str) = ("pool", "load");

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    refused: AtomicUsize,
}

/// Posts imports until it is stopped. Returns the accepted ones.
async fn post(
    client: Client,
    organization: OrganizationId,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
) -> Vec<TemplateVersionId> {
    let file = client.upload(TAR, archive(SMALL_TEMPLATE).into()).await.unwrap();
    let tags = [(POOL.0.to_owned(), POOL.1.to_owned())].into();
    let request = CreateTemplateVersionRequest { file_id: Some(file), tags, ..Default::default() };
    let mut accepted = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        match client.create_version(organization, &request).await {
            Ok(version) => {
                accepted.push(version.id);
                counts.accepted.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => {
                // The only allowed error is the unavailable database.
                let status = error.status().map(|status| status.as_u16());
                assert_eq!(status, Some(503), "{error}");
                counts.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    accepted
}

/// Runs imports. The server stays alive, so its connection does too: an acquire may be refused and is repeated, but no
/// report about a held job is lost.
async fn work(daemon: FakeDaemon, stop: CancellationToken) -> usize {
    let mut done = 0;
    loop {
        let job = match daemon.calls.acquire(stop.cancelled()).await {
            Ok(Some(job)) => job,
            Ok(None) => return done,
            Err(error) => {
                assert!(!error.is_retryable(), "the connection holds: {error}");
                // The daemons behave like official ones.
                tokio::time::sleep(ACQUIRE_AGAIN).await;
                continue;
            }
        };
        let (update, result) = (
            coder_testkit::daemon::import_update(&job.job_id, 5, 1),
            coder_testkit::daemon::import_result(&job.job_id),
        );
        daemon.calls.update_job(&update).await.unwrap();
        daemon.calls.complete_job(&result).await.unwrap();
        done += 1;
    }
}

#[test]
fn postgres_restarts_under_load() {
    coder_requirements::require!(Terraform);
    let runtime = runtime();
    let Some(postgres) = runtime.block_on(testing::PostgresServer::start()) else { return };
    let database = runtime.block_on(postgres.database());
    let coder_store::Location::Postgres(url) = &database.location else { unreachable!("asked for Postgres") };
    let mut home = Home::new();
    home.set("CODER_PG_CONNECTION_URL", url.expose());
    let mut random = Random::new();
    eprintln!("CODER_TEST_SEED={}", random.seed());
    let log_template = if is_long() {
        LogTemplate::new(6, 80, Duration::from_millis(115))
    } else {
        LogTemplate::new(3, 12, Duration::from_millis(30))
    };
    let rig = FaultFixture::new(home, log_template.gated());
    let daemon = rig.daemon();
    let place = rig.order("w");

    let (stop, leave) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
    let counts = Arc::new(Counts::default());
    let (client, organization) = (rig.api.client.clone(), rig.api.organization);
    let (clients, daemons) = runtime.block_on(async {
        let (mut clients, mut daemons) = (JoinSet::new(), JoinSet::new());
        for number in 0..DAEMONS {
            let mut serve = ServeProvisionerDaemonRequest::new(
                Credential::Session,
                format!("load-{number}"),
                BUILD_VERSION,
            );
            serve.tags.insert(POOL.0.to_owned(), POOL.1.to_owned());
            let joined = FakeDaemon::join(&client, &serve).await.unwrap();
            daemons.spawn(work(joined, leave.clone()));
        }
        for _ in 0..CLIENTS {
            clients.spawn(post(client.clone(), organization, Arc::clone(&stop), Arc::clone(&counts)));
        }
        (clients, daemons)
    });
    let restarts = count(3, 20);
    for _ in 0..restarts {
        // In the middle of work, on machines of any speed.
        let goal = counts.accepted.load(Ordering::SeqCst) + 2 + usize::try_from(random.below(20)).unwrap();
        let at_work = until(WAIT_LIMIT, || (counts.accepted.load(Ordering::SeqCst) >= goal).then_some(()));
        assert!(at_work.is_some(), "imports are accepted again");
        postgres.crash();
        std::thread::park_timeout(random.time_below(Duration::from_millis(300)));
        runtime.block_on(postgres.resume());
    }
    stop.store(true, Ordering::SeqCst);
    let accepted = runtime.block_on(clients.join_all()).concat();
    for version in &accepted {
        let ended = until(WAIT_LIMIT, || {
            let found = runtime.block_on(client.version(*version)).ok()?;
            found.job.completed_at.is_some().then_some(found.job)
        });
        let job = ended.unwrap_or_else(|| panic!("the import {version} was accepted and does not end"));
        assert_eq!((job.status, job.error.as_str()), (Status::Succeeded, ""), "{version}");
    }
    leave.cancel();
    let done: usize = runtime.block_on(daemons.join_all()).into_iter().sum();
    // A refused import may still have been accepted, when the database stopped after its commit.
    assert!(done >= accepted.len(), "{done} of {}", accepted.len());
    place.open();
    rig.succeeded_once("w", &place);
    rig.delete("w", &place);
    rig.check();
    assert!(!daemon.log().contains("connection to coderd closed"), "{}", daemon.log());
    eprintln!(
        "{restarts} restarts: {} imports accepted, {done} run, {} refused meanwhile",
        accepted.len(),
        counts.refused.load(Ordering::SeqCst)
    );
}
