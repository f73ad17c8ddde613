//! The documented error statuses of the routes (http-api 1 to 6), route by route; those of rights are in
//! `unauthorized.txt`, those of names and bodies in `refusals.rs`.

use coder_domain::ids::{TemplateId, TemplateVersionId};
use http::Method;
use serde_json::{Value, json};

use crate::harness::{PASSWORD, TestServer, tar};

const NIL: &str = "00000000-0000-0000-0000-000000000000";
const API: &str = "/api/v2";

/// Sends a request and compares the status. Each error has a message.
async fn expect(
    server: &TestServer,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
    status: u16,
) -> Value {
    let answer = server.ask(token, method.clone(), &format!("{API}{path}"), body).await;
    assert_eq!(answer.status.as_u16(), status, "{method} {path}: {}", answer.text());
    if answer.status.is_success() {
        return Value::Null;
    }
    let kind = answer.headers["content-type"].to_str().unwrap().to_owned();
    assert_eq!(kind, "application/json; charset=utf-8", "{method} {path}");
    let body = answer.json();
    assert!(!body["message"].as_str().unwrap().is_empty(), "{method} {path}: {body}");
    body
}

/// Tries rows of method, path, body and status with one token.
async fn walk(server: &TestServer, token: &str, rows: Vec<(Method, String, Value, u16)>) {
    for (method, path, body, status) in rows {
        expect(server, token, method, &path, body, status).await;
    }
}

fn get(path: impl Into<String>, status: u16) -> (Method, String, Value, u16) {
    (Method::GET, path.into(), Value::Null, status)
}

fn post(path: impl Into<String>, body: Value, status: u16) -> (Method, String, Value, u16) {
    (Method::POST, path.into(), body, status)
}

fn put(path: impl Into<String>, body: Value, status: u16) -> (Method, String, Value, u16) {
    (Method::PUT, path.into(), body, status)
}

fn patch(path: impl Into<String>, body: Value, status: u16) -> (Method, String, Value, u16) {
    (Method::PATCH, path.into(), body, status)
}

fn delete(path: impl Into<String>, status: u16) -> (Method, String, Value, u16) {
    (Method::DELETE, path.into(), Value::Null, status)
}

#[tokio::test]
async fn conventions() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    for token in ["x", "aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb", "a-b-c"] {
        expect(&server, token, Method::GET, "/users/me", Value::Null, 401).await;
    }
    let rows = vec![
        get("/nothing", 404),
        get("/users/nobody", 400),
        get(format!("/users/{NIL}"), 400),
        get("/organizations/none", 404),
        get("/organizations/DEFAULT", 200),
        get(format!("/organizations/{NIL}"), 200),
        get("/templates/x", 400),
        get(format!("/templates/{}", TemplateId::random()), 404),
        get("/templateversions/x", 400),
        get(format!("/templateversions/{}", TemplateVersionId::random()), 404),
        get("/workspaces/x", 400),
        get("/workspacebuilds/x", 400),
        get("/files/x", 400),
        get(format!("/files/{NIL}"), 404),
        get("/users/me/keys/nothing", 404),
        get("/users/me/keys/tokens/nothing", 404),
        delete("/users/me/keys/nothing", 404),
        get("/users/me/organizations/none", 404),
        get("/users/me/workspace/none", 404),
        get("/organizations/default/templates/none", 404),
        get("/organizations/default/templates/none%2Fx", 404),
        get("/organizations/default/templates/none/versions/x", 404),
        get("/users?limit=-1", 400),
        get("/users?offset=x", 400),
        get("/users?after_id=x", 400),
        get("/users?q=a:b:c", 400),
        get("/users?q=:x", 400),
        get("/templates?q=x:", 400),
        get("/workspaces?q=nokey:x", 400),
        get("/users?unknown=1", 200),
        get("/organizations/default/provisionerdaemons?unknown=1", 400),
        get("/organizations/default/provisionerjobs?unknown=1", 400),
    ];
    walk(&server, &owner, rows).await;
}

#[tokio::test]
async fn users_and_tokens() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let people = server.user(&owner, "people", &["user-admin"]).await;
    server.user(&owner, "dev", &[]).await;
    let (template, _) = server.template(&owner, "t").await;
    let busy = server.user(&owner, "busy", &[]).await;
    server.workspace(&busy, template, "w").await;
    let user = |more: Value| {
        let mut user = json!({ "username": "fresh", "email": "fresh@example.com", "password": PASSWORD,
            "organization_ids": [NIL] });
        user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        user
    };
    let second = 1_000_000_000_i64;
    let rows = vec![
        post("/users", user(json!({ "organization_ids": [] })), 400),
        post("/users", user(json!({ "organization_ids": [TemplateId::random()] })), 404),
        post("/users", user(json!({ "password": "weak" })), 400),
        post("/users", user(json!({ "password": format!("{PASSWORD}{}", "x".repeat(64)) })), 400),
        post("/users", user(json!({ "login_type": "carrier-pigeon" })), 400),
        delete("/users/me", 403),
        delete("/users/busy", 417),
        delete("/users/nobody", 400),
        put("/users/me/roles", json!({ "roles": [] }), 400),
        put("/users/dev/roles", json!({ "roles": ["bogus"] }), 400),
        put("/users/me/status/suspend", json!({}), 400),
        put("/users/nobody/status/activate", json!({}), 400),
        put("/users/dev/profile", json!({ "username": "people", "name": "" }), 409),
        put("/users/dev/profile", json!({ "username": "a_b", "name": "" }), 400),
        put("/users/dev/password", json!({ "password": "weak" }), 400),
        put("/users/me/password", json!({ "old_password": "wrong", "password": PASSWORD }), 400),
        post("/users/me/keys/tokens", json!({ "token_name": "a", "lifetime": 200 * 3600 * second }), 400),
        post("/users/me/keys/tokens", json!({ "token_name": "a", "lifetime": -second }), 400),
        post("/users/me/keys/tokens", json!({ "token_name": "a", "scopes": ["everything"] }), 400),
        post("/organizations/default/members/dev", Value::Null, 400),
        post("/organizations/default/members/nobody", Value::Null, 400),
        delete("/organizations/default/members/me", 400),
        delete("/organizations/none/members/dev", 404),
        get("/organizations/none/members/", 404),
        get("/organizations/default/paginated-members?limit=x", 400),
    ];
    walk(&server, &owner, rows).await;
    let rows = vec![
        put("/users/admin/status/suspend", json!({}), 400),
        put("/users/dev/roles", json!({ "roles": ["auditor"] }), 403),
        delete("/users/admin", 403),
    ];
    walk(&server, &people, rows).await;
    expect(&server, &owner, Method::PUT, "/users/dev/status/suspend", json!({}), 200).await;
    let login = json!({ "email": "dev@example.com", "password": PASSWORD });
    expect(&server, "", Method::POST, "/users/login", login, 401).await;
    // A login without a password has another error text than one with a wrong password.
    let body = user(json!({ "login_type": "none", "password": "" }));
    expect(&server, &owner, Method::POST, "/users", body, 201).await;
    let login = json!({ "email": "fresh@example.com", "password": PASSWORD });
    expect(&server, "", Method::POST, "/users/login", login, 403).await;
}

#[tokio::test]
async fn provisioners_and_their_jobs() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let base = "/organizations/default";
    let rows = vec![
        post("/organizations/none/provisionerkeys", json!({ "name": "k" }), 404),
        post(format!("{base}/provisionerkeys"), json!({ "name": "psk" }), 400),
        delete(format!("{base}/provisionerkeys/none"), 404),
        delete(format!("{base}/provisionerkeys/built-in"), 400),
        get("/provisionerkeys/anything", 401),
        get(format!("{base}/provisionerdaemons?limit=0"), 400),
        get(format!("{base}/provisionerdaemons?limit=x"), 400),
        get(format!("{base}/provisionerdaemons?offline=perhaps"), 400),
        get(format!("{base}/provisionerdaemons?status=asleep"), 400),
        get(format!("{base}/provisionerdaemons?max_age=soon"), 400),
        get(format!("{base}/provisionerdaemons?ids=x"), 400),
        get(format!("{base}/provisionerdaemons?tags=x"), 400),
        get(format!("{base}/provisionerjobs?status=asleep"), 400),
        get(format!("{base}/provisionerjobs?initiator=x"), 400),
        get(format!("{base}/provisionerjobs?tags=%5B%5D"), 400),
        get(format!("{base}/provisionerjobs/{}", TemplateId::random()), 404),
        get(format!("{base}/provisionerjobs/x"), 400),
        get("/organizations/none/provisionerjobs", 404),
    ];
    walk(&server, &owner, rows).await;
}

#[tokio::test]
async fn files_and_templates() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (template, version) = server.template(&owner, "t").await;
    let (loose, _) = server.version(&owner, json!({})).await;
    let (waiting, _) = server.version(&owner, json!({ "template_id": template, "name": "v2" })).await;
    let (archived, job) = server.version(&owner, json!({ "template_id": template })).await;
    server.finish(job, "broken").await;
    let path = |id: TemplateVersionId, what: &str| format!("/templateversions/{id}{what}");
    expect(&server, &owner, Method::POST, &path(archived, "/archive"), Value::Null, 200).await;
    let (gone, job) = server.version(&owner, json!({})).await;
    server.finish(job, "broken").await;
    let file = server.file(&owner).await;
    let (templates, versions) =
        ("/organizations/default/templates", "/organizations/default/templateversions");
    let unknown = TemplateVersionId::random();
    let rows = vec![
        post(templates, json!({ "name": "x", "template_version_id": unknown }), 404),
        post(templates, json!({ "name": "x", "template_version_id": version }), 400),
        post(templates, json!({ "name": "x", "template_version_id": archived }), 400),
        post(templates, json!({ "name": "T", "template_version_id": loose }), 409),
        post("/organizations/none/templates", json!({ "name": "x", "template_version_id": loose }), 404),
        patch(format!("/templates/{template}"), json!({ "name": "a_b" }), 400),
        patch(format!("/templates/{template}"), json!({ "failure_ttl_ms": 5 }), 400),
        patch(format!("/templates/{template}"), json!({ "max_port_share_level": "moon" }), 400),
        patch(format!("/templates/{template}/versions"), json!({ "id": loose }), 400),
        patch(format!("/templates/{template}/versions"), json!({ "id": archived }), 400),
        patch(format!("/templates/{template}/versions"), json!({ "id": waiting }), 403),
        patch(format!("/templates/{template}/versions"), json!({ "id": unknown }), 404),
        get(format!("/templates/{template}/versions/none"), 404),
        get(format!("/templates/{template}/versions?limit=x"), 400),
        get(format!("{templates}/t/versions/v2/previous"), 200),
        post(versions, json!({ "file_id": file, "example_id": "x" }), 400),
        post(versions, json!({ "example_id": "none" }), 400),
        post(versions, json!({ "file_id": unknown }), 404),
        post(versions, json!({ "file_id": file, "template_id": unknown }), 404),
        post(versions, json!({ "file_id": file, "template_id": template, "name": "v2" }), 409),
        patch(path(waiting, ""), json!({ "name": "a..b" }), 400),
        patch(path(archived, ""), json!({ "name": "v2" }), 409),
        get(path(waiting, "/resources"), 400),
        get(path(waiting, "/variables"), 403),
        get(path(waiting, "/rich-parameters"), 425),
        post(path(waiting, "/dry-run"), json!({}), 425),
        get(path(waiting, "/logs?after=x"), 400),
        patch(path(gone, "/cancel"), Value::Null, 400),
        post(path(archived, "/archive"), Value::Null, 400),
        post(path(loose, "/archive"), Value::Null, 400),
        post(path(version, "/archive"), Value::Null, 404),
        post(path(version, "/unarchive"), Value::Null, 400),
        get(path(version, &format!("/dry-run/{unknown}")), 404),
        get(path(version, "/dry-run/x"), 400),
        get(format!("/files/{file}?format=rar"), 400),
    ];
    walk(&server, &owner, rows).await;
    let other = json!({ "name": "other", "template_version_id": loose });
    expect(&server, &owner, Method::POST, templates, other, 201).await;
    expect(
        &server,
        &owner,
        Method::PATCH,
        &format!("/templates/{template}"),
        json!({ "name": "OTHER" }),
        409,
    )
    .await;
    // A dry run of another version is not found here (403 officially).
    let job =
        server.post(&owner, &format!("{API}{}", path(version, "/dry-run")), json!({})).await.expect(201);
    let elsewhere = path(waiting, &format!("/dry-run/{}", job["id"].as_str().unwrap()));
    let status = server.get(&owner, &format!("{API}{elsewhere}")).await.status.as_u16();
    assert!([403, 404].contains(&status), "{status}");
    server.workspace(&owner, template, "w").await;
    expect(&server, &owner, Method::DELETE, &format!("/templates/{template}"), Value::Null, 400).await;
    assert_eq!(server.upload(&owner, "application/gzip", tar(&[])).await.status, 400);
}
