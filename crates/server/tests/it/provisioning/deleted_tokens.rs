//! Daemons that joined with a user's token are disconnected when it is deleted or expires.

use coder_domain::job::lifecycle::Cause;
use coder_server::provisioning::credentials::revoke;
use http::Method;

use super::user_daemons::{Two, joined};
use super::*;
use crate::harness::{PASSWORD, on_both_engines, settings};

on_both_engines! {
    async fn deleted_token_ends_the_sessions_of_its_daemons(server: TestServer) {
        let owner = server.owner().await;
        let user = server.user(&owner, "u", &["template-admin"]).await;
        let id = server.user_id(&user).await;
        let login = async || server.login("u@example.com").await;
        let (kept, deleted, out, other) = (login().await, login().await, login().await, login().await);
        let spared = joined(&server, "spared", id, &kept).await;
        let id_of = |key: &str| key.split_once('-').unwrap().0.to_owned();
        let public = id_of(&deleted);
        let made = async |by: &str, user: &str| {
            let made = server.post(by, &format!("/api/v2/users/{user}/keys/tokens"), json!({})).await.expect(201);
            made["key"].as_str().unwrap().to_owned()
        };
        // Tokens that a token created end with it, also those of other users.
        let (parent, automation) = (made(&user, "me").await, made(&owner, "me").await);
        let (minted, theirs) = (made(&parent, "me").await, made(&automation, "u").await);
        let (parent, automation) = (id_of(&parent), id_of(&automation));
        let password = json!({ "old_password": PASSWORD, "password": "AnotherSecret!22" });
        for (name, token, caller, method, path, body) in [
            ("a", &deleted, &user, Method::DELETE, format!("/api/v2/users/me/keys/{public}"), Value::Null),
            ("b", &out, &out, Method::POST, "/api/v2/users/logout".to_owned(), Value::Null),
            ("c", &minted, &user, Method::DELETE, format!("/api/v2/users/me/keys/{parent}"), Value::Null),
            ("d", &theirs, &owner, Method::DELETE, format!("/api/v2/users/me/keys/{automation}"), Value::Null),
            ("e", &other, &kept, Method::PUT, "/api/v2/users/me/password".to_owned(), password),
        ] {
            let two = Two::with_jobs(&server, &owner, name, id, token).await;
            revoke::token(&server.app, id).await;
            two.end(&server, server.ask(caller, method, &path, body), &Cause::TokenEnded.error()).await;
        }
        assert!(spared.calls.session().end().is_none());
    }
}

#[tokio::test]
async fn expired_token_ends_the_sessions_of_its_daemons_and_a_session_in_use_does_not_expire() {
    const HOUR: i64 = 3600;
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let id = server.user_id(&owner).await;
    let hour_ns = HOUR * 1_000_000_000;
    let made = server.post(&owner, "/api/v2/users/me/keys/tokens", json!({ "lifetime": hour_ns })).await;
    let token = made.expect(201)["key"].as_str().unwrap().to_owned();
    let short = joined(&server, "short", id, &token).await;
    let posted = import(&server, &owner, json!({})).await.1;
    short.take(posted).await;
    let login = server.login("admin@example.com").await;
    let session = joined(&server, "session", id, &login).await;
    server.advance(HOUR - 60);
    pass(601).await;
    short.update(posted).await.unwrap();
    server.advance(61);
    pass(601).await;
    tokio::time::timeout(WAIT_LIMIT, short.calls.session().closed()).await.unwrap();
    assert_eq!(job(&server, posted).await.error, format!("{} (daemon short)", Cause::TokenEnded.error()));
    // A session lasts for a day after its last use. A connected daemon counts as use.
    for _ in 0..30 {
        server.advance(HOUR);
        pass(601).await;
    }
    assert!(session.calls.session().end().is_none());
    server.get(&login, "/api/v2/users/me").await.expect(200);
}

#[tokio::test]
async fn session_without_refresh_ends_the_sessions_of_its_daemons() {
    let mut config = settings();
    config.sessions.refresh_expiry = false;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let id = server.user_id(&owner).await;
    let connection = joined(&server, "d", id, &owner).await;
    server.advance(23 * 3600);
    pass(601).await;
    assert!(connection.calls.session().end().is_none());
    server.advance(3600);
    pass(601).await;
    tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
}
