//! Measures what `docs/store.md` reports: starts, jobs of nine write transactions, and a long queue, on both engines.
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
use coder_store::jobs::queue::{self, Taker};
use coder_store::resources::Resource;
use coder_store::testing::{self, Database};
use coder_store::{
    Config, Document, Error, Store, daemons, files, job_logs, jobs, organizations, resources, transaction,
};
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

/// User and system time of this process; on a busy machine it says more than the clock on the wall.
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

async fn measure(name: &str, database: Database, durable: bool) {
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
    if !durable && !world.store.is_postgres() {
        long_queue(name, &world).await;
    }
}

async fn make_world(store: Store) -> World {
    let join = |organization_id| daemons::Join {
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
        let (file, _) =
            files::insert(tx, "x", UserId::PREBUILDS, "application/x-tar", vec![0; 2000], now).await?;
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

/// Insertion, claim, four batches of 25 lines, two signs of life, completion with four resources.
async fn run_job(world: &World) {
    let World { store, organization, daemon, .. } = world;
    let now = Timestamp::UNIX_EPOCH;
    let new = new_job(world, &TagSet::untagged());
    transaction!(store, Error, |tx| { jobs::insert(tx, &new, now).await }).unwrap();
    let provisioners = ["terraform".to_owned()];
    let claim = jobs::Claim {
        organization_id: *organization,
        provisioners: &provisioners,
        tag_sets: &[1],
        daemon: *daemon,
        session: None,
    };
    let job = jobs::claim(&mut store.single().await.unwrap(), &claim, now).await.unwrap().unwrap().job;
    let line = |number: usize| job_logs::NewLine {
        created_at: now,
        source: job_logs::Source::Provisioner,
        level: job_logs::Level::Info,
        stage: "Detecting persistent resources".to_owned(),
        output: format!("data.coder_workspace.me: Read complete after 0s [id=line {number}]"),
    };
    let lines: Vec<_> = (0..25).map(line).collect();
    for half in 0..2 {
        for _ in 0..2 {
            transaction!(store, Error, |tx| {
                job_logs::append(tx, job, *daemon, &lines, job_logs::DEFAULT_CAP_BYTES, now).await
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

async fn long_queue(name: &str, world: &World) {
    let World { store, organization, daemon, .. } = world;
    let sets: Vec<_> = (0..100)
        .map(|number| TagSet::canonical(UserId::NIL, [&[("set".to_owned(), number.to_string())].into()]))
        .collect();
    let mut last = None;
    for start in (0..WAITING).step_by(1000) {
        let batch: Vec<_> = (start..start + 1000).map(|number| new_job(world, &sets[number % 100])).collect();
        let now = Timestamp::from_second(i64::try_from(start).unwrap()).unwrap();
        transaction!(store, Error, |tx| {
            for job in &batch {
                jobs::insert(tx, job, now).await?;
            }
            Ok(())
        })
        .unwrap();
        last = batch.last().map(|job| job.id);
    }
    let mut tx = store.reader().await.unwrap();
    let job = jobs::get(&mut tx, last.unwrap()).await.unwrap();
    let taker = Taker {
        organization_id: *organization,
        provisioners: vec!["terraform".to_owned()],
        tag_sets: (1..=101).collect(),
    };
    let started = Instant::now();
    let place = queue::place(&mut tx, &job, std::slice::from_ref(&taker)).await.unwrap();
    say(&format!("{name}: {} waiting, place of one job {:.1?}", place.size, started.elapsed()));
    let started = Instant::now();
    queue::positions(&mut tx, &[job.id]).await.unwrap();
    say(&format!("{name}: global position of one {:.1?}", started.elapsed()));
    let ids: Vec<_> = {
        let listed = jobs::list::list(&mut tx, &jobs::list::Filter::default(), 50).await.unwrap();
        listed.into_iter().map(|row| row.job.id).collect()
    };
    let started = Instant::now();
    queue::positions(&mut tx, &ids).await.unwrap();
    queue::count(&mut tx).await.unwrap();
    say(&format!("{name}: global positions of 50 {:.1?}", started.elapsed()));
    let filter = jobs::list::Filter { organization_id: Some(*organization), ..Default::default() };
    let started = Instant::now();
    jobs::list::list(&mut tx, &filter, 50).await.unwrap();
    say(&format!("{name}: list of 50 {:.1?}", started.elapsed()));
    let provisioners = ["terraform".to_owned()];
    let wanted: Vec<i64> = (1..=101).collect();
    for tag_sets in [&wanted[100..], &wanted[..]] {
        let claim = jobs::Claim {
            organization_id: *organization,
            provisioners: &provisioners,
            tag_sets,
            daemon: *daemon,
            session: None,
        };
        let started = Instant::now();
        for _ in 0..20 {
            jobs::claim(&mut store.single().await.unwrap(), &claim, Timestamp::UNIX_EPOCH)
                .await
                .unwrap()
                .unwrap();
        }
        say(&format!("{name}: claim with {} sets {:.2?}", tag_sets.len(), started.elapsed() / 20));
    }
}
