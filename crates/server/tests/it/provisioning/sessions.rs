//! Daemons with extensions: resuming jobs, tokens, numbered lines, states, slots, notifications
//! (docs/extensions.md).

use bytes::Bytes;
use coder_domain::key::Sha256Digest;
use coder_server::provisioning::credentials::revoke;
use coder_store::keys;
use coder_store::workspaces::builds;
use coder_wire::extension::messages::notification::Notification;
use coder_wire::extension::messages::{ProgramReport, SlotsReport, Verdict};
use coder_wire::extension::{Extension, Extensions};

use super::daemon_process::{DaemonConnection, JoinOptions, held, log, next_notification, state};
use super::*;
use crate::harness::{on_both_engines, settings};

on_both_engines! {
    async fn a_cut_job_continues_on_the_next_connection_and_late_messages_of_the_old_one_are_refused(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let (old, session) = DaemonConnection::fresh(&server.app, "d").await;
        old.take(posted).await;
        let (first, second) = tokio::join!(old.hold(posted), old.hold(posted));
        let token = first.unwrap().token;
        assert_eq!(second.unwrap().token, token, "two concurrent calls get the same answer");
        assert_eq!(old.hold(posted).await.unwrap().token, token, "the same answer again");
        assert_eq!(old.logs(posted, &token, 1..4).await.unwrap().next_sequence, 4);
        // The old connection is still open, but the daemon treats it as lost.
        let (new, answer) = DaemonConnection::again(&server.app, "d", &session, vec![held(posted, &token)]).await;
        assert_eq!(answer.session, session);
        assert!(answer.grace_ms > 0);
        let verdict = &answer.jobs[0];
        assert_eq!((verdict.verdict(), verdict.next_sequence), (Verdict::GoOn, 4));
        assert_ne!(verdict.token, token);
        let before = job(&server, posted).await;
        old.logs(posted, &token, 4..6).await.unwrap_err();
        old.update(posted).await.unwrap_err();
        assert!(new.logs(posted, &token, 4..6).await.is_err(), "an old token");
        assert_eq!(job(&server, posted).await, before, "nothing changed");
        assert_eq!(new.logs(posted, &verdict.token, 2..7).await.unwrap().next_sequence, 7, "2 and 3 are skipped");
        assert_eq!(new.logs(posted, &verdict.token, 9..12).await.unwrap().next_sequence, 7, "a gap");
        assert_eq!(log(&server.app, posted).await, ["line 1", "line 2", "line 3", "line 4", "line 5", "line 6"]);
        let result = import_result(posted, vec![]);
        new.calls.complete_job(&result).await.unwrap();
        new.calls.complete_job(&result).await.unwrap();
        assert_eq!(status(&job(&server, posted).await), Status::Succeeded);
        let (_last, answer) = DaemonConnection::again(&server.app, "d", &session, vec![held(posted, &verdict.token)]).await;
        assert_eq!(answer.jobs[0].verdict(), Verdict::Ended);
    }

    async fn nobody_without_the_session_gets_the_job(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let (connection, session) = DaemonConnection::fresh(&server.app, "d").await;
        connection.take(posted).await;
        let token = connection.hold(posted).await.unwrap().token;
        let before = job(&server, posted).await;
        // A second live daemon of the same name has the same row.
        let (twin, other) = DaemonConnection::fresh(&server.app, "d").await;
        assert_eq!(twin.id, connection.id);
        assert_ne!(other, session);
        twin.hold(posted).await.unwrap_err();
        for presented in [Bytes::new(), vec![9; 32].into(), other.clone()] {
            let (thief, answer) = DaemonConnection::again(&server.app, "d", &presented, vec![held(posted, &token)]).await;
            assert_eq!(answer.jobs[0].verdict(), Verdict::Lost);
            thief.update(posted).await.unwrap_err();
            thief.logs(posted, &token, 1..2).await.unwrap_err();
        }
        let official = Daemon::untagged(&server, "d").await;
        assert!(refused(official.update(posted, 1).await).contains("you don't own this job"));
        assert!(refused(official.fail(posted, "mine").await).contains("you don't own this job"));
        assert_eq!(job(&server, posted).await, before);
        connection.update(posted).await.unwrap();
        connection.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
    }

    async fn a_job_that_never_reached_its_daemon_fails_when_that_comes_back(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let (connection, session) = DaemonConnection::fresh(&server.app, "d").await;
        connection.take(posted).await;
        connection.cut();
        let (_again, answer) = DaemonConnection::again(&server.app, "d", &session, vec![]).await;
        assert_eq!(answer.session, session);
        let failed = job(&server, posted).await;
        assert_eq!((status(&failed), failed.error.as_str()), (Status::Failed, "connection to provisioner daemon broken (daemon d)"));
    }

    async fn the_newest_state_of_a_journal_survives_its_daemon(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        let (_, build, posted) = server.workspace(&owner, template, "w").await;
        let build = build.parse().unwrap();
        let (connection, _) = DaemonConnection::fresh(&server.app, "d").await;
        connection.take(posted).await;
        let token = connection.hold(posted).await.unwrap().token;
        for (serial, kept, newest) in [(1, true, 1), (5, true, 5), (4, false, 5)] {
            let receipt = connection.ext.journal(&state(posted, &token, "a", serial)).await.unwrap();
            assert_eq!((receipt.kept, receipt.serial), (kept, newest), "{serial}");
        }
        assert!(!connection.ext.journal(&state(posted, &token, "b", 9)).await.unwrap().kept, "another lineage");
        connection.ext.journal(&state(posted, &Bytes::from_static(b"forged"), "a", 9)).await.unwrap_err();
        connection.calls.fail_job(&FailedJob { job_id: posted.to_string(), error: "x".to_owned(), ..FailedJob::default() }).await.unwrap();
        let stored = async || {
            let mut tx = server.app.store.reader().await.unwrap();
            String::from_utf8(builds::find_state(&mut tx, build).await.unwrap().unwrap()).unwrap()
        };
        assert!(stored().await.contains(r#""serial":5"#));
        // Another process of the daemon finds a newer state on its disk.
        let (heir, _) = DaemonConnection::fresh(&server.app, "d").await;
        assert!(!heir.ext.salvage(&state(posted, &token, "a", 3)).await.unwrap().kept);
        heir.ext.salvage(&state(posted, &Bytes::from_static(b"forged"), "a", 9)).await.unwrap_err();
        assert!(heir.ext.salvage(&state(posted, &token, "a", 6)).await.unwrap().kept);
        assert!(stored().await.contains(r#""serial":6"#));
    }

    async fn a_salvage_ends_the_job_of_a_killed_process(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        let (_, build, posted) = server.workspace(&owner, template, "w").await;
        let (connection, _) = DaemonConnection::fresh(&server.app, "d").await;
        connection.take(posted).await;
        let token = connection.hold(posted).await.unwrap().token;
        connection.cut();
        let (heir, _) = DaemonConnection::fresh(&server.app, "d").await;
        assert!(heir.ext.salvage(&state(posted, &token, "a", 2)).await.unwrap().kept);
        let failed = job(&server, posted).await;
        assert!(failed.error.contains("daemon lost"), "{}", failed.error);
        let mut tx = server.app.store.reader().await.unwrap();
        assert!(builds::find_state(&mut tx, build.parse().unwrap()).await.unwrap().is_some());
    }

    async fn the_end_of_a_key_ends_sessions_and_jobs_at_once(server: TestServer) {
        let owner = server.owner().await;
        let app = &server.app;
        let key = keys::Key::new(KeyId::random(), app.default_organization, "k".to_owned(), TagSet::untagged(), app.now());
        keys::insert(&mut app.store.single().await.unwrap(), &key, Sha256Digest::of("secret")).await.unwrap();
        let ours = import(&server, &owner, json!({})).await.1;
        let connection = DaemonConnection::open(app, JoinOptions { name: "ours", key: key.id, ..JoinOptions::default() }).await;
        connection.attach(&Bytes::new(), vec![]).await.unwrap();
        connection.take(ours).await;
        let theirs = import(&server, &owner, json!({})).await.1;
        let official = Daemon::join(&server, "official", key.id, &[]).await;
        official.take(theirs).await;
        let spared = import(&server, &owner, json!({})).await.1;
        let other = Daemon::untagged(&server, "other").await;
        other.take(spared).await;
        let mut notifications = connection.ext.notifications().await.unwrap();
        let started = std::time::Instant::now();
        let revoking = revoke::key(app, key.id, revoke::Reason::Deleted);
        let (ended, notification) = tokio::join!(revoking, next_notification(&mut notifications));
        assert_eq!(ended.unwrap(), 2);
        let Notification::JobRevoked(revoked) = notification else { panic!("{notification:?}") };
        assert_eq!(revoked.job_id, ours.to_string());
        tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
        tokio::time::timeout(WAIT_LIMIT, official.calls.session().closed()).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        for id in [ours, theirs] {
            let failed = job(&server, id).await;
            let name = if id == ours { "ours" } else { "official" };
            assert_eq!(failed.error, format!("the key of the provisioner daemon was deleted (daemon {name})"));
        }
        assert_eq!(status(&job(&server, spared).await), Status::Running);
        other.update(spared, 1).await.unwrap();
    }
}

#[tokio::test]
async fn a_daemon_that_does_not_come_back_is_lost_when_its_grace_ends() {
    let mut config = settings();
    config.provisioning.daemon_grace = Duration::from_millis(50);
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let posted = import(&server, &owner, json!({})).await.1;
    let (connection, session) = DaemonConnection::fresh(&server.app, "d").await;
    connection.take(posted).await;
    connection.cut();
    let lost = until(&server, posted, |job| job.status() == Status::Failed).await;
    assert_eq!(lost.error, "daemon lost: its connection ended and it did not come back in time (daemon d)");
    let (_late, answer) =
        DaemonConnection::again(&server.app, "d", &session, vec![held(posted, &Bytes::new())]).await;
    assert_eq!(answer.jobs[0].verdict(), Verdict::Lost);
    assert!(answer.jobs[0].reason.contains("daemon lost"));
}

#[tokio::test]
async fn an_official_daemon_keeps_the_official_rule() {
    let mut config = settings();
    config.provisioning.daemon_grace = Duration::from_millis(1);
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let posted = import(&server, &owner, json!({})).await.1;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    daemon.calls.session().close().await;
    until(&server, posted, |job| job.lost_at.is_some()).await;
    let back = Daemon::untagged(&server, "d").await;
    back.update(posted, 2).await.unwrap();
    assert_eq!(job(&server, posted).await.lost_at, None);
    back.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
}

#[tokio::test]
async fn a_cancel_arrives_at_once_and_is_forced_after_the_interval() {
    let mut config = settings();
    config.provisioning.force_cancel_after = Duration::from_millis(20);
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let (version, posted) = import(&server, &owner, json!({})).await;
    let (connection, session) = DaemonConnection::fresh(&server.app, "d").await;
    connection.take(posted).await;
    let mut notifications = connection.ext.notifications().await.unwrap();
    cancel(&server, &owner, version).await;
    let Notification::JobCancel(first) = next_notification(&mut notifications).await else {
        panic!("a cancel")
    };
    assert_eq!((first.job_id, first.force), (posted.to_string(), false));
    server.advance(1);
    let Notification::JobCancel(second) = next_notification(&mut notifications).await else {
        panic!("a cancel")
    };
    assert!(second.force);
    assert!(connection.update(posted).await.unwrap().canceled, "heartbeats go on");
    connection.cut();
    // Sent again after a lost connection.
    let (again, answer) =
        DaemonConnection::again(&server.app, "d", &session, vec![held(posted, &Bytes::new())]).await;
    assert!(answer.jobs[0].canceled);
    let Notification::JobCancel(third) =
        next_notification(&mut again.ext.notifications().await.unwrap()).await
    else {
        panic!("a cancel")
    };
    assert!(third.force);
    again.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
    assert_eq!(status(&job(&server, posted).await), Status::Canceled);
}

#[tokio::test]
async fn slots_are_reported_and_a_drain_arrives() {
    let server = TestServer::sqlite().await;
    let (connection, _) = DaemonConnection::fresh(&server.app, "d").await;
    connection.ext.report_slots(&SlotsReport { slots: 8, busy: 2, draining: false }).await.unwrap();
    let row =
        daemons::find(&mut server.app.store.reader().await.unwrap(), connection.id).await.unwrap().unwrap();
    assert_eq!((row.slots, row.busy, row.draining), (8, 2, false));
    for (slots, busy) in [(0, 0), (257, 0), (u32::MAX, 0), (1, 257)] {
        connection.ext.report_slots(&SlotsReport { slots, busy, draining: true }).await.unwrap_err();
    }
    let mut notifications = connection.ext.notifications().await.unwrap();
    assert_eq!(server.app.scheduler.connected().drain(connection.id, "make room", server.app.now()), 1);
    let Notification::Drain(drain) = next_notification(&mut notifications).await else { panic!("a drain") };
    assert_eq!(drain.reason, "make room");
}

on_both_engines! {
    async fn the_program_that_a_daemon_reports_is_shown_with_the_job(server: TestServer) {
        let owner = server.owner().await;
        let (version, posted) = import(&server, &owner, json!({})).await;
        let shown = async || {
            let version = server.get(&owner, &format!("/api/v2/templateversions/{version}")).await.expect(200);
            let path = format!("/api/v2/organizations/default/provisionerjobs/{posted}");
            let alone = server.get(&owner, &path).await.expect(200)["program"].clone();
            assert_eq!(version["job"]["program"], alone);
            alone
        };
        let (connection, _) = DaemonConnection::fresh(&server.app, "d").await;
        connection.take(posted).await;
        let token = connection.hold(posted).await.unwrap().token;
        let report = |token: &Bytes, product: &str, version: &str| ProgramReport {
            job_id: posted.to_string(),
            token: token.clone(),
            product: product.to_owned(),
            version: version.to_owned(),
        };
        let long = "1".repeat(65);
        for (product, version) in [("", "1.9.8"), ("bash", "5.2"), ("terraform", ""), ("opentofu", "1 2"), ("terraform", &long)] {
            connection.ext.report_program(&report(&token, product, version)).await.unwrap_err();
        }
        connection.ext.report_program(&report(&Bytes::from_static(b"other"), "terraform", "1.9.8")).await.unwrap_err();
        assert_eq!(shown().await, json!(null), "nothing is reported before it is known");
        connection.ext.report_program(&report(&token, "opentofu", "1.10.6+x")).await.unwrap();
        assert_eq!(shown().await, json!({"product": "opentofu", "version": "1.10.6+x"}));
        connection.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
        connection.ext.report_program(&report(&token, "terraform", "1.9.8")).await.unwrap_err();
        assert_eq!(shown().await["product"], "opentofu", "an ended job keeps the reported value");
    }
}

#[tokio::test]
async fn several_acquires_of_one_session_each_get_a_job() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (connection, _) = DaemonConnection::fresh(&server.app, "d").await;
    let acquires = (0..3).map(|_| connection.calls.acquire(std::future::pending()));
    let posting = async {
        let mut posted = Vec::new();
        for _ in 0..3 {
            posted.push(import(&server, &owner, json!({})).await.1.to_string());
        }
        posted
    };
    let (got, mut posted) = tokio::join!(futures_util::future::join_all(acquires), posting);
    let mut got: Vec<_> = got.into_iter().map(|job| job.unwrap().unwrap().job_id).collect();
    got.sort();
    posted.sort();
    assert_eq!(got, posted);
}

/// Everything works when any single extension is refused.
#[tokio::test]
async fn each_extension_can_be_refused_alone() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    for refused in Extension::ALL {
        let extensions = Extensions::ALL.without(refused);
        let name = format!("without-{}", refused.name());
        let options = || JoinOptions { name: &name, extensions, ..JoinOptions::default() };
        let posted = import(&server, &owner, json!({})).await.1;
        let connection = DaemonConnection::open(&server.app, options()).await;
        let session = connection.attach(&Bytes::new(), vec![]).await.unwrap().session;
        connection.take(posted).await;
        let token = connection.hold(posted).await.unwrap().token;
        if extensions.has(Extension::Logs) {
            connection.logs(posted, &token, 1..3).await.unwrap();
        } else {
            connection.logs(posted, &token, 1..3).await.unwrap_err();
        }
        connection.cut();
        let connection = DaemonConnection::open(&server.app, options()).await;
        let jobs = if extensions.has(Extension::Resume) { vec![held(posted, &token)] } else { vec![] };
        assert_eq!(connection.attach(&session, jobs).await.unwrap().session, session, "{name}");
        connection.update(posted).await.unwrap();
        let token = connection.hold(posted).await.unwrap().token;
        if extensions.has(Extension::Logs) {
            assert_eq!(connection.logs(posted, &token, 1..4).await.unwrap().next_sequence, 4, "{name}");
        }
        connection.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
        assert_eq!(status(&job(&server, posted).await), Status::Succeeded, "{name}");
    }
}
