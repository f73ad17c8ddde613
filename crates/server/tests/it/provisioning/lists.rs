//! The lists of daemons and jobs (scheduling-and-auth 4.5, http-api 5.3 and 5.4).

use super::*;

const DAEMONS: &str = "/api/v2/organizations/default/provisionerdaemons";
const JOBS: &str = "/api/v2/organizations/default/provisionerjobs";

#[tokio::test]
async fn dae_2_and_3_stale_daemons_are_left_out_and_busy_ones_shown_with_their_job() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let gone = Daemon::untagged(&server, "gone").await;
    gone.calls.session().close().await;
    eventually("it has left", || server.app.scheduler.connected().is_empty()).await;
    server.advance(91);
    let daemon = Daemon::tagged(&server, "here", &[("a", "1")]).await;
    let list = async |query: &str| server.get(&owner, &format!("{DAEMONS}{query}")).await.expect(200);
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|daemon| daemon["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&list("").await), ["here"]);
    assert_eq!(names(&list("?offline=true").await), ["here", "gone"]);
    assert_eq!(names(&list("?status=offline").await), ["gone"]);
    assert_eq!(names(&list("?status=idle").await), ["here"]);
    assert_eq!(names(&list("?offline=true&max_age=1m30s").await), ["here"]);
    assert_eq!(names(&list("?offline=true&limit=1").await), ["here"]);
    assert_eq!(names(&list("?tags=%7B%22a%22%3A%221%22%7D").await), ["here"]);
    assert!(names(&list("?tags=%7B%22a%22%3A%222%22%7D").await).is_empty());
    let posted = import(&server, &owner, json!({"a": "1"})).await.1;
    daemon.take(posted).await;
    let busy = list("?status=busy").await;
    assert_eq!(busy[0]["current_job"]["id"], posted.to_string());
    assert_eq!(busy[0]["previous_job"], Value::Null);
    daemon.fail(posted, "x").await.unwrap();
    let idle = list("").await;
    assert_eq!(idle[0]["status"], "idle");
    assert_eq!(idle[0]["previous_job"]["status"], "failed");
}

#[tokio::test]
async fn jobs_have_their_place_and_who_could_take_them() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let daemon = Daemon::untagged(&server, "d").await;
    let first = import(&server, &owner, json!({})).await.1;
    server.advance(1);
    let second = import(&server, &owner, json!({"a": "1"})).await.1;
    let jobs = server.get(&owner, JOBS).await.expect(200);
    let ids: Vec<_> = jobs.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [second.to_string(), first.to_string()], "newest first");
    assert_eq!((&jobs[1]["queue_position"], &jobs[1]["queue_size"]), (&json!(1), &json!(2)));
    assert_eq!(jobs[1]["available_workers"], json!([daemon.id.to_string()]));
    assert_eq!(jobs[0].get("available_workers"), None);
    daemon.take(first).await;
    let shown = server.get(&owner, &format!("{JOBS}/{first}")).await.expect(200);
    assert_eq!((&shown["status"], &shown["worker_name"]), (&json!("running"), &json!("d")));
    assert_eq!((&shown["queue_position"], &shown["queue_size"]), (&json!(0), &json!(1)));
    let pending = server.get(&owner, &format!("{JOBS}?status=pending")).await.expect(200);
    assert_eq!(pending.as_array().unwrap().len(), 1);
    let tagged = server.get(&owner, &format!("{JOBS}?tags=%7B%22a%22%3A%221%22%7D")).await.expect(200);
    assert_eq!(tagged[0]["id"], second.to_string());
    let mine = server.user_id(&owner).await;
    let of_me = server.get(&owner, &format!("{JOBS}?initiator={mine}&limit=1")).await.expect(200);
    assert_eq!(of_me.as_array().unwrap().len(), 1);
    server.get(&owner, &format!("{JOBS}/{}", JobId::random())).await.expect(404);
}

#[tokio::test]
async fn filters_are_strict_and_lists_are_not_for_members() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "member", &[]).await;
    let admin = server.user(&owner, "tadmin", &["template-admin"]).await;
    for path in [DAEMONS, JOBS] {
        for query in ["x=1", "limit=0", "limit=x", "status=dancing", "ids=1", "tags=1", "tags=%7B"] {
            server.get(&owner, &format!("{path}?{query}")).await.expect(400);
        }
        server.get(&member, path).await.expect(404);
        server.get(&admin, path).await.expect(200);
    }
    server.get(&owner, &format!("{DAEMONS}?max_age=1")).await.expect(400);
    server.get(&owner, &format!("{JOBS}?initiator=me")).await.expect(400);
}
