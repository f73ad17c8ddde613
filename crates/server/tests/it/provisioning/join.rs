//! Who may join: the decision matrix of scheduling-and-auth 4.2 and the statuses of wire-protocol 1.7. A request that
//! is admitted but does not ask for a WebSocket gets status 426.

use axum::body::Body;
use coder_domain::secret::Secret;
use http::Request;
use serde_json::{Value, json};

use super::*;
use crate::harness::{Answer, settings};

const PSK: &str = "a pre-shared key";
const PATH: &str = "/api/v2/organizations/default/provisionerdaemons/serve";
const QUERY: &str = "name=d&provisioner=terraform&version=1.14";

async fn with_psk() -> TestServer {
    let mut config = settings();
    config.provisioning.psk = Some(Secret::new(PSK));
    TestServer::sqlite_with(config).await
}

async fn join(server: &TestServer, path: &str, query: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::get(format!("{path}?{query}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = server.send(request.body(Body::empty()).unwrap()).await;
    assert!(answer.body.len() < 1024, "wire-protocol 1.7: {}", answer.body.len());
    let _: Value = answer.json();
    answer
}

async fn key(server: &TestServer, owner: &str, name: &str, tags: Value) -> String {
    let path = "/api/v2/organizations/default/provisionerkeys";
    let made = server.post(owner, path, json!({ "name": name, "tags": tags })).await.expect(201);
    made["key"].as_str().unwrap().to_owned()
}

const KEY: &str = "Coder-Provisioner-Daemon-Key";
const PSK_HEADER: &str = "Coder-Provisioner-Daemon-PSK";
const SESSION: &str = "Coder-Session-Token";

#[tokio::test]
async fn every_bad_credential_gets_the_same_401() {
    let server = with_psk().await;
    let owner = server.owner().await;
    let good = key(&server, &owner, "k", json!({})).await;
    let unknown = "x".repeat(43);
    let cases: [&[(&str, &str)]; 7] = [
        &[],
        &[(KEY, unknown.as_str())],
        &[(KEY, "short")],
        &[(PSK_HEADER, "wrong")],
        &[(SESSION, "nonsense")],
        &[(SESSION, "aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb")],
        &[(KEY, good.as_str()), (PSK_HEADER, PSK)],
    ];
    let mut messages = Vec::new();
    for headers in cases {
        let answer = join(&server, PATH, QUERY, headers).await.expect(401);
        messages.push(answer["message"].as_str().unwrap().to_owned());
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
}

/// No daemon stays connected here, so all are offline.
const LIST: &str = "/api/v2/organizations/default/provisionerdaemons?offline=true";

#[tokio::test]
async fn each_valid_credential_is_admitted_and_two_at_once_are_not() {
    let server = with_psk().await;
    let owner = server.owner().await;
    let key = key(&server, &owner, "k", json!({"environment": "on_prem"})).await;
    for headers in [(KEY, key.as_str()), (PSK_HEADER, PSK), (SESSION, owner.as_str())] {
        join(&server, PATH, QUERY, &[headers]).await.expect(426);
    }
    join(&server, PATH, QUERY, &[(KEY, &key), (SESSION, &owner)]).await.expect(400);
    join(&server, PATH, QUERY, &[(PSK_HEADER, PSK), (SESSION, &owner)]).await.expect(400);
    // An invalid key is refused even with a valid session.
    join(&server, PATH, QUERY, &[(KEY, "short"), (SESSION, &owner)]).await.expect(426);
    let daemons = server.get(&owner, LIST).await.expect(200);
    assert_eq!(daemons.as_array().unwrap().len(), 1, "one name, one organization, no owner: one row");
    assert_eq!(daemons[0]["key_name"], "user-auth", "the last one to join decides");
}

#[tokio::test]
async fn the_key_decides_organization_and_tags() {
    let server = with_psk().await;
    let owner = server.owner().await;
    let key = key(&server, &owner, "k", json!({"environment": "on_prem"})).await;
    join(&server, PATH, &format!("{QUERY}&tag=a%3Db"), &[(KEY, &key)]).await.expect(403);
    join(&server, PATH, QUERY, &[(KEY, &key)]).await.expect(426);
    let daemons = server.get(&owner, LIST).await.expect(200);
    let want = json!({"environment": "on_prem", "owner": "", "scope": "organization"});
    assert_eq!(daemons[0]["tags"], want);
}

#[tokio::test]
async fn members_may_only_join_for_themselves() {
    let server = with_psk().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "member", &[]).await;
    let admin = server.user(&owner, "tadmin", &["template-admin"]).await;
    join(&server, PATH, QUERY, &[(SESSION, &member)]).await.expect(403);
    join(&server, PATH, QUERY, &[(SESSION, &admin)]).await.expect(426);
    let id = server.user_id(&member).await;
    let own = format!("{QUERY}&tag=scope%3Duser&tag=owner%3Dsomebody");
    join(&server, PATH, &own, &[(SESSION, &member)]).await.expect(426);
    let daemons = server.get(&owner, LIST).await.expect(200);
    let of_member =
        daemons.as_array().unwrap().iter().find(|daemon| daemon["tags"]["scope"] == "user").unwrap();
    assert_eq!(of_member["tags"]["owner"], id.to_string(), "the owner is always the caller");
}

#[tokio::test]
async fn conf_3_the_psk_is_for_organization_scope_only() {
    let server = with_psk().await;
    server.owner().await;
    join(&server, PATH, &format!("{QUERY}&tag=scope%3Duser"), &[(PSK_HEADER, PSK)]).await.expect(403);
    let owner = server.login("admin@example.com").await;
    server.post(&owner, "/api/v2/organizations", json!({ "name": "second" })).await.expect(201);
    let second = PATH.replace("default", "second");
    let refused = join(&server, &second, QUERY, &[(PSK_HEADER, PSK)]).await.expect(403);
    assert!(refused["detail"].as_str().unwrap().contains("for the default organization only"), "{refused}");
    // A key determines its organization.
    let key = key(&server, &owner, "k", json!({})).await;
    join(&server, &second, QUERY, &[(KEY, &key)]).await.expect(426);
    assert_eq!(server.get(&owner, LIST).await.expect(200)[0]["key_name"], "k");
    let none = TestServer::sqlite().await;
    for psk in [PSK, ""] {
        join(&none, PATH, QUERY, &[(PSK_HEADER, psk)]).await.expect(401);
    }
}

#[tokio::test]
async fn requests_that_make_no_sense_are_400_and_unknown_organizations_404() {
    let server = with_psk().await;
    let owner = server.owner().await;
    let me: &[(&str, &str)] = &[(SESSION, &owner)];
    let long = "x".repeat(5000);
    for query in [
        "name=d",
        "provisioner=pulumi",
        "provisioner=terraform&tag=nothing",
        &format!("provisioner=terraform&tag={long}"),
    ] {
        join(&server, PATH, query, me).await.expect(400);
    }
    assert_eq!(join(&server, PATH, &format!("{QUERY}&tag=a%3D%00"), me).await.refused(400), "tags");
    for version in ["1.15", "2.0", "0.9", "x", "1"] {
        let query = format!("provisioner=terraform&version={version}");
        let body = join(&server, PATH, &query, me).await.expect(400);
        assert_eq!(body["validations"][0]["field"], "version", "{version}");
        if version != "x" && version != "1" {
            assert!(body["validations"][0]["detail"].as_str().unwrap().contains("1.14"), "{body}");
        }
    }
    for version in ["", "&version=1.0", "&version=1.14&version=9.9"] {
        join(&server, PATH, &format!("name=d&provisioner=terraform{version}"), me).await.expect(426);
    }
    join(&server, "/api/v2/organizations/nowhere/provisionerdaemons/serve", QUERY, me).await.expect(404);
}

#[tokio::test]
async fn the_same_name_takes_the_same_row_over() {
    let server = TestServer::sqlite().await;
    let first = Daemon::untagged(&server, "one").await;
    let second = Daemon::untagged(&server, "one").await;
    let other = Daemon::untagged(&server, "two").await;
    assert_eq!(first.id, second.id);
    assert_ne!(first.id, other.id);
}
