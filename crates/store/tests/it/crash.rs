//! Kills the program at random instants under load: acknowledged writes are stored, and the data are consistent.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use coder_store::testing::TestDatabase;
use coder_store::{Config, Location, Store, check, jobs, testing};

use crate::fixture::{Fixture, at};

/// Tells the test program that it is the child, and which database it writes to.
const VARIABLE: &str = "CODER_STORE_TEST_CRASH";
const KILLS: usize = 12;

/// Does nothing unless the test below started this program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(target) = std::env::var(VARIABLE) else { return };
    let location = match target.strip_prefix("file:") {
        Some(path) => Location::Sqlite(path.into()),
        None => Location::Postgres(Secret::new(target)),
    };
    let fixture = Fixture::reopen(location).await;
    let mut writers = tokio::task::JoinSet::new();
    let fixture = std::sync::Arc::new(fixture);
    for number in 0..4 {
        let fixture = std::sync::Arc::clone(&fixture);
        writers.spawn(async move {
            let daemon = fixture.daemon(&format!("d{number}"), &TagSet::untagged()).await;
            loop {
                println!("made {}", fixture.job(&TagSet::untagged()).await);
                let job = fixture.claim(daemon, &[1]).await.unwrap();
                let line = jobs::logs::NewLine {
                    created_at: at(0),
                    source: jobs::logs::Source::Provisioner,
                    level: jobs::logs::Level::Info,
                    stage: String::new(),
                    output: "x".repeat(500),
                };
                let (store, lines) = (&fixture.store, [line.clone(), line]);
                let appended = coder_store::transaction!(store, coder_store::Error, |tx| {
                    jobs::logs::append(tx, job, daemon, &lines, jobs::logs::DEFAULT_CAP_BYTES, fixture.tick())
                        .await
                })
                .unwrap();
                println!("logged {job} {}", appended.last_id);
                let mut tx = fixture.store.single().await.unwrap();
                jobs::complete(&mut tx, job, daemon, fixture.tick()).await.unwrap();
                println!("ended {job}");
            }
        });
    }
    writers.join_all().await;
}

async fn survive(database: TestDatabase) {
    let target = match &database.location {
        Location::Sqlite(path) => format!("file:{}", path.display()),
        Location::Postgres(url) => url.expose().to_owned(),
    };
    drop(Fixture::on(database.location.clone()).await);
    let mut acknowledged = Vec::new();
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture", "--quiet"])
            .env(VARIABLE, &target)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // A kill after a number of acknowledged writes, at once in the first round: the other writers are at any point then.
        acknowledged.extend(output.by_ref().take(round * 37 % 400));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(output);
    }
    let store = Store::open(&Config::new(database.location.clone()), at(0)).await.unwrap();
    let mut tx = store.reader().await.unwrap();
    let mut seen = 0;
    for line in &acknowledged {
        let words: Vec<_> = line.split(' ').collect();
        let (["made", id] | ["logged", id, _] | ["ended", id]) = words.as_slice() else { continue };
        let job = jobs::get(&mut tx, id.parse().unwrap()).await.unwrap();
        match words.as_slice() {
            ["logged", _, last] => assert_eq!(job.logs_last_id.to_string(), *last),
            ["ended", _] => assert!(job.completed_at.is_some()),
            _ => {}
        }
        seen += 1;
    }
    assert!(seen > 0, "{acknowledged:?}");
    let broken = check::check(&store).await.unwrap();
    // The jobs of this test refer to versions that do not exist.
    let broken: Vec<_> =
        broken.into_iter().filter(|one| one.invariant != "a job's template version exists").collect();
    assert_eq!(broken, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_sqlite() {
    survive(testing::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_postgres() {
    if let Some(database) = testing::postgres().await {
        survive(database).await;
    }
}
