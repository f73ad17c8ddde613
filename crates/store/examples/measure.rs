//! Measures the numbers of `docs/store.md` on both engines: start-up, jobs of nine write transactions, and a long
//! queue.
//!
//! `cargo run -p coder-store --features testing --example measure`
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on should stop")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coder_domain::build::Transition;
use coder_domain::ids::{
    DaemonId, FileId, JobId, KeyId, OrganizationId, ResourceId, TemplateVersionId, UserId,
};
use coder_domain::job::Type;
use coder_domain::tags::TagSet;
use coder_store::jobs::NewJob;
use coder_store::jobs::queue::{self, WaitingDaemon};
use coder_store::testing::{self, TestDatabase};
use coder_store::workspaces::resources;
use coder_store::workspaces::resources::Resource;
use coder_store::{Config, Document, Error, Store, daemons, files, jobs, organizations, transaction};
use jiff::Timestamp;

const JOBS: usize = 400;
const WAITING: usize = 100_000;

#[tokio::main]
async fn main() {
    for durable in [false, true] {
        measure(if durable { "SQLite, durable" } else { "SQLite" }, testing::sqlite(), durable).await;
    }
    if let Some(database) = testing::postgres().await {
        measure("Postgres (fsync off)", database, false).await;
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").unwrap();
}

/// User and system time of this process. On a busy machine it is more meaningful than elapsed time.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[derive(Clone)]
struct World {
    store: Store,
    organization: OrganizationId,
    file: FileId,
    daemon: DaemonId,
}

async fn measure(name: &str, database: TestDatabase, durable: bool) {
    let config = Config { durable, connections: 32, ..Config::new(database.location.clone()) };
    let (started, busy) = (Instant::now(), processor_time());
    let store = Store::open(&config, Timestamp::UNIX_EPOCH).await.unwrap();
    let first = (started.elapsed(), processor_time() - busy);
    store.close().await;
    let started = Instant::now();
    let store = Store::open(&config, Timestamp::UNIX_EPOCH).await.unwrap();
    say(&format!(
        "{name}: first start {:.1?} (processor {:.0?}), next start {:.1?}",
        first.0,
        first.1,
        started.elapsed()
    ));
    let world = make_world(store).await;
    for clients in [1, 32] {
        let jobs = if durable && clients == 1 { JOBS / 10 } else { JOBS };
        let busy = processor_time();
        let elapsed = run_jobs(&world, clients, jobs).await;
        let rate = jobs as f64 / elapsed.as_secs_f64();
        let cost = (processor_time() - busy) / u32::try_from(jobs).unwrap();
        say(&format!("{name}: {clients} clients, {rate:.0} jobs/s, own processor time {cost:.1?} a job"));
    }
    if !durable {
        long_queue(name, &world).await;
    }
}

async fn make_world(store: Store) -> World {
    let join = |organization_id| daemons::NewDaemon {
        organization_id,
        name: "d".to_owned(),
        key_id: KeyId::BUILT_IN,
        provisioners: vec!["terraform".to_owned()],
        tags: TagSet::untagged(),
        version: String::new(),
        api_version: "1.14".to_owned(),
    };
    let now = Timestamp::UNIX_EPOCH;
    let (organization, file, daemon) = transaction!(store, Error, |tx| {
        let organization = organizations::get_default(tx).await?.id;
        let new = files::NewFile {
            hash: "x".to_owned(),
            size: 2000,
            created_by: UserId::PREBUILDS,
            mimetype: "application/x-tar",
        };
        let (file, _) = files::insert(tx, &new, &mut &[0; 2000][..], now).await?;
        let daemon = daemons::upsert(tx, &join(organization), now).await?;
        Ok((organization, file.id, daemon))
    })
    .unwrap();
    World { store, organization, file, daemon }
}

fn new_job(world: &World, tags: &TagSet) -> NewJob {
    NewJob {
        id: JobId::random(),
        organization_id: world.organization,
        initiator_id: UserId::PREBUILDS,
        automatic: false,
        kind: Type::TemplateVersionImport,
        provisioner: "terraform".to_owned(),
        file_id: world.file,
        tags: tags.clone(),
        template_version_id: Some(TemplateVersionId::random()),
        workspace_build_id: None,
        input: Document::default(),
        trace_metadata: BTreeMap::new(),
    }
}

async fn run_jobs(world: &World, clients: usize, jobs: usize) -> Duration {
    let left = Arc::new(AtomicUsize::new(jobs));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (world, left) = (world.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                run_job(&world).await;
            }
        });
    }
    tasks.join_all().await;
    started.elapsed()
}

/// One job: insertion, claim, four batches of 25 log lines, two heartbeats, completion with four resources.
async fn run_job(world: &World) {
    let World { store, organization, daemon, .. } = world;
    let now = Timestamp::UNIX_EPOCH;
    let new = new_job(world, &TagSet::untagged());
    transaction!(store, Error, |tx| { jobs::insert(tx, &new, now).await }).unwrap();
    let provisioners = ["terraform".to_owned()];
    let claim = jobs::ClaimRequest {
        organization_id: *organization,
        provisioners: &provisioners,
        tag_sets: &[1],
        daemon: *daemon,
        session: None,
    };
    let job = jobs::claim(&mut store.single().await.unwrap(), &claim, now).await.unwrap().unwrap().job;
    let line = |number: usize| jobs::logs::NewLine {
        created_at: now,
        source: jobs::logs::Source::Provisioner,
        level: jobs::logs::Level::Info,
        stage: "Detecting persistent resources".to_owned(),
        output: format!("data.coder_workspace.me: Read complete after 0s [id=line {number}]"),
    };
    let lines: Vec<_> = (0..25).map(line).collect();
    for half in 0..2 {
        for _ in 0..2 {
            transaction!(store, Error, |tx| {
                jobs::logs::append(tx, job, *daemon, &lines, jobs::logs::DEFAULT_CAP_BYTES, now).await
            })
            .unwrap();
        }
        let alive = jobs::update_alive(&mut store.single().await.unwrap(), job, *daemon, now).await;
        assert!(!alive.unwrap(), "half {half}");
    }
    let resource = |position| Resource {
        id: ResourceId::random(),
        job_id: job,
        position,
        transition: Transition::Start,
        kind: "docker_container".to_owned(),
        name: "workspace".to_owned(),
        hide: false,
        icon: String::new(),
        instance_type: String::new(),
        daily_cost: 0,
        module_path: String::new(),
        metadata: Vec::new(),
        created_at: now,
    };
    let made: Vec<_> = (0..4).map(resource).collect();
    transaction!(store, Error, |tx| {
        resources::insert(tx, &made).await?;
        jobs::complete(tx, job, *daemon, now).await
    })
    .unwrap();
}

/// Costs of a queue at two lengths: ranks for a page and for one job, the list, and claims in the fair order.
async fn long_queue(name: &str, world: &World) {
    let sets: Vec<_> = (0..1000)
        .map(|number| TagSet::canonical(UserId::NIL, [&[("set".to_owned(), number.to_string())].into()]))
        .collect();
    let mut made = 0;
    let mut base: Vec<Duration> = Vec::new();
    for length in [1_000, WAITING] {
        while made < length {
            let batch: Vec<_> =
                (made..made + 500).map(|number| new_job(world, &sets[number * 7 % sets.len()])).collect();
            // 500 jobs a second, as on a busy server.
            let now = Timestamp::from_second(1_700_000_000 + i64::try_from(made / 500).unwrap()).unwrap();
            transaction!(world.store, Error, |tx| {
                for (number, job) in batch.iter().enumerate() {
                    let at = now + Duration::from_millis(2 * number as u64);
                    jobs::insert(tx, job, at).await?;
                }
                Ok(())
            })
            .unwrap();
            made += 500;
        }
        let found = look(name, world, length).await;
        if let [page, place, claim] = base.as_slice() {
            let growth = |before: &Duration, after: Duration| after.as_secs_f64() / before.as_secs_f64();
            say(&format!(
                "{name}: growth from 1000 to {length}: page {:.2}, place {:.2}, claim {:.2}",
                growth(page, found[0]),
                growth(place, found[1]),
                growth(claim, found[2])
            ));
        }
        base = found;
    }
}

/// The median of the times of `rounds` calls. Prints it with the 99th percentile.
async fn timed(name: &str, what: &str, rounds: usize, mut call: impl AsyncFnMut()) -> Duration {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        call().await;
        times.push(started.elapsed());
    }
    times.sort();
    let (middle, late) = (times[rounds / 2], times[rounds * 99 / 100]);
    say(&format!("{name}: {what}: median {middle:.2?}, p99 {late:.2?}"));
    middle
}

async fn look(name: &str, world: &World, length: usize) -> Vec<Duration> {
    let World { store, organization, daemon, .. } = world;
    let filter = jobs::list::JobFilter { organization_id: Some(*organization), ..Default::default() };
    let page = async |tx: &mut coder_store::Tx| {
        let listed = jobs::list::list(tx, &filter, 50).await.unwrap();
        let ids: Vec<_> = listed.iter().map(|row| row.job.id).collect();
        let found = queue::positions(tx, &ids).await.unwrap();
        assert_eq!((found.len(), queue::count(tx).await.unwrap()), (50, i64::try_from(length).unwrap()));
        listed
    };
    let mut tx = store.reader().await.unwrap();
    let listed = page(&mut tx).await;
    let what = format!("{length} waiting, a page of 50 with ranks");
    let pages = timed(name, &what, 200, async || {
        page(&mut tx).await;
    })
    .await;
    timed(name, &format!("{length} waiting, the list alone"), 200, async || {
        jobs::list::list(&mut tx, &filter, 50).await.unwrap();
    })
    .await;
    let job = &listed[25].job;
    let taker = WaitingDaemon {
        organization_id: *organization,
        provisioners: vec!["terraform".to_owned()],
        tag_sets: (1..=1001).collect(),
    };
    let what = format!("{length} waiting, the position of one among 1000 tag sets");
    let place = timed(name, &what, 200, async || {
        queue::position(&mut tx, job, std::slice::from_ref(&taker)).await.unwrap();
    })
    .await;
    let kinds = ["terraform".to_owned()];
    let wanted: Vec<i64> = (1..=1001).collect();
    timed(name, &format!("{length} waiting, the fair position of one among 1000 tag sets"), 50, async || {
        queue::fair_position(&mut tx, job, &kinds, &wanted).await.unwrap();
    })
    .await;
    drop(tx);
    let mut claims = Vec::new();
    for tag_sets in [&wanted[500..501], &wanted[..]] {
        let claim = jobs::ClaimRequest {
            organization_id: *organization,
            provisioners: &kinds,
            tag_sets,
            daemon: *daemon,
            session: None,
        };
        let mut taken = Vec::new();
        let what = format!("{length} waiting, a claim of {} tag sets", tag_sets.len());
        // One tag set has one job in a thousand.
        let rounds = 50.min(length / 1000 * 50).min(if tag_sets.len() == 1 { length / 1000 } else { 50 });
        claims.push(
            timed(name, &what, rounds, async || {
                let mut tx = store.single().await.unwrap();
                taken.extend(jobs::claim(&mut tx, &claim, Timestamp::UNIX_EPOCH).await.unwrap());
            })
            .await,
        );
        // Adds as many again, so that both lengths stay comparable.
        assert_eq!(taken.len(), rounds);
    }
    refill(world).await;
    vec![pages, place, claims[1]]
}

/// Fills the queue up to the next multiple of 500.
async fn refill(world: &World) {
    loop {
        let waiting = queue::count(&mut world.store.reader().await.unwrap()).await.unwrap();
        if waiting % 500 == 0 {
            return;
        }
        let job = new_job(world, &TagSet::untagged());
        let now = Timestamp::from_second(1_600_000_000).unwrap();
        transaction!(world.store, Error, |tx| { jobs::insert(tx, &job, now).await }).unwrap();
    }
}
