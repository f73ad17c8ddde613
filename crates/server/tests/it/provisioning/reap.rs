//! The reaper (scheduling-and-auth 3.6).

use coder_server::tasks::driver::Task;
use coder_server::tasks::reap_jobs::ReapJobs;
use coder_store::jobs;
use coder_store::workspaces::builds;

use super::*;
use crate::harness::on_both_engines;

async fn reap(server: &TestServer) {
    ReapJobs::default().run(&server.app).await.unwrap();
}

on_both_engines! {
    async fn reap_1_silent_jobs_are_ended_and_others_left_alone(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let waiting = import(&server, &owner, json!({"environment": "nobody"})).await.1;
        server.advance(299);
        reap(&server).await;
        assert_eq!(status(&job(&server, posted).await), Status::Running);
        daemon.update(posted, 1).await.unwrap();
        server.advance(299);
        reap(&server).await;
        assert_eq!(status(&job(&server, posted).await), Status::Running, "a heartbeat counts");
        server.advance(2);
        reap(&server).await;
        let reaped = job(&server, posted).await;
        assert_eq!(status(&reaped), Status::Failed);
        assert_eq!(
            reaped.error,
            "Coder: Build has been detected as hung for 5 minutes and has been terminated by the reaper. (daemon d)"
        );
        let mut tx = server.app.store.reader().await.unwrap();
        let lines = jobs::logs::list(&mut tx, posted, 0, 100, 1 << 20).await.unwrap();
        drop(tx);
        assert_eq!(lines.len(), 6, "REAP-3");
        assert!(lines[1..].iter().all(|line| line.line.stage == "Plan"));
        assert_eq!(status(&job(&server, waiting).await), Status::Pending);
        server.advance(1800);
        reap(&server).await;
        let pending = job(&server, waiting).await;
        assert!(pending.error.contains("pending for 30 minutes"), "{}", pending.error);
        assert!(pending.started_at.is_some(), "REAP-4");

        for refusal in [
            refused(daemon.update(posted, 1).await),
            refused(daemon.fail(posted, "late").await),
            refused(daemon.calls.complete_job(&import_result(posted, vec![resource("a")])).await),
        ] {
            assert!(refusal.contains("job already completed"), "late messages: {refusal}");
        }
        assert_eq!(job(&server, posted).await.error, reaped.error);
    }

    async fn a_reaper_that_found_nothing_open_looks_again_for_jobs_posted_later(server: TestServer) {
        let owner = server.owner().await;
        reap(&server).await;
        let daemon = Daemon::untagged(&server, "d").await;
        for round in 0..3 {
            let posted = import(&server, &owner, json!({})).await.1;
            daemon.take(posted).await;
            server.advance(301);
            reap(&server).await;
            assert_eq!(status(&job(&server, posted).await), Status::Failed, "round {round}");
            // No job is open any more, and the reaper records this.
            reap(&server).await;
        }
    }

    async fn reap_5_a_reaped_build_keeps_the_state_of_the_one_before(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        let (workspace, _, start) = server.workspace(&owner, template, "w").await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(start).await;
        daemon.calls.complete_job(&build_result(start, b"state")).await.unwrap();
        let path = format!("/api/v2/workspaces/{workspace}/builds");
        let stop = server.post(&owner, &path, json!({ "transition": "stop" })).await.expect(201);
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        let (build, posted): (String, JobId) = (id(&stop["id"]), id(&stop["job"]["id"]).parse().unwrap());
        daemon.take(posted).await;
        server.advance(301);
        reap(&server).await;
        assert_eq!(status(&job(&server, posted).await), Status::Failed);
        let mut tx = server.app.store.reader().await.unwrap();
        assert_eq!(builds::find_state(&mut tx, build.parse().unwrap()).await.unwrap().unwrap(), b"state");
        drop(tx);
        server.post(&owner, &path, json!({ "transition": "start" })).await.expect(201);
    }

    async fn all_silent_jobs_are_ended_in_one_pass(server: TestServer) {
        let owner = server.owner().await;
        let mut all = Vec::new();
        for _ in 0..15 {
            all.push(import(&server, &owner, json!({})).await.1);
        }
        server.advance(1801);
        reap(&server).await;
        for id in all {
            assert_eq!(status(&job(&server, id).await), Status::Failed);
        }
    }
}
