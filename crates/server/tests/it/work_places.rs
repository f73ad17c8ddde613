//! Work that takes noticeable time: it waits for a place without a database connection, outside of transactions, and users take turns.

use coder_domain::ids::UserId;
use coder_store::templates::version_details::{self, Parameter};
use coder_testkit::wait::WAIT_LIMIT;
use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines, tar};

/// More than there are connections of a pool.
const REQUESTS: usize = 40;

/// A template with a pattern, a dependent parameter, and a description whose rendering takes time.
async fn template(server: &TestServer, token: &str) -> (String, String) {
    const SOURCE: &str = r#"
        data "coder_parameter" "a" {
          name = "a"
          default = "x"
        }
        data "coder_workspace_tags" "tags" {
          tags = { size = data.coder_parameter.a.value }
        }"#;
    let answer = server.upload(token, "application/x-tar", tar(&[("main.tf", SOURCE)])).await;
    let (version, job) =
        server.version(token, json!({ "file_id": answer.json()["hash"], "tags": { "size": "x" } })).await;
    let parameter = Parameter {
        name: "a".to_owned(),
        kind: "string".to_owned(),
        mutable: true,
        default_value: "x".to_owned(),
        description: "*long* ".repeat(5000),
        validation_regex: "^[a-z]*$".to_owned(),
        ..Parameter::default()
    };
    let mut tx = server.app.store.begin().await.unwrap();
    version_details::insert_parameters(&mut tx, version, &[parameter]).await.unwrap();
    tx.commit().await.unwrap();
    server.finish(job, "").await;
    let request = json!({ "name": "t", "template_version_id": version });
    let made = server.post(token, "/api/v2/organizations/default/templates", request).await.expect(201);
    (made["id"].as_str().unwrap().to_owned(), version.to_string())
}

on_both_engines! {
    async fn requests_that_wait_for_a_place_are_in_nobodys_way(server: TestServer) {
        let server = std::sync::Arc::new(server);
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &["template-admin"]).await;
        let (template, version) = template(&server, &owner).await;
        let workspace = json!({ "template_id": template, "name": "w" });
        let made = server.post(&member, "/api/v2/users/me/workspaces", workspace.clone()).await.expect(201);
        let build = made["latest_build"]["id"].as_str().unwrap();
        let file = server.file(&member).await;
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(server.app.memory.work_place(UserId::random()).await.unwrap());
        }
        let push = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform" });
        let kinds = [
            (http::Method::POST, "/api/v2/organizations/default/templateversions".to_owned(), push, 201),
            (http::Method::POST, "/api/v2/users/me/workspaces".to_owned(), workspace, 409),
            (http::Method::GET, format!("/api/v2/templateversions/{version}/rich-parameters"), Value::Null, 200),
            (http::Method::POST, format!("/api/v2/templateversions/{version}/dry-run"), json!({}), 201),
            (http::Method::GET, format!("/api/v2/workspacebuilds/{build}/state"), Value::Null, 200),
        ];
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..REQUESTS {
            let (server, member) = (std::sync::Arc::clone(&server), member.clone());
            let (method, path, body, wanted) = kinds[number % kinds.len()].clone();
            requests.spawn(async move {
                let answer = server.ask(&member, method, &path, body).await;
                assert_eq!(answer.status, wanted, "{path}: {}", answer.text());
            });
        }
        // Others read and write meanwhile.
        for _ in 0..REQUESTS {
            let read = server.get(&owner, "/api/v2/users/me");
            tokio::time::timeout(WAIT_LIMIT, read).await.unwrap().expect(200);
            let lifetime = json!({ "lifetime": 3_600_000_000_000_i64 });
            let written = server.post(&owner, "/api/v2/users/me/keys/tokens", lifetime);
            tokio::time::timeout(WAIT_LIMIT, written).await.unwrap().expect(201);
        }
        assert!(requests.try_join_next().is_none(), "each request needs a place");
        drop(places);
        while let Some(done) = requests.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_a_bounded_time_for_a_place() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(server.app.memory.work_place(UserId::random()).await.unwrap());
    }
    let push =
        json!({ "file_id": server.file(&owner).await, "storage_method": "file", "provisioner": "terraform" });
    let path = "/api/v2/organizations/default/templateversions";
    let refused = server.post(&owner, path, push.clone()).await.expect(503);
    assert!(refused["detail"].as_str().unwrap().contains("Try again"), "{refused}");
    drop(places);
    server.post(&owner, path, push).await.expect(201);
}

#[tokio::test]
async fn users_take_turns() {
    let server = TestServer::sqlite().await;
    let (one, other) = (UserId::random(), UserId::random());
    let memory = &server.app.memory;
    let _first = memory.work_place(one).await.unwrap();
    let exceeding = memory.work_place(one).await.unwrap();
    let waiting = memory.work_place(one);
    let mut waiting = std::pin::pin!(waiting);
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    let mut others = std::pin::pin!(memory.work_place(other));
    assert!(futures_util::poll!(others.as_mut()).is_pending());
    drop(exceeding);
    // The other user came later.
    assert!(others.await.is_ok());
}
