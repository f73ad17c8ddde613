//! Failing daemons: one that repeatedly takes a job and dies, and two that share a name.

use coder_server::tasks::driver::Task;
use coder_server::tasks::reap_jobs::ReapJobs;
use coder_wire::extension::messages::Verdict;
use coder_wire::extension::messages::notification::Notification;

use super::daemon_process::{DaemonConnection, held, next_notification, state};
use super::*;
use crate::harness::{on_both_engines, settings};

/// How often a daemon dies; a thousand times with `CODER_TEST_LONG`.
fn deaths() -> usize {
    if std::env::var_os("CODER_TEST_LONG").is_some() { 1000 } else { 60 }
}

#[tokio::test]
async fn a_daemon_that_takes_a_job_and_dies_each_time_costs_those_jobs_and_nothing_else() {
    let mut config = settings();
    config.provisioning.daemon_grace = Duration::from_millis(1);
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let mut posted = Vec::new();
    for number in 0..deaths() {
        let id = import(&server, &owner, json!({})).await.1;
        // With a session, as an official daemon, and before it holds the acquired job, in turn.
        if number % 3 == 0 {
            let daemon = Daemon::untagged(&server, "dies").await;
            daemon.take(id).await;
            daemon.calls.session().close().await;
        } else {
            let (connection, _) = DaemonConnection::fresh(&server.app, "dies").await;
            connection.take(id).await;
            if number % 3 == 1 {
                connection.hold(id).await.unwrap();
            }
            connection.cut();
        }
        posted.push((id, number % 3 == 0));
    }
    for (id, is_official) in &posted {
        let id = *id;
        if *is_official {
            until(&server, id, |job| job.lost_at.is_some()).await;
        } else {
            let lost = until(&server, id, |job| job.completed_at.is_some()).await;
            assert!(lost.error.starts_with("daemon lost"), "{}", lost.error);
        }
    }
    all_gone(&server).await;
    all_wait(&server, (0, 0)).await;
    // Jobs of official daemons last for five minutes more. Then all of them end at once.
    server.advance(301);
    ReapJobs::default().run(&server.app).await.unwrap();
    for (id, _) in posted {
        assert_eq!(status(&job(&server, id).await), Status::Failed);
    }
    let last = import(&server, &owner, json!({})).await.1;
    let healthy = Daemon::untagged(&server, "dies").await;
    healthy.take(last).await;
    healthy.calls.complete_job(&import_result(last, vec![])).await.unwrap();
}

on_both_engines! {
    async fn two_live_daemons_of_one_name_have_their_own_jobs(server: TestServer) {
        let owner = server.owner().await;
        let (one, session) = DaemonConnection::fresh(&server.app, "twin").await;
        let (two, _) = DaemonConnection::fresh(&server.app, "twin").await;
        assert_eq!(one.id, two.id, "they share a row");
        let first = import(&server, &owner, json!({})).await.1;
        one.take(first).await;
        let token = one.hold(first).await.unwrap().token;
        let second = import(&server, &owner, json!({})).await.1;
        two.take(second).await;
        two.hold(second).await.unwrap();
        // Neither may report for the other, and the end of one does not affect the other.
        one.update(second).await.unwrap_err();
        two.update(first).await.unwrap_err();
        two.hold(first).await.unwrap_err();
        one.cut();
        until(&server, first, |job| job.lost_at.is_some()).await;
        two.update(second).await.unwrap();
        assert_eq!(job(&server, second).await.lost_at, None);
        let (back, answer) = DaemonConnection::again(&server.app, "twin", &session, vec![held(first, &token)]).await;
        assert_eq!(answer.jobs[0].verdict(), Verdict::GoOn);
        for (connection, id) in [(&back, first), (&two, second)] {
            connection.calls.complete_job(&import_result(id, vec![])).await.unwrap();
            assert_eq!(status(&job(&server, id).await), Status::Succeeded);
        }
    }

    async fn a_token_that_was_replaced_but_never_arrived_is_good_for_a_salvage(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        for (name, is_used) in [("lost", false), ("used", true)] {
            let (_, _, posted) = server.workspace(&owner, template, name).await;
            let (connection, session) = DaemonConnection::fresh(&server.app, name).await;
            connection.take(posted).await;
            let old = connection.hold(posted).await.unwrap().token;
            connection.cut();
            until(&server, posted, |job| job.lost_at.is_some()).await;
            let (back, answer) = DaemonConnection::again(&server.app, name, &session, vec![held(posted, &old)]).await;
            let verdict = &answer.jobs[0];
            assert_eq!(verdict.verdict(), Verdict::GoOn);
            if is_used {
                back.logs(posted, &verdict.token, 1..2).await.unwrap();
            }
            // The former token is not accepted for anything else, on any connection.
            back.logs(posted, &old, 1..2).await.unwrap_err();
            back.ext.journal(&state(posted, &old, "a", 1)).await.unwrap_err();
            connection.update(posted).await.unwrap_err();
            // Killed before the response was stored. Another process finds the old token on the disk.
            back.cut();
            let (heir, _) = DaemonConnection::fresh(&server.app, name).await;
            heir.logs(posted, &old, 1..2).await.unwrap_err();
            let salvaged = heir.ext.salvage(&state(posted, &old, "a", 2)).await;
            assert_eq!(salvaged.is_ok(), !is_used, "{name}: {salvaged:?}");
            let found = job(&server, posted).await;
            assert_eq!(found.completed_at.is_some(), !is_used, "{name}");
            if !is_used {
                assert!(found.error.starts_with("daemon lost"), "{}", found.error);
                assert!(!heir.ext.salvage(&state(posted, &old, "a", 1)).await.unwrap().kept, "an older state");
            }
        }
    }

    async fn a_drain_is_remembered_until_the_process_has_left(first: TestServer) {
        let owner = first.owner().await;
        let posted = import(&first, &owner, json!({})).await.1;
        let (connection, session) = DaemonConnection::fresh(&first.app, "d").await;
        connection.take(posted).await;
        let token = connection.hold(posted).await.unwrap().token;
        connection.cut();
        until(&first, posted, |job| job.lost_at.is_some()).await;
        eventually("it has left", || first.app.scheduler.connected().is_empty()).await;
        first.advance(1);
        let path = "/api/v2/organizations/default/provisionerdaemons/d/drain";
        assert_eq!(first.post(&owner, path, Value::Null).await.expect(200)["notified"], 0);
        first.advance(1);
        // The server restarts, and the daemon reconnects to the new process.
        let next = first.beside(settings()).await;
        let (back, _) = DaemonConnection::again(&next.app, "d", &session, vec![held(posted, &token)]).await;
        let mut notifications = back.ext.notifications().await.unwrap();
        let Notification::Drain(drain) = next_notification(&mut notifications).await else { panic!("a drain") };
        assert_eq!(drain.reason, "admin asked for it");
        // The drain does not apply to a new process of that name, even after a lost connection.
        let (new, fresh) = DaemonConnection::fresh(&next.app, "d").await;
        new.cut();
        let (new, _) = DaemonConnection::again(&next.app, "d", &fresh, vec![]).await;
        let mut notifications = new.ext.notifications().await.unwrap();
        back.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
        let (version, last) = import(&next, &owner, json!({})).await;
        new.take(last).await;
        cancel(&next, &owner, version).await;
        let said = next_notification(&mut notifications).await;
        assert!(matches!(said, Notification::JobCancel(_)), "{said:?}");
    }
}
