//! Time limits: expiring keys, cancellations of disconnected daemons, pending jobs, and jumps of the clock.

use bytes::Bytes;
use coder_domain::key::Sha256Digest;
use coder_server::provisioning::session::authenticate::PresentedKey;
use coder_server::tasks::driver::Task;
use coder_server::tasks::heartbeat::Heartbeat;
use coder_server::tasks::reap_jobs::ReapJobs;
use coder_store::keys;

use super::daemon_process::{DaemonConnection, JoinOptions};
use super::*;
use crate::harness::settings;

/// A daemon that joined with a key which expires after so many seconds.
async fn expiring(server: &TestServer, name: &str, seconds: i64) -> DaemonConnection {
    let app = &server.app;
    let (id, organization) = (KeyId::random(), app.default_organization);
    let mut key = keys::Key::new(id, organization, name.to_owned(), TagSet::untagged(), app.now());
    key.expires_at = Some(app.now() + jiff::SignedDuration::from_secs(seconds));
    keys::insert(&mut app.store.single().await.unwrap(), &key, Sha256Digest::of(name)).await.unwrap();
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    let presented_key = Some(PresentedKey { key: id, secret: Sha256Digest::of(name), address });
    let connection =
        DaemonConnection::open(app, JoinOptions { name, key: id, presented_key, ..JoinOptions::default() })
            .await;
    connection.attach(&Bytes::new(), vec![]).await.unwrap();
    connection
}

#[tokio::test]
async fn the_sessions_of_a_key_end_when_it_expires_and_its_jobs_fail_with_that_reason() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (short, long) = (expiring(&server, "short", 60).await, expiring(&server, "long", 120).await);
    let posted = import(&server, &owner, json!({})).await.1;
    short.take(posted).await;
    server.advance(59);
    pass(59).await;
    short.update(posted).await.unwrap();
    server.advance(1);
    pass(1).await;
    tokio::time::timeout(WAIT_LIMIT, short.calls.session().closed()).await.unwrap();
    assert_eq!(
        job(&server, posted).await.error,
        "the key of the provisioner daemon has expired (daemon short)"
    );
    assert!(long.calls.session().end().is_none());
}

#[tokio::test]
async fn a_key_that_expires_by_a_jump_of_the_clock_ends_its_sessions_within_minutes() {
    let server = TestServer::sqlite().await;
    let connection = expiring(&server, "k", 24 * 3600).await;
    // The timer is set before the response is sent.
    connection.attach(&Bytes::new(), vec![]).await.unwrap_err();
    server.advance(25 * 3600);
    pass(601).await;
    tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
}

#[tokio::test]
async fn a_cancel_that_an_official_daemon_never_hears_ends_the_job() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, posted) = import(&server, &owner, json!({})).await;
    let (version_of_other, other) = import(&server, &owner, json!({})).await;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    let healthy = Daemon::untagged(&server, "healthy").await;
    healthy.take(other).await;
    daemon.calls.session().close().await;
    until(&server, posted, |job| job.lost_at.is_some()).await;
    cancel(&server, &owner, version).await;
    cancel(&server, &owner, version_of_other).await;
    assert_eq!(status(&job(&server, posted).await), Status::Canceling);
    let ended = async {
        loop {
            // A separate task sets the timer at some time.
            pass(31).await;
            let found = job(&server, posted).await;
            if found.completed_at.is_some() {
                return found;
            }
        }
    };
    let ended = ended.await;
    assert!(
        ended.error.starts_with("canceled while its provisioner daemon was disconnected"),
        "{}",
        ended.error
    );
    assert_eq!(status(&job(&server, other).await), Status::Canceling, "its daemon is connected");
    assert!(healthy.update(other, 0).await.unwrap().canceled);
    let back = Daemon::untagged(&server, "d").await;
    assert!(refused(back.update(posted, 1).await).contains("job already completed"));
}

#[tokio::test]
async fn a_long_queue_waits_for_ever_and_a_job_that_nobody_could_take_fails_with_the_reason() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let busy = Daemon::untagged(&server, "busy").await;
    let mut queue = Vec::new();
    for _ in 0..12 {
        queue.push(import(&server, &owner, json!({})).await.1);
    }
    let nobody = import(&server, &owner, json!({"pool": "gpu"})).await.1;
    let taken = queue.remove(0);
    busy.take(taken).await;
    for minutes in 0..90 {
        server.advance(60);
        Heartbeat.run(&server.app).await.unwrap();
        busy.update(taken, 0).await.unwrap();
        ReapJobs::default().run(&server.app).await.unwrap();
        let waits = job(&server, nobody).await;
        assert_eq!(waits.completed_at.is_none(), minutes < 30, "after {} minutes", minutes + 1);
    }
    for id in &queue {
        assert_eq!(
            status(&job(&server, *id).await),
            Status::Pending,
            "a daemon that can run the job is connected"
        );
    }
    let failed = job(&server, nobody).await;
    assert!(failed.error.contains("pending for 30 minutes"), "{}", failed.error);
    assert!(failed.error.contains("the only daemon has none"), "the reason is named: {}", failed.error);
    assert_eq!(status(&job(&server, taken).await), Status::Running);
    // Without that daemon, the waiting jobs fail at their deadline, and the error names the time it was last seen.
    busy.calls.session().close().await;
    for _ in 0..33 {
        server.advance(60);
        Heartbeat.run(&server.app).await.unwrap();
        ReapJobs::default().run(&server.app).await.unwrap();
    }
    for id in queue {
        let failed = job(&server, id).await;
        assert_eq!(status(&failed), Status::Failed);
        assert!(failed.error.contains("last seen"), "{}", failed.error);
    }
}

#[tokio::test]
async fn a_changed_clock_ends_no_running_job() {
    let mut config = settings();
    config.provisioning.daemon_grace = Duration::from_secs(120);
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let (running, waiting) =
        (import(&server, &owner, json!({})).await.1, import(&server, &owner, json!({})).await.1);
    let connection = DaemonConnection::fresh(&server.app, "d").await.0;
    connection.take(running).await;
    let mut reaper = ReapJobs::default();
    reaper.run(&server.app).await.unwrap();
    for jump in [3600, -2 * 3600, 24 * 3600, -12 * 3600] {
        server.advance(jump);
        pass(1).await;
        reaper.run(&server.app).await.unwrap();
        for (id, expected) in [(running, Status::Running), (waiting, Status::Pending)] {
            assert_eq!(status(&job(&server, id).await), expected, "after {jump}");
        }
        assert!(!connection.update(running).await.unwrap().canceled);
    }
    // After that, the official time limit for silent daemons applies again.
    connection.take(waiting).await;
    connection.calls.complete_job(&import_result(running, vec![])).await.unwrap();
    server.advance(299);
    pass(299).await;
    reaper.run(&server.app).await.unwrap();
    assert_eq!(status(&job(&server, waiting).await), Status::Running);
    server.advance(2);
    pass(2).await;
    reaper.run(&server.app).await.unwrap();
    assert_eq!(status(&job(&server, waiting).await), Status::Failed);
}

#[tokio::test]
async fn a_daemon_is_listed_as_long_as_it_is_connected_whatever_the_clock_says() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let connection = DaemonConnection::fresh(&server.app, "d").await.0;
    // A daemon of a killed server: the end of its connection was not stored.
    let dead = DaemonConnection::fresh(&server.app, "dead").await.0;
    let lost = format!("update provisioner_daemons set connection = 'x' where id = '{}'", dead.id);
    server.execute(&lost).await;
    dead.cut();
    eventually("it is gone", || server.app.scheduler.connected().len() == 1).await;
    const PATH: &str = "/api/v2/organizations/default/provisionerdaemons";
    let shown = async |query: &str| {
        let list = server.get(&owner, &format!("{PATH}{query}")).await.expect(200);
        let of = |daemon: &Value| format!("{} {}", daemon["name"], daemon["status"]).replace('"', "");
        list.as_array().unwrap().iter().map(of).collect::<std::collections::BTreeSet<_>>()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(shown("").await, set(&["d idle", "dead idle"]), "it was seen a moment ago");
    // No heartbeat runs here.
    for jump in [3600, -2 * 3600, 3 * 3600] {
        server.advance(jump);
        assert_eq!(shown("").await, set(&["d idle"]), "after {jump}");
        assert_eq!(shown("?max_age=10s").await, set(&["d idle"]), "after {jump}");
        let health = server.get(&owner, "/api/v2/debug/health").await.expect(200);
        assert_eq!(health["provisioner_daemons"]["items"].as_array().unwrap().len(), 1, "{health}");
        let posted = import(&server, &owner, json!({})).await.0;
        let version = server.get(&owner, &format!("/api/v2/templateversions/{posted}")).await.expect(200);
        assert_eq!(version["matched_provisioners"]["available"], 1, "after {jump}: {version}");
        cancel(&server, &owner, posted).await;
    }
    server.advance(8 * 24 * 3600);
    coder_server::tasks::purge::Purge.run(&server.app).await.unwrap();
    server.advance(-8 * 24 * 3600);
    assert_eq!(shown("?offline=true").await, set(&["d idle"]), "rows of connected daemons stay");
    assert!(connection.calls.session().end().is_none());
}

#[tokio::test]
async fn a_heartbeat_corrects_rows_whose_end_could_not_be_noted() {
    let server = TestServer::sqlite().await;
    let connection = DaemonConnection::fresh(&server.app, "d").await.0;
    let row = async || {
        let mut tx = server.app.store.reader().await.unwrap();
        daemons::find(&mut tx, connection.id).await.unwrap().unwrap()
    };
    connection.cut();
    poll_until("it has left", async || row().await.left_at).await;
    server.execute("update provisioner_daemons set left_us = null").await;
    Heartbeat.run(&server.app).await.unwrap();
    assert_eq!(row().await.left_at, None, "a daemon that joins at this moment has the same row");
    server.advance(10);
    Heartbeat.run(&server.app).await.unwrap();
    assert_eq!(row().await.left_at, Some(server.app.now()));
}
