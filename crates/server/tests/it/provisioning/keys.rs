//! Provisioner keys (scheduling-and-auth 4.3, http-api 5.1).

use axum::body::Body;
use coder_store::keys;
use http::Request;

use super::*;
use crate::harness::on_both_engines;

const PATH: &str = "/api/v2/organizations/default/provisionerkeys";

on_both_engines! {
    async fn keys_are_made_listed_and_deleted(server: TestServer) {
        let owner = server.owner().await;
        let made = server.post(&owner, PATH, json!({ "name": "My-Key", "tags": {"a": "b"} })).await.expect(201);
        assert_eq!(made["key"].as_str().unwrap().len(), 43, "KEY-1");
        let listed = server.get(&owner, PATH).await.expect(200);
        assert_eq!(listed.as_array().unwrap().len(), 1, "reserved ones are left out");
        assert_eq!(listed[0]["name"], "my-key", "KEY-2");
        assert_eq!(listed[0]["tags"], json!({"a": "b"}));
        let again = server.post(&owner, PATH, json!({ "name": "MY-KEY" })).await.expect(409);
        assert!(again["message"].as_str().unwrap().contains("already exists"), "{again}");
        server.delete(&owner, &format!("{PATH}/MY-key")).await.expect(204);
        server.delete(&owner, &format!("{PATH}/my-key")).await.expect(404);
    }
}

#[tokio::test]
async fn key_3_bad_and_reserved_names_are_refused() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let long = "x".repeat(65);
    for name in ["", long.as_str(), "built-in", "USER-AUTH", "psk", "a/b"] {
        server.post(&owner, PATH, json!({ "name": name })).await.expect(400);
    }
    server.post(&owner, PATH, json!({ "name": "x", "tags": {"scope": "user"} })).await.expect(400);
    server.post(&owner, PATH, json!({ "name": "x", "tags": {"a": "\u{0}"} })).await.expect(400);
    server.delete(&owner, &format!("{PATH}/psk")).await.expect(400);
}

#[tokio::test]
async fn members_read_keys_and_template_admins_make_them() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "member", &[]).await;
    let admin = server.user(&owner, "tadmin", &["template-admin"]).await;
    server.get(&member, PATH).await.expect(200);
    server.get(&member, &format!("{PATH}/daemons")).await.expect(200);
    server.post(&member, PATH, json!({ "name": "x" })).await.expect(403);
    server.post(&admin, PATH, json!({ "name": "x" })).await.expect(201);
    server.delete(&member, &format!("{PATH}/x")).await.expect(403);
    server.delete(&admin, &format!("{PATH}/x")).await.expect(204);
}

#[tokio::test]
async fn key_8_a_key_is_known_by_its_header_alone() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let made = server.post(&owner, PATH, json!({ "name": "k" })).await.expect(201);
    let secret = made["key"].as_str().unwrap().to_owned();
    let ask = async |headers: &[(&str, &str)]| {
        let mut request = Request::get("/api/v2/provisionerkeys/anything");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        server.send(request.body(Body::empty()).unwrap()).await
    };
    let header = "Coder-Provisioner-Daemon-Key";
    assert_eq!(ask(&[(header, &secret)]).await.expect(200)["name"], "k");
    ask(&[]).await.expect(401);
    ask(&[(header, "short")]).await.expect(400);
    ask(&[(header, &"x".repeat(43))]).await.expect(401);
    ask(&[(header, &secret), ("Coder-Provisioner-Daemon-PSK", "x")]).await.expect(400);
}

#[tokio::test]
async fn conf_14_deleting_a_key_closes_its_sessions() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    server.post(&owner, PATH, json!({ "name": "k" })).await.expect(201);
    let organization = server.app.default_organization;
    let mut tx = server.app.store.reader().await.unwrap();
    let key = keys::find_by_name(&mut tx, organization, "k").await.unwrap().unwrap();
    drop(tx);
    let daemon = Daemon::join(&server, "d", key.id, &[]).await;
    let other = Daemon::untagged(&server, "other").await;
    let shown = server.get(&owner, &format!("{PATH}/daemons")).await.expect(200);
    let of_key = shown.as_array().unwrap().iter().find(|entry| entry["key"]["name"] == "k").unwrap();
    assert_eq!(of_key["daemons"][0]["name"], "d");
    server.delete(&owner, &format!("{PATH}/k")).await.expect(204);
    tokio::time::timeout(SOON, daemon.calls.session().closed()).await.unwrap();
    assert!(other.calls.session().end().is_none());
}
