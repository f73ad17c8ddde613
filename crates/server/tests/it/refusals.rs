//! Invalid input: the documented status, and a text that names the error.

use axum::body::Body;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::harness::{PASSWORD, TestServer, on_both_engines, settings};

/// Names that no template, workspace, user or token may have (http-api 1.10).
const ILLEGAL: &[&str] =
    &["", "a_b", "-a", "a-", "a--b", "a b", "a/b", "../a", "ä", "new", "create", "\u{0}"];
const NOT_UNIQUE: &str = "This value is already in use and should be unique.";

fn long() -> String {
    "x".repeat(33)
}

/// Checks the status, the refused field, and words of its explanation.
#[track_caller]
fn field(answer: crate::harness::Answer, status: u16, name: &str, words: &str) {
    let body = answer.expect(status);
    let validation = &body["validations"][0];
    assert_eq!(validation["field"], name, "{body}");
    assert!(validation["detail"].as_str().unwrap().contains(words), "{body}");
    assert!(!body["message"].as_str().unwrap().is_empty(), "{body}");
}

on_both_engines! {
    async fn taken_names_are_409_in_any_case(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        server.workspace(&owner, template, "w").await;
        let (version, _) = server.version(&owner, json!({})).await;
        let ask = async |path: &str, body: Value| server.post(&owner, &format!("/api/v2/{path}"), body).await;

        for name in ["hello", "HELLO"] {
            let body = json!({ "name": name, "template_version_id": version });
            field(ask("organizations/default/templates", body).await, 409, "name", NOT_UNIQUE);
        }
        for name in ["w", "W"] {
            field(ask("users/me/workspaces", json!({ "name": name, "template_id": template })).await, 409, "name", NOT_UNIQUE);
        }
        let keys = "organizations/default/provisionerkeys";
        ask(keys, json!({ "name": "k" })).await.expect(201);
        for name in ["k", "K"] {
            let refused = ask(keys, json!({ "name": name })).await.expect(409);
            assert!(refused["message"].as_str().unwrap().contains("already exists"), "{refused}");
        }
        server.user(&owner, "dev", &[]).await;
        let organization = json!(["00000000-0000-0000-0000-000000000000"]);
        let user = |name: &str, email: &str| {
            json!({ "username": name, "email": email, "password": PASSWORD, "organization_ids": organization })
        };
        field(ask("users", user("DEV", "other@example.com")).await, 409, "username", NOT_UNIQUE);
        field(ask("users", user("other", "DEV@example.com")).await, 409, "email", NOT_UNIQUE);
        ask("users/me/keys/tokens", json!({ "token_name": "ci" })).await.expect(201);
        let again = ask("users/me/keys/tokens", json!({ "token_name": "ci" })).await;
        assert_eq!(again.expect(409)["validations"][0]["field"], "name");
    }
}

#[tokio::test]
async fn illegal_names_are_400() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (template, _) = server.template(&owner, "hello").await;
    let (version, _) = server.version(&owner, json!({})).await;
    let ask = async |path: &str, body: Value| server.post(&owner, &format!("/api/v2/{path}"), body).await;
    let long = long();
    for name in ILLEGAL.iter().copied().chain([long.as_str()]) {
        let body = json!({ "name": name, "template_version_id": version });
        assert_eq!(ask("organizations/default/templates", body).await.refused(400), "name", "{name:?}");
        let body = json!({ "name": name, "template_id": template });
        assert_eq!(ask("users/me/workspaces", body).await.refused(400), "name", "{name:?}");
        let body = json!({ "username": name, "email": "x@example.com", "password": PASSWORD,
            "organization_ids": ["00000000-0000-0000-0000-000000000000"] });
        assert_eq!(ask("users", body).await.refused(400), "username", "{name:?}");
        if !name.is_empty() {
            ask("users/me/keys/tokens", json!({ "token_name": name })).await.expect(400);
        }
    }
    for email in ["", "x", "@", "a@", "a b@c"] {
        let body = json!({ "username": "fine", "email": email, "password": PASSWORD,
            "organization_ids": ["00000000-0000-0000-0000-000000000000"] });
        assert_eq!(ask("users", body).await.refused(400), "email", "{email:?}");
    }
    for name in ["", "a/b", "\u{0}", "built-in", "PSK", "user-auth", &"x".repeat(65)] {
        let refused = ask("organizations/default/provisionerkeys", json!({ "name": name })).await.expect(400);
        assert!(!refused["message"].as_str().unwrap().is_empty(), "{name:?}");
    }
}

#[tokio::test]
async fn illegal_names_of_daemons_are_400_and_a_missing_one_is_made_up() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let join = async |name: &str| {
        let path = format!(
            "/api/v2/organizations/default/provisionerdaemons/serve?provisioner=terraform&name={name}"
        );
        server.get(&owner, &path).await
    };
    for name in ["%00", "a%0Ab", &"x".repeat(65)] {
        let body = join(name).await.expect(400);
        assert_eq!(body["message"], "The daemon's name is not acceptable.");
        assert_eq!(body["validations"][0]["field"], "name");
        assert!(
            body["validations"][0]["detail"].as_str().unwrap().contains("at most 64 characters"),
            "{body}"
        );
    }
    join("").await.expect(426);
    let path = "/api/v2/organizations/default/provisionerdaemons?offline=true";
    let daemons = server.get(&owner, path).await.expect(200);
    assert_eq!(daemons.as_array().unwrap().len(), 1, "the refused ones have no row");
}

#[tokio::test]
async fn a_second_first_user_is_409() {
    let server = TestServer::sqlite().await;
    server.owner().await;
    for body in [
        json!({ "email": "x@example.com", "username": "other", "password": PASSWORD }),
        // The first user already exists, so further errors of the request do not matter.
        json!({ "email": "x", "username": "new", "password": "weak" }),
    ] {
        let refused = server.post("", "/api/v2/users/first", body).await.expect(409);
        assert!(refused["message"].as_str().unwrap().contains("already"), "{refused}");
    }
}

#[tokio::test]
async fn bodies_over_their_limit_are_413_with_the_limit() {
    let mut config = settings();
    config.limits.upload_bytes = 4096;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let send = async |path: &str, kind: &str, body: Body| {
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", kind);
        server.send(request.header("coder-session-token", &owner).body(body).unwrap()).await
    };
    let refused = |answer: crate::harness::Answer, limit: usize| {
        let body = answer.expect(413);
        assert_eq!(body["message"], "Request body too large.");
        assert_eq!(body["detail"], format!("The limit is {limit} bytes."));
    };
    let text = |bytes: usize| Body::from(format!("\"{}\"", "x".repeat(bytes)));
    // Also without a declared length.
    let unknown = |bytes: usize| Body::from_stream(futures(bytes));
    let (json, tar) = ("application/json", "application/x-tar");
    refused(send("/api/v2/users/login", json, text(65 << 10)).await, 64 << 10);
    refused(send("/api/v2/users/login", json, unknown(65 << 10)).await, 64 << 10);
    refused(send("/api/v2/organizations/default/templateversions", json, text(2 << 20)).await, 2 << 20);
    refused(send("/api/v2/organizations/default/templateversions", json, unknown(3 << 20)).await, 2 << 20);
    refused(send("/api/v2/files", tar, Body::from(vec![0; 4097])).await, 4096);
    refused(send("/api/v2/files", tar, unknown(8192)).await, 4096);
    assert_eq!(send("/api/v2/files", tar, unknown(4096)).await.status, 201);
}

/// This many bytes in chunks.
fn futures(bytes: usize) -> impl futures_util::Stream<Item = Result<bytes::Bytes, std::io::Error>> {
    let pieces = bytes / 1024;
    futures_util::stream::iter((0..pieces).map(|_| Ok(bytes::Bytes::from(vec![b' '; 1024]))))
}

#[tokio::test]
async fn two_credentials_and_too_new_versions_have_errors_of_their_own() {
    use coder_domain::secret::Secret;
    const PSK: &str = "a pre-shared key";
    let mut config = settings();
    config.provisioning.psk = Some(Secret::new(PSK));
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let made =
        server.post(&owner, "/api/v2/organizations/default/provisionerkeys", json!({ "name": "k" })).await;
    let key = made.expect(201)["key"].as_str().unwrap().to_owned();
    let join = async |version: &str, headers: &[(&str, &str)]| {
        let path = "/api/v2/organizations/default/provisionerdaemons/serve?provisioner=terraform&name=d";
        let mut request = Request::get(format!("{path}&version={version}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        server.send(request.body(Body::empty()).unwrap()).await
    };
    let (session, key, psk) = (
        ("coder-session-token", owner.as_str()),
        ("coder-provisioner-daemon-key", key.as_str()),
        ("coder-provisioner-daemon-psk", PSK),
    );
    for both in [[session, key], [session, psk]] {
        let refused = join("1.14", &both).await.expect(400);
        assert!(refused["message"].as_str().unwrap().contains("only one is allowed"), "{refused}");
    }
    let nobody = join("1.14", &[]).await.expect(401);
    assert_eq!(join("1.14", &[key, psk]).await.expect(401), nobody, "two keys are not a credential");
    for version in ["1.15", "2.0"] {
        for credential in [session, key, psk] {
            let refused = join(version, &[credential]).await.expect(400);
            assert_eq!(refused["message"], "Incompatible or unparsable version");
            let detail = refused["validations"][0]["detail"].as_str().unwrap();
            assert!(detail.contains("1.14") && detail.contains(version), "{detail}");
        }
    }
}
