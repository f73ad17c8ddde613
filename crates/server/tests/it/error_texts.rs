//! Error texts that clients search for, exactly as in the references (scheduling-and-auth 2.3, 3.5,
//! 3.7, 4.2, 4.3, 5.2).

use axum::body::Body;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::harness::{Answer, PASSWORD, TestServer, settings};

const ORG: &str = "/api/v2/organizations/default";
const PSK: &str = "a-psk-of-many-characters-1";

#[track_caller]
fn says(answer: Answer, status: u16, message: &str) -> Value {
    let body = answer.expect(status);
    assert_eq!(body["message"], message, "{body}");
    body
}

#[tokio::test]
async fn of_joining() {
    let mut config = settings();
    config.provisioning.psk = Some(coder_domain::secret::Secret::new(PSK));
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    server.post(&owner, "/api/v2/organizations", json!({ "name": "blue" })).await.expect(201);
    let key =
        server.post(&owner, &format!("{ORG}/provisionerkeys"), json!({ "name": "k" })).await.expect(201);
    let key = key["key"].as_str().unwrap().to_owned();
    let join = async |organization: &str, query: &str, headers: &[(&str, &str)]| {
        let path = format!("/api/v2/organizations/{organization}/provisionerdaemons/serve?{query}");
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        server.send(request.body(Body::empty()).unwrap()).await
    };
    let (by_key, by_psk) = ("Coder-Provisioner-Daemon-Key", "Coder-Provisioner-Daemon-PSK");
    let me = ("Coder-Session-Token", owner.as_str());
    let plain = "provisioner=terraform&name=d";
    let nobody = "API key or external provisioner authentication required, but none provided";
    says(join("default", plain, &[]).await, 401, nobody);
    says(join("default", plain, &[(by_key, &key), (by_psk, PSK)]).await, 401, nobody);
    let refused = join("blue", plain, &[(by_psk, PSK)]).await.expect(403);
    assert!(refused["detail"].as_str().unwrap().contains("default organization"), "{refused}");
    let tagged = join("default", &format!("{plain}&tag=a%3Db"), &[(by_key, &key)]).await.expect(403);
    assert_eq!(tagged["detail"], "Tags are not allowed when using a provisioner key.");
    let version = join("default", &format!("{plain}&version=2.0"), &[me]).await;
    let version = says(version, 400, "Incompatible or unparsable version");
    assert!(version["validations"][0]["detail"].as_str().unwrap().contains("server is at version 1.14"));
    let tags = join("default", &format!("{plain}&tag=a%3D%00"), &[me]).await;
    says(tags, 400, "Given tags are not acceptable to the service");
    says(join("default", "name=d", &[me]).await, 400, "Required query parameter \"provisioner\" is missing.");
    let both = join("default", plain, &[me, (by_key, &key)]).await.expect(400);
    assert!(both["message"].as_str().unwrap().ends_with("but only one is allowed"), "{both}");
    // Names and tags are bounded, and the answer stays short.
    let name = |characters: usize| format!("provisioner=terraform&name={}", "x".repeat(characters));
    join("default", &name(64), &[me]).await.expect(426);
    join("default", &name(65), &[me]).await.expect(400);
    let many = (0..1001).fold(plain.to_owned(), |query, n| format!("{query}&tag=k{n}%3Dv"));
    let answer = join("default", &many, &[me]).await;
    assert!(answer.body.len() < 1024 && answer.status == 400, "{answer:?}");
}

#[tokio::test]
async fn of_keys() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let keys = format!("{ORG}/provisionerkeys");
    let own = async |key: &str| {
        let request = Request::get("/api/v2/provisionerkeys/x");
        let request =
            if key.is_empty() { request } else { request.header("Coder-Provisioner-Daemon-Key", key) };
        server.send(request.body(Body::empty()).unwrap()).await
    };
    says(own("").await, 401, "provisioner daemon key required");
    says(own(&"x".repeat(43)).await, 401, "provisioner daemon key invalid");
    let short = says(own("short").await, 400, "provisioner daemon key invalid");
    assert!(short["detail"].as_str().unwrap().contains("43"));
    server.post(&owner, &keys, json!({ "name": "K" })).await.expect(201);
    let again = server.post(&owner, &keys, json!({ "name": "k" })).await;
    says(again, 409, "Provisioner key with name \"k\" already exists in organization.");
    let gone = "Resource not found or you do not have access to this resource";
    says(server.delete(&owner, &format!("{keys}/none")).await, 404, gone);
    server.delete(&owner, &format!("{keys}/K")).await.expect(204);
    says(server.delete(&owner, &format!("{keys}/k")).await, 404, gone);
}

#[tokio::test]
async fn of_jobs_and_builds() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (template, version) = server.template(&owner, "t").await;
    let (workspace, build, job) = server.workspace(&owner, template, "w").await;
    let builds = format!("/api/v2/workspaces/{workspace}/builds");
    let start = || json!({ "transition": "start" });
    says(server.post(&owner, &builds, start()).await, 409, "A workspace build is already active.");
    let cancel = format!("/api/v2/workspacebuilds/{build}/cancel");
    let cancel_as = async |query: &str| server.patch(&owner, &format!("{cancel}{query}"), Value::Null).await;
    let wrong = cancel_as("?expect_status=done").await;
    says(wrong, 400, "Invalid expect_status \"done\". Only \"running\" or \"pending\" are allowed.");
    says(cancel_as("?expect_status=running").await, 412, "Job is not in the expected state.");
    says(cancel_as("").await, 200, "Job has been marked as canceled...");
    says(cancel_as("").await, 400, "Job has already completed!");
    assert!(
        coder_store::jobs::get(&mut server.app.store.reader().await.unwrap(), job)
            .await
            .unwrap()
            .completed_at
            .is_some()
    );
    let member = server.user(&owner, "dev", &[]).await;
    let (mine, of_mine, _) = server.workspace(&member, template, "m").await;
    let strict = json!({ "name": "t", "allow_user_cancel_workspace_jobs": false });
    server.patch(&owner, &format!("/api/v2/templates/{template}"), strict).await.expect(200);
    let refused =
        server.patch(&member, &format!("/api/v2/workspacebuilds/{of_mine}/cancel"), Value::Null).await;
    says(refused, 403, "User is not allowed to cancel workspace builds. Owner role is required.");
    let custom = json!({ "transition": "delete", "orphan": true });
    let path = format!("/api/v2/workspaces/{mine}/builds");
    server.patch(&owner, &format!("/api/v2/workspacebuilds/{of_mine}/cancel"), Value::Null).await.expect(200);
    server.post(&member, &path, custom).await.expect(403);
    let debug = json!({ "transition": "start", "log_level": "debug" });
    server.post(&member, &path, debug).await.expect(400);
    let both = json!({ "transition": "start", "orphan": true });
    server.post(&owner, &path, both).await.expect(400);
    let (waiting, _) = server.version(&owner, json!({ "template_id": template })).await;
    let early = json!({ "transition": "start", "template_version_id": waiting });
    server.post(&owner, &path, early).await.expect(406);
    let _ = version;
}

#[tokio::test]
async fn of_logging_in() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let login = async |email: &str, password: &str| {
        server.post("", "/api/v2/users/login", json!({ "email": email, "password": password })).await
    };
    for (email, password) in [("admin@example.com", "x"), ("nobody@example.com", PASSWORD)] {
        says(login(email, password).await, 401, "Incorrect email or password.");
    }
    let signed_out = "You are signed out or your session has expired. Please sign in again to continue.";
    for token in ["", "x", "aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb"] {
        let answer = server.get(token, "/api/v2/users/me").await;
        let header = answer.headers["www-authenticate"].to_str().unwrap().to_owned();
        assert!(header.starts_with("Bearer realm=\"coder\", error=\"invalid_token\""), "{header}");
        assert!(says(answer, 401, signed_out)["detail"].is_string());
    }
    let weak = json!({ "email": "a@b.c", "username": "a1", "password": "password",
        "organization_ids": ["00000000-0000-0000-0000-000000000000"] });
    let weak = server.post(&owner, "/api/v2/users", weak).await;
    assert_eq!(says(weak, 400, "Password not strong enough!")["validations"][0]["field"], "password");
    let nothing = server.ask(&owner, Method::GET, "/api/v2/nothing", Value::Null).await;
    says(nothing, 404, "Route not found.");
}

#[tokio::test]
async fn of_passwords_that_are_turned_off() {
    let mut config = settings();
    config.sessions.password_auth = false;
    let server = TestServer::sqlite_with(config).await;
    server.owner().await;
    let login = json!({ "email": "admin@example.com", "password": PASSWORD });
    let refused = server.post("", "/api/v2/users/login", login).await;
    says(refused, 403, "Password authentication is disabled.");
    let methods = server.get("", "/api/v2/users/authmethods").await.expect(200);
    assert_eq!(methods["password"]["enabled"], false);
}

#[tokio::test]
async fn ten_thousand_tags_are_refused_wherever_tags_come_in() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let many: serde_json::Map<_, _> = (0..10_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let file = server.file(&owner).await;
    let push = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform", "tags": many });
    assert_eq!(server.post(&owner, &format!("{ORG}/templateversions"), push).await.refused(400), "tags");
    let key = json!({ "name": "k", "tags": many });
    assert_eq!(server.post(&owner, &format!("{ORG}/provisionerkeys"), key).await.refused(400), "tags");
}
