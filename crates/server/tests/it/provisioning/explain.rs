//! Why a job waits: each reason through the endpoint, about real sessions.

use coder_store::organizations;

use super::*;
use crate::harness::on_both_engines;

const JOBS: &str = "/api/v2/organizations/default/provisionerjobs";
const KEYS: &str = "/api/v2/organizations/default/provisionerkeys";
const DAEMONS: &str = "/api/v2/organizations/default/provisionerdaemons";

/// The codes of a job's reasons, and the first sentence.
async fn reasons(server: &TestServer, token: &str, job: JobId) -> (Vec<String>, String) {
    let answer = server.get(token, &format!("{JOBS}/{job}/explain")).await.expect(200);
    assert_eq!(answer["job_id"], job.to_string());
    let reasons = answer["reasons"].as_array().unwrap();
    for reason in reasons {
        assert!(!reason["next_step"].as_str().unwrap().is_empty(), "{reason}");
    }
    let text = |reason: &Value, field: &str| reason[field].as_str().unwrap().to_owned();
    let codes = reasons.iter().map(|reason| text(reason, "code")).collect();
    (codes, reasons.first().map(|reason| text(reason, "message")).unwrap_or_default())
}

async fn key(server: &TestServer, owner: &str, request: Value) -> KeyId {
    server.post(owner, KEYS, request.clone()).await.expect(201);
    let listed = server.get(owner, KEYS).await.expect(200);
    let of_name = |key: &&Value| key["name"] == request["name"];
    let found = listed.as_array().unwrap().iter().find(of_name).unwrap()["id"].clone();
    found.as_str().unwrap().parse().unwrap()
}

on_both_engines! {
    async fn one_no_daemon_is_in_the_organization(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({"a": "1"})).await.1;
        let (codes, message) = reasons(&server, &owner, posted).await;
        assert_eq!(codes, ["no_daemons"]);
        assert_eq!(message, "No daemon has joined this organization.");
    }

    async fn two_the_nearest_daemon_lacks_a_tag_or_has_another_value(server: TestServer) {
        let owner = server.owner().await;
        let _near = Daemon::tagged(&server, "near", &[("a", "1"), ("c", "3")]).await;
        let _far = Daemon::tagged(&server, "far", &[("z", "1")]).await;
        let lacking = import(&server, &owner, json!({"a": "1", "b": "2"})).await.1;
        let (codes, message) = reasons(&server, &owner, lacking).await;
        assert_eq!((codes[0].as_str(), message.as_str()), ("missing_tag", "The nearest daemon, near, lacks b=2."));
        let other = import(&server, &owner, json!({"a": "2", "c": "3"})).await.1;
        let (codes, message) = reasons(&server, &owner, other).await;
        assert_eq!(codes[0], "different_tag");
        assert_eq!(message, "The nearest daemon, near, has a=1 where the job wants a=2.");
    }

    async fn three_tagged_jobs_and_untagged_daemons_and_the_reverse(server: TestServer) {
        let owner = server.owner().await;
        let plain = Daemon::untagged(&server, "plain").await;
        let tagged = import(&server, &owner, json!({"a": "1"})).await.1;
        assert_eq!(reasons(&server, &owner, tagged).await.0, ["tagged_job"]);
        drop(plain);
        server.advance(60);
        let now = server.app.now();
        daemons::purge(&mut server.app.store.single().await.unwrap(), now, &daemons::ConnectedDaemons::default()).await.unwrap();
        let _tagged = Daemon::tagged(&server, "tagged", &[("a", "1")]).await;
        let untagged = import(&server, &owner, json!({})).await.1;
        assert_eq!(reasons(&server, &owner, untagged).await.0, ["untagged_job"]);
    }

    async fn four_a_matching_daemon_was_last_seen(server: TestServer) {
        let owner = server.owner().await;
        let daemon = Daemon::tagged(&server, "gone", &[("a", "1")]).await;
        drop(daemon);
        all_gone(&server).await;
        server.advance(600);
        let posted = import(&server, &owner, json!({"a": "1"})).await.1;
        let (codes, message) = reasons(&server, &owner, posted).await;
        assert_eq!(codes, ["not_seen"]);
        assert!(message.starts_with("Daemon gone could run the job but was last seen at 2026-05-28T20:26:40Z"), "{message}");
    }

    async fn five_its_key_expired_or_was_deleted(server: TestServer) {
        let owner = server.owner().await;
        let short = key(&server, &owner, json!({"name": "short", "tags": {"a": "1"}, "expires_in_seconds": 60})).await;
        let _old = Daemon::join(&server, "old", short, &[("a", "1")]).await;
        let posted = import(&server, &owner, json!({"a": "1"})).await.1;
        assert_eq!(reasons(&server, &owner, posted).await.0, ["starting"]);
        server.advance(60);
        assert_eq!(reasons(&server, &owner, posted).await.0, ["key_expired"]);
        let long = key(&server, &owner, json!({"name": "long", "tags": {"b": "1"}})).await;
        let _new = Daemon::join(&server, "new", long, &[("b", "1")]).await;
        let posted = import(&server, &owner, json!({"b": "1"})).await.1;
        server.delete(&owner, &format!("{KEYS}/long")).await.expect(204);
        let (codes, message) = reasons(&server, &owner, posted).await;
        assert_eq!(codes[0], "key_revoked");
        assert!(message.starts_with("Daemon new could run the job but its key was deleted at "), "{message}");
    }

    async fn six_all_matching_daemons_are_busy(server: TestServer) {
        let owner = server.owner().await;
        let daemon = Daemon::untagged(&server, "d").await;
        let running = import(&server, &owner, json!({})).await.1;
        daemon.take(running).await;
        let mut last = running;
        for _ in 0..3 {
            server.advance(1);
            last = import(&server, &owner, json!({})).await.1;
        }
        let (codes, message) = reasons(&server, &owner, last).await;
        assert_eq!(codes, ["busy"]);
        assert_eq!(
            message,
            "The one daemon that can run the job is busy (1 slot): position 3 of 3, oldest running since \
             2026-05-28T20:26:40Z."
        );
        let taken = server.get(&owner, &format!("{JOBS}/{running}/explain")).await.expect(200);
        assert_eq!((&taken["status"], &taken["reasons"]), (&json!("running"), &json!([])));
    }

    async fn seven_the_matching_daemon_drains(server: TestServer) {
        let owner = server.owner().await;
        let daemon = Daemon::untagged(&server, "d").await;
        let running = import(&server, &owner, json!({})).await.1;
        daemon.take(running).await;
        let answer = server.post(&owner, &format!("{DAEMONS}/d/drain"), Value::Null).await.expect(200);
        assert_eq!((&answer["daemons"], &answer["notified"]), (&json!([daemon.id.to_string()]), &json!(1)));
        let posted = import(&server, &owner, json!({})).await.1;
        let (codes, message) = reasons(&server, &owner, posted).await;
        assert_eq!((codes, message.as_str()), (vec!["draining".to_owned()], "Daemon d could run the job but drains."));
        let shown = server.get(&owner, DAEMONS).await.expect(200);
        assert_eq!((&shown[0]["draining"], &shown[0]["busy_slots"], &shown[0]["slots"]), (&json!(true), &json!(1), &json!(1)));
        // An official daemon stays connected and gets no jobs until it is undrained.
        daemon.fail(running, "x").await.unwrap();
        let calls = daemon.calls.clone();
        let acquiring = tokio::spawn(async move { calls.acquire(std::future::pending()).await });
        assert_eq!(reasons(&server, &owner, posted).await.0, ["draining"]);
        assert_eq!(status(&job(&server, posted).await), Status::Pending, "it acquired no more jobs");
        server.delete(&owner, &format!("{DAEMONS}/d/drain")).await.expect(200);
        let taken = tokio::time::timeout(WAIT_LIMIT, acquiring).await.unwrap().unwrap().unwrap().unwrap();
        assert_eq!(taken.job_id, posted.to_string());
    }

    async fn eight_the_only_daemon_serves_another_user(server: TestServer) {
        let owner = server.owner().await;
        let other = server.user(&owner, "other", &[]).await;
        let other = server.user_id(&other).await;
        let _theirs = Daemon::join_for(&server, "theirs", KeyId::USER_AUTH, other, &[("scope", "user")]).await;
        let posted = import(&server, &owner, json!({"scope": "user"})).await.1;
        let (codes, message) = reasons(&server, &owner, posted).await;
        assert_eq!(codes, ["other_user"]);
        assert_eq!(message, "Daemon theirs takes the jobs of another user only.");
    }
}

#[tokio::test]
async fn only_the_initiator_and_admins_may_read_why_a_job_waits() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (_, version) = server.template(&owner, "t").await;
    let [mine, other] = [server.user(&owner, "mine", &[]).await, server.user(&owner, "other", &[]).await];
    let path = format!("/api/v2/templateversions/{version}/dry-run");
    let made = server.post(&mine, &path, json!({ "workspace_name": "x" })).await.expect(201);
    let explain = format!("{JOBS}/{}/explain", made["id"].as_str().unwrap());
    assert_eq!(server.get(&mine, &explain).await.expect(200)["reasons"][0]["code"], "no_daemons");
    server.get(&owner, &explain).await.expect(200);
    server.get(&other, &explain).await.expect(404);
    server.get(&owner, &format!("{JOBS}/{}/explain", JobId::random())).await.expect(404);
    server.get(&owner, &format!("{JOBS}/x/explain")).await.expect(400);
    // Another organization's path does not lead to it.
    let mut tx = server.app.store.single().await.unwrap();
    let mut foreign = organizations::get_default(&mut tx).await.unwrap();
    (foreign.id, foreign.name, foreign.is_default) =
        (coder_domain::ids::OrganizationId::random(), "second".to_owned(), false);
    organizations::insert(&mut tx, &foreign).await.unwrap();
    drop(tx);
    server.get(&owner, &explain.replace("/default/", "/second/")).await.expect(404);
}
