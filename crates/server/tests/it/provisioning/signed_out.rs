//! Daemons that joined with a user's token: they go with it.

use bytes::Bytes;
use coder_server::provisioning::revoke;
use coder_wire::extension::messages::notice::Notice;
use http::Method;

use super::extended::{Line, Wanted, heard};
use super::*;
use crate::harness::{PASSWORD, on_both_engines, settings};

async fn joined(server: &TestServer, name: &str, user: UserId, token: &str) -> Line {
    let line = Line::open(&server.app, Wanted { name, user: Some(user), token, ..Wanted::default() }).await;
    line.attach(&Bytes::new(), vec![]).await.unwrap();
    line
}

on_both_engines! {
    async fn a_token_that_goes_takes_its_daemons_along(server: TestServer) {
        let owner = server.owner().await;
        let user = server.user(&owner, "u", &["template-admin"]).await;
        let id = server.user_id(&user).await;
        let login = async || server.login("u@example.com").await;
        let (kept, deleted, out, other) = (login().await, login().await, login().await, login().await);
        let spared = joined(&server, "spared", id, &kept).await;
        let public = deleted.split_once('-').unwrap().0.to_owned();
        let password = json!({ "old_password": PASSWORD, "password": "AnotherSecret!22" });
        for (name, token, caller, method, path, body) in [
            ("a", &deleted, &user, Method::DELETE, format!("/api/v2/users/me/keys/{public}"), Value::Null),
            ("b", &out, &out, Method::POST, "/api/v2/users/logout".to_owned(), Value::Null),
            ("c", &other, &kept, Method::PUT, "/api/v2/users/me/password".to_owned(), password),
        ] {
            let line = joined(&server, name, id, token).await;
            let away = joined(&server, &format!("{name}-away"), id, token).await;
            let posted = import(&server, &owner, json!({})).await.1;
            line.take(posted).await;
            let lost = import(&server, &owner, json!({})).await.1;
            away.take(lost).await;
            away.cut();
            until(&server, lost, |job| job.lost_at.is_some()).await;
            revoke::token(&server.app, id).await;
            assert!(line.calls.session().end().is_none(), "nothing has happened to {name} yet");
            let mut notices = line.ext.notices().await.unwrap();
            let (answer, notice) = tokio::join!(server.ask(caller, method, &path, body), heard(&mut notices));
            assert!(answer.status.is_success(), "{answer:?}");
            let Notice::JobRevoked(revoked) = notice else { panic!("{notice:?}") };
            assert_eq!(revoked.job_id, posted.to_string());
            let closed = line.calls.session().closed();
            tokio::time::timeout(Duration::from_secs(5), closed).await.unwrap();
            for job_id in [posted, lost] {
                assert_eq!(job(&server, job_id).await.error, revoke::TOKEN_GONE, "{name}");
            }
        }
        assert!(spared.calls.session().end().is_none());
    }
}

/// Timers go on by so many seconds, with real time for connections and the database in between.
async fn pass(mut seconds: u64) {
    while seconds > 0 {
        let step = seconds.min(20);
        seconds -= step;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(step)).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_token_that_expires_takes_its_daemons_along_and_a_session_in_use_does_not_expire() {
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
    tokio::time::timeout(SOON, short.calls.session().closed()).await.unwrap();
    assert_eq!(job(&server, posted).await.error, revoke::TOKEN_GONE);
    // A session lives for a day from its last use, and a daemon that is connected uses it.
    for _ in 0..30 {
        server.advance(HOUR);
        pass(601).await;
    }
    assert!(session.calls.session().end().is_none());
    server.get(&login, "/api/v2/users/me").await.expect(200);
}

#[tokio::test]
async fn a_session_that_use_does_not_prolong_takes_its_daemons_along() {
    let mut config = settings();
    config.sessions.refresh_expiry = false;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let id = server.user_id(&owner).await;
    let line = joined(&server, "d", id, &owner).await;
    server.advance(23 * 3600);
    pass(601).await;
    assert!(line.calls.session().end().is_none());
    server.advance(3600);
    pass(601).await;
    tokio::time::timeout(SOON, line.calls.session().closed()).await.unwrap();
}
