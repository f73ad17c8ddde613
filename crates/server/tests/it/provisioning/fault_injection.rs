//! Fault injection: connections cut at random bytes, restarted servers, killed daemons, racing cancellations. Each job ends with
//! one result and one owner, and its log is complete, in order and without duplicates. `CODER_TEST_LONG=1` runs the long form.

use bytes::Bytes;
use coder_server::context::App;
use coder_server::tasks;
use coder_server::{Build, Deps};
use coder_wire::extension::messages::Verdict;

use super::daemon_process::{DaemonConnection, JoinOptions, held, log};
use super::*;
use crate::harness::{on_both_engines, settings};

/// The second value with `CODER_TEST_LONG=1`, otherwise the first one.
fn count(short: usize, long: usize) -> usize {
    if std::env::var_os("CODER_TEST_LONG").is_some() { long } else { short }
}

/// A reproducible sequence of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Another server process on the same database. The previous one was killed.
async fn restarted(server: &TestServer, before: &App) -> App {
    before.lifecycle.stop(Duration::ZERO).await;
    let build = Build { compatible: "v2.30.0+0000000".to_owned(), product: "0.0.0-test".to_owned() };
    let (store, clock) = (server.app.store.clone(), server.clock.clone());
    let app = coder_server::server::context(settings(), Deps { store, clock, build }).await.unwrap();
    tasks::start(&app);
    app
}

/// A daemon process with one job, whatever happens to its connections.
struct Process {
    session: Bytes,
    token: Bytes,
    /// Number of the first line that is not acknowledged.
    next: u64,
    lines: u64,
}

impl Process {
    /// Works over one connection until it breaks or all lines are acknowledged. Returns whether they are.
    async fn work(&mut self, connection: &DaemonConnection, job: JobId, random: &mut Random) -> bool {
        let Ok(answer) = connection.attach(&self.session, vec![held(job, &self.token)]).await else {
            return false;
        };
        let verdict = &answer.jobs[0];
        assert_eq!(verdict.verdict(), Verdict::GoOn, "{verdict:?}");
        assert!(verdict.next_sequence >= self.next, "acknowledged lines are stored");
        (self.session, self.token) = (answer.session.clone(), verdict.token.clone());
        self.next = verdict.next_sequence;
        while self.next <= self.lines {
            let batch = 1 + random.below(7);
            let end = (self.next + batch).min(self.lines + 1);
            match connection.logs(job, &self.token, self.next..end).await {
                Ok(answer) => {
                    assert!(answer.next_sequence >= end);
                    self.next = answer.next_sequence;
                }
                Err(error) if error.is_retryable() => return false,
                Err(coder_wire::drpc::Error::Reset | coder_wire::drpc::Error::Protocol(_)) => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }
}

on_both_engines! {
    async fn a_job_survives_cuts_at_random_bytes_and_restarts_of_the_server(server: TestServer) {
        let cuts = count(50, 500);
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let mut random = Random(11);
        let mut app = server.app.clone();
        let (first, session) = DaemonConnection::fresh(&app, "d").await;
        first.take(posted).await;
        let lines = u64::try_from(cuts).unwrap() * 12;
        let mut process = Process { session, token: Bytes::new(), next: 1, lines };
        first.cut();
        for round in 0..cuts {
            if round == cuts / 3 || round == cuts * 2 / 3 {
                app = restarted(&server, &app).await;
            }
            let cut_after = 300 + usize::try_from(random.below(2500)).unwrap();
            let connection = DaemonConnection::open(&app, JoinOptions { cut_after, ..JoinOptions::default() }).await;
            if process.work(&connection, posted, &mut random).await {
                break;
            }
        }
        let connection = DaemonConnection::open(&app, JoinOptions::default()).await;
        assert!(process.work(&connection, posted, &mut random).await);
        let result = import_result(posted, vec![resource("a")]);
        connection.calls.complete_job(&result).await.unwrap();
        let done = job(&server, posted).await;
        assert_eq!(status(&done), Status::Succeeded);
        let expected: Vec<_> = (1..=lines).map(|number| format!("line {number}")).collect();
        assert!(log(&app, posted).await == expected, "in order, once");
    }

    async fn daemons_killed_at_random_points_lose_no_job(server: TestServer) {
        let mut random = Random(23);
        let owner = server.owner().await;
        let mut config = settings();
        config.provisioning.daemon_grace = Duration::from_millis(30);
        let build = Build { compatible: "v2.30.0+0000000".to_owned(), product: "0.0.0-test".to_owned() };
        let (store, clock) = (server.app.store.clone(), server.clock.clone());
        let app = coder_server::server::context(config, Deps { store, clock, build }).await.unwrap();
        let mut posted = Vec::new();
        for round in 0..count(10, 50) {
            let id = import(&server, &owner, json!({})).await.1;
            posted.push(id);
            let cut_after = 200 + usize::try_from(random.below(4000)).unwrap();
            let name = format!("d{round}");
            let connection = DaemonConnection::open(&app, JoinOptions { name: &name, cut_after, ..JoinOptions::default() }).await;
            let living = async {
                connection.attach(&Bytes::new(), vec![]).await.ok()?;
                let got = connection.calls.acquire(std::future::pending()).await.ok()??;
                let id: JobId = got.job_id.parse().unwrap();
                let token = connection.hold(id).await.ok()?.token;
                connection.logs(id, &token, 1..20).await.ok()?;
                connection.calls.complete_job(&import_result(id, vec![])).await.ok()
            };
            tokio::time::timeout(WAIT_LIMIT, living).await.unwrap();
        }
        // Jobs that no daemon acquired still wait, and a daemon acquires them.
        let (last, _) = DaemonConnection::fresh(&app, "last").await;
        for id in &posted {
            while status(&job(&server, *id).await) == Status::Pending {
                let waiting = last.calls.acquire(std::future::pending());
                let got = tokio::time::timeout(WAIT_LIMIT, waiting).await.unwrap().unwrap().unwrap();
                last.calls.complete_job(&import_result(got.job_id.parse().unwrap(), vec![])).await.unwrap();
            }
        }
        for id in posted {
            let ended = until(&server, id, |job| job.completed_at.is_some()).await;
            assert!(ended.worker_id.is_some());
            assert!(matches!(ended.status(), Status::Succeeded | Status::Failed), "{ended:?}");
        }
    }

    async fn a_cancel_raced_against_an_acquire_has_one_winner(server: TestServer) {
        let owner = server.owner().await;
        let (connection, _) = DaemonConnection::fresh(&server.app, "d").await;
        for round in 0..count(120, 10_000) {
            let (version, posted) = import(&server, &owner, json!({})).await;
            let canceling = async {
                for _ in 0..round % 13 {
                    tokio::task::yield_now().await;
                }
                server.patch(&owner, &format!("/api/v2/templateversions/{version}/cancel"), Value::Null).await
            };
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let acquiring = connection.calls.acquire(async { stopped.await.ok(); });
            let racing = async {
                let answer = canceling.await;
                stop.send(()).ok();
                answer
            };
            let (got, answer) = tokio::join!(acquiring, racing);
            assert_eq!(answer.status, 200);
            let row = job(&server, posted).await;
            match got.unwrap() {
                Some(got) => {
                    assert_eq!(got.job_id, posted.to_string(), "round {round}");
                    assert_eq!(row.status(), Status::Canceling);
                    assert!(connection.update(posted).await.unwrap().canceled);
                    connection.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
                }
                None => assert_eq!((row.status(), row.worker_id), (Status::Canceled, None), "round {round}"),
            }
        }
    }
}
