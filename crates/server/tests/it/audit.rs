//! The audit log: each action of people and organizations leaves an entry, and who may read which.

use http::Request;
use serde_json::{Value, json};

use crate::harness::{PASSWORD, TestServer, on_both_engines};

async fn entries(server: &TestServer, token: &str, q: &str) -> Vec<Value> {
    let q: String = url::form_urlencoded::byte_serialize(q.as_bytes()).collect();
    let answer = server.get(token, &format!("/api/v2/audit?q={q}&limit=500")).await.expect(200);
    let logs = answer["audit_logs"].as_array().unwrap().clone();
    assert_eq!(answer["count"].as_u64(), Some(logs.len() as u64));
    logs
}

on_both_engines! {
    async fn every_action_leaves_an_entry(server: TestServer) {
        let owner = server.owner().await;
        let nobody: Value = Value::Null;
        let org = "/api/v2/organizations";
        let create = json!({ "email": "bob@example.com", "username": "bob", "password": PASSWORD,
            "organization_ids": ["00000000-0000-0000-0000-000000000000"] });
        server.post(&owner, "/api/v2/users", create).await.expect(201);
        server.put(&owner, "/api/v2/users/bob/roles", json!({ "roles": ["auditor"] })).await.expect(200);
        server.put(&owner, "/api/v2/users/bob/profile", json!({ "username": "bob", "name": "Bob" })).await.expect(200);
        server.put(&owner, "/api/v2/users/bob/password", json!({ "password": "AnotherSecret!22" })).await.expect(204);
        server.put(&owner, "/api/v2/users/bob/status/suspend", nobody.clone()).await.expect(200);
        let login = |password: &str| json!({ "email": "bob@example.com", "password": password });
        server.post("", "/api/v2/users/login", login("wrong")).await.expect(401);
        server.put(&owner, "/api/v2/users/bob/status/activate", nobody.clone()).await.expect(200);
        let bob = server.post("", "/api/v2/users/login", login("AnotherSecret!22")).await.expect(201);
        let bob = bob["session_token"].as_str().unwrap().to_owned();
        let tokens = "/api/v2/users/me/keys/tokens";
        server.post(&bob, tokens, json!({ "token_name": "ci" })).await.expect(201);
        let id = server.get(&bob, &format!("{tokens}/ci")).await.expect(200)["id"].as_str().unwrap().to_owned();
        server.delete(&bob, &format!("/api/v2/users/me/keys/{id}")).await.expect(204);
        server.post(&bob, "/api/v2/users/logout", nobody.clone()).await.expect(200);
        server.post(&owner, org, json!({ "name": "blue" })).await.expect(201);
        server.patch(&owner, &format!("{org}/blue"), json!({ "display_name": "Sea" })).await.expect(200);
        server.post(&owner, &format!("{org}/blue/members/bob"), nobody.clone()).await.expect(200);
        let roles = json!({ "roles": ["organization-auditor"] });
        server.put(&owner, &format!("{org}/blue/members/bob/roles"), roles).await.expect(200);
        server.delete(&owner, &format!("{org}/blue/members/bob")).await.expect(204);
        server.delete(&owner, &format!("{org}/blue")).await.expect(200);
        server.delete(&owner, "/api/v2/users/bob").await.expect(200);

        let mut logs = entries(&server, &owner, "").await;
        logs.reverse();
        let told: Vec<_> = logs.iter().skip(1).map(|log| {
            let text = |key: &str| log[key].as_str().unwrap().to_owned();
            format!("{} {} {} {}", text("action"), text("resource_type"), text("resource_target"), log["status_code"])
        }).collect();
        assert_eq!(told, [
            "create user bob 201",
            "create organization_member bob 201",
            "write user bob 200",
            "write user bob 200",
            "write user bob 204",
            "write user bob 200",
            "login api_key  401",
            "write user bob 200",
            "login api_key  201",
            "create api_key ci 201",
            "delete api_key ci 200",
            "logout api_key  200",
            "create organization blue 201",
            "create organization_member admin 201",
            "write organization blue 200",
            "create organization_member bob 200",
            "write organization_member bob 200",
            "delete organization_member bob 204",
            "delete organization blue 200",
            "delete user bob 200",
        ]);
        let of = |index: usize| &logs[index + 1];
        assert_eq!(of(2)["diff"]["rbac_roles"], json!({ "old": [], "new": ["auditor"], "secret": false }));
        assert_eq!(of(4)["diff"]["hashed_password"], json!({ "old": "", "new": "", "secret": true }));
        assert!(!Value::Array(logs.clone()).to_string().contains("AnotherSecret"));
        assert_eq!((of(8)["user"]["username"].as_str(), of(0)["user"]["username"].as_str()), (Some("bob"), Some("admin")));
        assert_eq!(of(14)["organization"], Value::Null, "it is gone");
    }

    async fn refused_requests_leave_no_audit_entry(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let before = entries(&server, &owner, "").await.len();
        server.delete(&member, "/api/v2/organizations/default/members/admin").await.expect(403);
        server.put(&owner, "/api/v2/users/dev/roles", json!({ "roles": ["bogus"] })).await.expect(400);
        server.post(&owner, "/api/v2/organizations", json!({ "name": "coder" })).await.expect(409);
        assert_eq!(entries(&server, &owner, "").await.len(), before);
    }

    async fn auditors_read_the_entries_of_their_organization(server: TestServer) {
        let owner = server.owner().await;
        let (auditor, eye, member) = (
            server.user(&owner, "auditor", &["auditor"]).await,
            server.user(&owner, "eye", &[]).await,
            server.user(&owner, "dev", &[]).await,
        );
        let roles = json!({ "roles": ["organization-auditor"] });
        server.put(&owner, "/api/v2/organizations/default/members/eye/roles", roles.clone()).await.expect(200);
        server.post(&owner, "/api/v2/organizations", json!({ "name": "blue" })).await.expect(201);
        assert_eq!(entries(&server, &auditor, "").await, entries(&server, &owner, "").await);
        let seen = entries(&server, &eye, "").await;
        assert_eq!((seen.len(), seen[0]["resource_type"].as_str()), (1, Some("organization_member")));
        assert_eq!(seen[0]["organization"]["name"], "coder");
        assert_eq!(entries(&server, &eye, "organization:coder").await, seen);
        let refused = async |token: &str, query: &str| server.get(token, &format!("/api/v2/audit?{query}")).await.status;
        assert_eq!(refused(&eye, "q=organization:blue").await, 404);
        assert_eq!(refused(&member, "").await, 403);
        assert_eq!(refused(&member, "q=organization:coder").await, 403);
        assert_eq!(refused(&owner, "colour=red").await, 400);
        assert_eq!(refused(&owner, "q=date_from:yesterday").await, 400);
        server.post(&owner, "/api/v2/organizations/blue/members/eye", Value::Null).await.expect(200);
        server.put(&owner, "/api/v2/organizations/blue/members/eye/roles", roles).await.expect(200);
        assert_eq!(refused(&eye, "").await, 400, "which of the two?");
        assert_eq!(entries(&server, &eye, "organization:blue action:create").await.len(), 3);

        let today = server.app.now().strftime("%Y-%m-%d").to_string();
        let all = entries(&server, &owner, "").await.len();
        assert_eq!(entries(&server, &owner, &format!("date_from:{today} date_to:{today}")).await.len(), all);
        assert_eq!(entries(&server, &owner, "date_to:2001-01-01").await.len(), 0);
        assert_eq!(entries(&server, &owner, "username:eye").await.len(), 1, "the log-in");
    }
}

#[tokio::test]
async fn an_audit_entry_has_request_id_address_and_user_agent() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let request = Request::post("/api/v2/organizations")
        .header("Coder-Session-Token", &owner)
        .header("user-agent", format!("coder-cli/{}", "x".repeat(1000)))
        .body(axum::body::Body::from(json!({ "name": "blue" }).to_string()))
        .unwrap();
    let answer = server.send(request).await;
    let id = answer.headers["x-coder-request-id"].to_str().unwrap().to_owned();
    let entry = &entries(&server, &owner, "resource_type:organization").await[0];
    assert_eq!((entry["request_id"].as_str(), entry["ip"].as_str()), (Some(id.as_str()), Some("127.0.0.1")));
    let agent = entry["user_agent"].as_str().unwrap();
    assert!(agent.starts_with("coder-cli/x") && agent.len() == 256, "bounded: {}", agent.len());
    assert_eq!(entry["description"], "{user} created organization {target}");
}
