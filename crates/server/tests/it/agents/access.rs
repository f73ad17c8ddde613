//! Whose token opens what (agent 1.5).

use axum::body::Body;
use coder_api::paths;
use coder_domain::secret::Secret;
use coder_store::workspaces::agent_connections;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Method, Request};
use serde_json::json;
use uuid::Uuid;

use super::rig::{Rig, insert_agent};
use crate::external_auth::Provider;
use crate::harness::{Answer, TestServer, on_both_engines};

/// Routes of agents, with what a good token gets without further parameters.
const ROUTES: [(Method, &str, u16); 5] = [
    (Method::GET, paths::AGENT_RPC, 426),
    (Method::GET, paths::AGENT_GIT_SSH_KEY, 200),
    (Method::GET, paths::AGENT_EXTERNAL_AUTH, 400),
    (Method::PATCH, paths::AGENT_OWN_LOGS, 400),
    (Method::POST, paths::AGENT_LOG_SOURCE, 400),
];

async fn statuses(server: &TestServer, token: &str) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (method, path, _) in ROUTES {
        let body = if method == Method::GET { serde_json::Value::Null } else { json!({}) };
        statuses.push(server.ask(token, method, path, body).await.status.as_u16());
    }
    statuses
}

async fn reinit(server: &TestServer, token: &str) -> u16 {
    let request =
        Request::get(paths::AGENT_REINIT).header("Coder-Session-Token", token).body(Body::empty()).unwrap();
    server.open(request).await.status().as_u16()
}

/// A workspace of a server with a provider of accounts, and the path by which its agent waits for one.
async fn rig_with_provider() -> (Rig, String) {
    let provider = Provider::start().await;
    let rig = Rig::new(TestServer::sqlite_with(provider.config(&[])).await).await;
    (rig, format!("{}?id=corp&listen", paths::AGENT_EXTERNAL_AUTH))
}

#[tokio::test]
async fn requests_that_wait_for_an_account_are_bounded_for_each_agent() {
    let (rig, path) = rig_with_provider().await;
    let waits: FuturesUnordered<_> = (0..40).map(|_| rig.server.get(&rig.token, &path)).collect();
    let refused: Vec<_> = waits.take(8).map(|answer| answer.status.as_u16()).collect().await;
    assert_eq!(refused, [429; 8]);
}

#[tokio::test]
async fn a_request_that_waits_for_an_account_ends_with_the_access_of_its_agent() {
    let (rig, path) = rig_with_provider().await;
    let owner = rig.server.user_id(&rig.owner).await;
    let stop = async {
        let stop = rig.build("stop").await;
        rig.server.finish(stop, "").await;
        rig.server.app.events.external_auth_connected(owner);
    };
    let (waited, ()) = tokio::join!(rig.server.get(&rig.token, &path), stop);
    assert_eq!(waited.status, 401);
}

on_both_engines! {
    async fn only_a_token_of_the_latest_build_is_accepted(server: TestServer) {
        let rig = Rig::new(server).await;
        let good: Vec<_> = ROUTES.iter().map(|(.., status)| *status).collect();
        assert_eq!(statuses(&rig.server, &rig.token).await, good);
        assert_eq!(reinit(&rig.server, &rig.token).await, 200);
        rig.server.get(&rig.token, "/api/v2/workspaceagents/me/reinit?optional=true").await.expect(204);
        for stranger in ["", "x", &rig.owner, &Uuid::new_v4().to_string(), &Uuid::nil().to_string()] {
            assert_eq!(statuses(&rig.server, stranger).await, [401; 5], "{stranger}");
            assert_eq!(reinit(&rig.server, stranger).await, 401);
        }
        // A token of an agent is not a session of a user.
        let me = rig.server.get(&rig.token, "/api/v2/users/me").await;
        assert_eq!(me.status, 401);

        // A stop is under way.
        let stop = rig.build("stop").await;
        assert_eq!(statuses(&rig.server, &rig.token).await, good);
        rig.server.finish(stop, "").await;
        assert_eq!(statuses(&rig.server, &rig.token).await, [401; 5]);

        // The next start may report an agent with another token; the old one stays invalid.
        let start = rig.build("start").await;
        rig.server.finish(start, "").await;
        let (_, token, ..) = insert_agent(&rig.server, start).await;
        assert_eq!(statuses(&rig.server, &token).await, good);
        assert_eq!(statuses(&rig.server, &rig.token).await, [401; 5]);
        assert_eq!(reinit(&rig.server, &rig.token).await, 401);
    }

    async fn streams_that_wait_for_a_claim_are_bounded_for_each_agent(server: TestServer) {
        let rig = Rig::new(server).await;
        let open = async || {
            let request = Request::get(paths::AGENT_REINIT).header("Coder-Session-Token", &rig.token);
            rig.server.open(request.body(Body::empty()).unwrap()).await
        };
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(open().await);
        }
        assert!(held.iter().all(|stream| stream.status() == 200));
        assert_eq!(open().await.status(), 429);
        held.pop();
        assert_eq!(open().await.status(), 200, "one has ended");
    }

    async fn agents_of_a_restart_and_of_failed_starts_get_no_time_to_stop(server: TestServer) {
        let rig = Rig::new(server).await;
        // A start directly after a start is not a stop.
        let again = rig.build("start").await;
        assert_eq!(statuses(&rig.server, &rig.token).await, [401; 5]);
        rig.server.finish(again, "broken").await;
        let (_, token, ..) = insert_agent(&rig.server, again).await;
        let mut tx = rig.server.app.store.reader().await.unwrap();
        let secret = Secret::new(token);
        assert!(agent_connections::authenticate(&mut tx, &secret).await.unwrap().is_some());
        drop(tx);
        rig.build("stop").await;
        let mut tx = rig.server.app.store.reader().await.unwrap();
        assert_eq!(agent_connections::authenticate(&mut tx, &secret).await.unwrap(), None, "its start failed");
    }

    async fn agents_of_deleted_workspaces_and_suspended_owners(server: TestServer) {
        let rig = Rig::new(server).await;
        let dev = rig.server.user(&rig.owner, "dev", &[]).await;
        let (_, _, job) = rig.server.workspace(&dev, rig.template, "mine").await;
        rig.server.finish(job, "").await;
        let (_, token, ..) = insert_agent(&rig.server, job).await;
        assert_eq!(rig.server.get(&token, paths::AGENT_GIT_SSH_KEY).await.status, 200);
        rig.server.put(&rig.owner, "/api/v2/users/dev/status/suspend", json!({})).await.expect(200);
        assert_eq!(rig.server.get(&token, paths::AGENT_GIT_SSH_KEY).await.status, 403);

        rig.server.execute("update workspaces set deleted = true").await;
        assert_eq!(rig.server.get(&token, paths::AGENT_GIT_SSH_KEY).await.status, 401);
        let agent = format!("/api/v2/workspaceagents/{}", rig.agent);
        assert_eq!(rig.server.get(&rig.owner, &agent).await.status, 404);
    }

    async fn versions_are_checked_after_the_token(server: TestServer) {
        let rig = Rig::new(server).await;
        let ask = async |token: &str, version: &str| -> Answer {
            rig.server.get(token, &format!("{}?version={version}", paths::AGENT_RPC)).await
        };
        for good in ["", "2.0", "2.7"] {
            assert_eq!(ask(&rig.token, good).await.status, 426, "{good}");
        }
        for bad in ["2.8", "1.0", "3.0", "x", "2"] {
            let refused = ask(&rig.token, bad).await.expect(400);
            assert_eq!(refused["message"], "Unknown or unsupported API version");
            assert_eq!(refused["validations"][0]["field"], "version");
        }
        assert_eq!(ask("", "2.8").await.status, 401);
    }
}

#[tokio::test]
async fn identity_documents_of_clouds_are_refused() {
    let server = TestServer::sqlite().await;
    for path in
        [paths::AWS_INSTANCE_IDENTITY, paths::AZURE_INSTANCE_IDENTITY, paths::GOOGLE_INSTANCE_IDENTITY]
    {
        let refused = server.post("", path, json!({ "signature": "x", "document": "y" })).await.expect(400);
        assert!(refused["detail"].as_str().unwrap().contains("CODER_AGENT_TOKEN"), "{refused}");
    }
}
