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
    tokio::time::timeout(WAIT_LIMIT, daemon.calls.session().closed()).await.unwrap();
    assert!(other.calls.session().end().is_none());
}

/// A request with a key, as daemons make it.
async fn with_key(server: &TestServer, path: &str, key: &str) -> crate::harness::Answer {
    let request = Request::get(path).header("Coder-Provisioner-Daemon-Key", key);
    server.send(request.body(Body::empty()).unwrap()).await
}

const SERVE: &str =
    "/api/v2/organizations/default/provisionerdaemons/serve?provisioner=terraform&name=d&version=1.14";
const KEY_PATH: &str = "/api/v2/provisionerkeys/x";

on_both_engines! {
    async fn rotated_keys_have_two_secrets_for_the_overlap_and_one_after_it(server: TestServer) {
        let owner = server.owner().await;
        let old = server.post(&owner, PATH, json!({ "name": "k" })).await.expect(201)["key"].as_str().unwrap().to_owned();
        let rotated = server.post(&owner, &format!("{PATH}/K/rotate"), json!({ "overlap_seconds": 60 })).await.expect(200);
        let new = rotated["key"].as_str().unwrap().to_owned();
        assert!(new.len() == 43 && new != old);
        let listed = server.get(&owner, PATH).await.expect(200);
        assert_eq!(listed[0]["previous_valid_until"], rotated["previous_valid_until"]);
        server.advance(59);
        for secret in [&old, &new] {
            assert_eq!(with_key(&server, KEY_PATH, secret).await.expect(200)["name"], "k");
            with_key(&server, SERVE, secret).await.expect(426);
        }
        server.advance(1);
        for path in [KEY_PATH, SERVE] {
            with_key(&server, path, &old).await.expect(401);
        }
        with_key(&server, KEY_PATH, &new).await.expect(200);
        with_key(&server, SERVE, &new).await.expect(426);
        for bad in [-1, 366 * 24 * 3600, i64::MAX] {
            let refused = server.post(&owner, &format!("{PATH}/k/rotate"), json!({ "overlap_seconds": bad })).await;
            assert_eq!(refused.refused(400), "overlap_seconds");
        }
        server.post(&owner, &format!("{PATH}/psk/rotate"), json!({})).await.expect(400);
        server.post(&owner, &format!("{PATH}/absent/rotate"), json!({})).await.expect(404);
    }

    async fn the_end_and_the_networks_of_a_key_can_be_changed(server: TestServer) {
        let owner = server.owner().await;
        let secret = server.post(&owner, PATH, json!({ "name": "k" })).await.expect(201)["key"].as_str().unwrap().to_owned();
        let change = async |body: Value| server.patch(&owner, &format!("{PATH}/K"), body).await;
        let shown = change(json!({ "expires_in_seconds": 60, "allow_addresses": ["127.0.0.0/8"] })).await.expect(200);
        assert_eq!((shown["name"].as_str(), &shown["allow_addresses"]), (Some("k"), &json!(["127.0.0.0/8"])));
        assert!(shown["expires_at"].is_string());
        with_key(&server, KEY_PATH, &secret).await.expect(200);
        change(json!({ "allow_addresses": ["10.0.0.0/8"] })).await.expect(200);
        with_key(&server, KEY_PATH, &secret).await.expect(401);
        let shown = change(json!({ "allow_addresses": [] })).await.expect(200);
        assert!(shown["expires_at"].is_string(), "what is absent stays: {shown}");
        with_key(&server, SERVE, &secret).await.expect(426);
        server.advance(60);
        with_key(&server, KEY_PATH, &secret).await.expect(401);
        let shown = change(json!({ "never_expires": true })).await.expect(200);
        assert_eq!(shown.get("expires_at"), None);
        with_key(&server, KEY_PATH, &secret).await.expect(200);

        for (body, field) in [
            (json!({ "expires_in_seconds": 0 }), "expires_in_seconds"),
            (json!({ "expires_in_seconds": -1 }), "expires_in_seconds"),
            (json!({ "expires_in_seconds": i64::MAX }), "expires_in_seconds"),
            (json!({ "expires_in_seconds": 5, "never_expires": true }), "never_expires"),
            (json!({ "allow_addresses": ["x"] }), "allow_addresses"),
        ] {
            assert_eq!(change(body).await.refused(400), field);
        }
        server.patch(&owner, &format!("{PATH}/psk"), json!({})).await.expect(400);
        server.patch(&owner, &format!("{PATH}/absent"), json!({})).await.expect(404);
        let member = server.user(&owner, "dev", &[]).await;
        server.patch(&member, &format!("{PATH}/k"), json!({ "never_expires": true })).await.expect(403);
        let filter = coder_store::audit::AuditFilter { action: Some("write".to_owned()), ..Default::default() };
        let mut tx = server.app.store.reader().await.unwrap();
        let entries = coder_store::audit::list(&mut tx, &filter, 100, 0).await.unwrap();
        assert_eq!(entries.len(), 4, "one for each change");
        assert_eq!(entries[2].diff["allow_addresses"]["new"], json!(["10.0.0.0/8"]));
    }

    async fn keys_expire_are_bound_to_networks_and_show_their_last_use(server: TestServer) {
        let owner = server.owner().await;
        let request = json!({ "name": "k", "expires_in_seconds": 60, "allow_addresses": ["127.0.0.0/8", "::1"] });
        let secret = server.post(&owner, PATH, request).await.expect(201)["key"].as_str().unwrap().to_owned();
        let listed = server.get(&owner, PATH).await.expect(200);
        assert_eq!(listed[0]["allow_addresses"], json!(["127.0.0.0/8", "::1"]));
        assert_eq!(listed[0].get("last_used_at"), None);
        with_key(&server, SERVE, &secret).await.expect(426);
        let listed = server.get(&owner, PATH).await.expect(200);
        assert_eq!(listed[0]["last_used_address"], "127.0.0.1");
        assert!(listed[0]["last_used_at"].is_string() && listed[0]["expires_at"].is_string());
        server.advance(60);
        with_key(&server, SERVE, &secret).await.expect(401);
        with_key(&server, KEY_PATH, &secret).await.expect(401);
        let far = json!({ "name": "far", "allow_addresses": ["10.0.0.0/8"] });
        let far = server.post(&owner, PATH, far).await.expect(201)["key"].as_str().unwrap().to_owned();
        with_key(&server, SERVE, &far).await.expect(401);
        with_key(&server, KEY_PATH, &far).await.expect(401);
    }
}

#[tokio::test]
async fn invalid_keys_are_refused_with_the_field() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let many: serde_json::Map<_, _> = (0..10_000).map(|n| (n.to_string(), json!(""))).collect();
    let networks: Vec<_> = (0..65).map(|n| format!("10.0.0.{n}")).collect();
    for (request, field) in [
        (json!({ "name": "k".repeat(65) }), "name"),
        (json!({ "name": "" }), "name"),
        (json!({ "name": "a\u{0}b" }), "name"),
        (json!({ "name": "a b" }), "name"),
        (json!({ "name": "PSK" }), "name"),
        (json!({ "name": "x", "tags": many }), "tags"),
        (json!({ "name": "x", "tags": {"a": "\u{0}"} }), "tags"),
        (json!({ "name": "x", "tags": {"scope": "user"} }), "tags"),
        (json!({ "name": "x", "expires_in_seconds": 0 }), "expires_in_seconds"),
        (json!({ "name": "x", "expires_in_seconds": -5 }), "expires_in_seconds"),
        (json!({ "name": "x", "expires_in_seconds": i64::MAX }), "expires_in_seconds"),
        (json!({ "name": "x", "allow_addresses": ["10.0.0.1/8"] }), "allow_addresses"),
        (json!({ "name": "x", "allow_addresses": ["example.com"] }), "allow_addresses"),
        (json!({ "name": "x", "allow_addresses": networks }), "allow_addresses"),
    ] {
        let answer = server.post(&owner, PATH, request).await;
        assert_eq!(answer.refused(400), field);
    }
    server.post(&owner, PATH, json!({ "name": "k".repeat(64) })).await.expect(201);
    let secret = server.post(&owner, PATH, json!({ "name": "tagged" })).await.expect(201);
    let tagged = with_key(&server, &format!("{SERVE}&tag=a%3Db"), secret["key"].as_str().unwrap()).await;
    assert_eq!(tagged.expect(403)["detail"], "Tags are not allowed when using a provisioner key.");
}

#[tokio::test]
async fn every_action_on_a_key_is_in_the_audit_log() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    server.post(&owner, PATH, json!({ "name": "k" })).await.expect(201);
    server.post(&owner, &format!("{PATH}/k/rotate"), json!({ "overlap_seconds": 5 })).await.expect(200);
    server.delete(&owner, &format!("{PATH}/k")).await.expect(204);
    server.post(&owner, PATH, json!({ "name": "psk" })).await.expect(400);
    let filter = coder_store::audit::AuditFilter {
        resource_type: Some("provisioner_key".to_owned()),
        ..coder_store::audit::AuditFilter::default()
    };
    let mut tx = server.app.store.reader().await.unwrap();
    let mut entries = coder_store::audit::list(&mut tx, &filter, 100, 0).await.unwrap();
    entries.reverse();
    let actions: BTreeMap<_, _> = entries.iter().map(|entry| (entry.action.as_str(), entry)).collect();
    assert_eq!(actions.keys().copied().collect::<Vec<_>>(), ["create", "delete", "write"]);
    let user = server.user_id(&owner).await;
    for entry in &entries {
        assert_eq!(
            (entry.user_id, entry.ip.as_str(), entry.resource_target.as_str()),
            (user, "127.0.0.1", "k")
        );
        assert_eq!(entry.organization_id, server.app.default_organization);
    }
    assert_eq!(actions["write"].diff["hashed_secret"]["secret"], true);
    assert_eq!(entries.len(), 3, "what is refused changes nothing");
}
