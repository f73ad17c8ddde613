//! Two servers on one Postgres, one of which gets no notifications: polling once a second makes up for them.

use bytes::Bytes;
use coder_domain::key::Sha256Digest;
use coder_server::network::user_connections::{Target, UserConnection};
use coder_server::provisioning::session::authenticate::PresentedKey;
use coder_store::keys;
use coder_wire::extension::messages::notification::Notification;
use tokio_util::sync::CancellationToken;

use super::daemon_process::{DaemonConnection, JoinOptions, next_notification};
use super::*;
use crate::harness::settings;

const KEYS: &str = "/api/v2/organizations/default/provisionerkeys";
/// Polling runs once a second. The rest of the time is for a busy machine.
const POLL_DEADLINE: Duration = Duration::from_secs(5);

/// One server with notifications, and one without.
async fn pair() -> Option<(TestServer, TestServer)> {
    let a = TestServer::postgres().await?;
    let mut config = settings();
    config.provisioning.wake_ups = false;
    let b = a.beside(config).await;
    coder_server::tasks::start(&b.app);
    Some((a, b))
}

/// A daemon that joined with a key of this name.
async fn keyed(a: &TestServer, b: &TestServer, name: &str) -> DaemonConnection {
    let (id, organization) = (KeyId::random(), a.app.default_organization);
    let key = keys::Key::new(id, organization, name.to_owned(), TagSet::untagged(), a.app.now());
    keys::insert(&mut a.app.store.single().await.unwrap(), &key, Sha256Digest::of(name)).await.unwrap();
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    let presented_key = Some(PresentedKey { key: id, secret: Sha256Digest::of(name), address });
    let connection = DaemonConnection::open(
        &b.app,
        JoinOptions { name, key: id, presented_key, ..JoinOptions::default() },
    )
    .await;
    connection.attach(&Bytes::new(), vec![]).await.unwrap();
    connection
}

async fn ends(connection: &DaemonConnection, what: &str) {
    let closed = tokio::time::timeout(POLL_DEADLINE, connection.calls.session().closed()).await;
    assert!(closed.is_ok(), "{what}");
}

#[tokio::test]
async fn credentials_that_end_on_one_server_end_their_daemons_on_another_without_notifications() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let (deleted, rotated, spared) =
        (keyed(&a, &b, "deleted").await, keyed(&a, &b, "rotated").await, keyed(&a, &b, "spared").await);
    let posted = import(&a, &owner, json!({})).await.1;
    deleted.take(posted).await;

    a.delete(&owner, &format!("{KEYS}/deleted")).await.expect(204);
    ends(&deleted, "a deleted key").await;
    let error = job(&a, posted).await.error;
    assert_eq!(error, "the key of the provisioner daemon was deleted (daemon deleted)");

    let mut notifications = rotated.ext.notifications().await.unwrap();
    a.post(&owner, &format!("{KEYS}/rotated/rotate"), json!({ "overlap_seconds": 0 })).await.expect(200);
    let notification =
        tokio::time::timeout(POLL_DEADLINE, next_notification(&mut notifications)).await.unwrap();
    assert!(matches!(notification, Notification::Drain(_)), "{notification:?}");

    let user = a.user(&owner, "u", &["template-admin"]).await;
    let id = a.user_id(&user).await;
    let options = |name, token| JoinOptions { name, user: Some(id), token, ..JoinOptions::default() };
    let token = a.login("u@example.com").await;
    let signed = DaemonConnection::open(&b.app, options("signed", &token)).await;
    a.post(&token, "/api/v2/users/logout", Value::Null).await.expect(200);
    ends(&signed, "a token").await;

    let of_user = DaemonConnection::open(&b.app, options("of-user", &user)).await;
    a.put(&owner, "/api/v2/users/u/status/suspend", json!({})).await.expect(200);
    ends(&of_user, "a user").await;

    let mut notifications = spared.ext.notifications().await.unwrap();
    let path = "/api/v2/organizations/default/provisionerdaemons/spared/drain";
    assert_eq!(a.post(&owner, path, Value::Null).await.expect(200)["notified"], 0);
    let notification =
        tokio::time::timeout(POLL_DEADLINE, next_notification(&mut notifications)).await.unwrap();
    assert!(matches!(notification, Notification::Drain(_)), "{notification:?}");
    assert!(spared.calls.session().end().is_none());
}

#[tokio::test]
async fn a_user_who_is_suspended_at_one_server_loses_the_tunnel_of_one_that_heard_nothing() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let token = a.user(&owner, "u", &[]).await;
    let revoked = CancellationToken::new();
    let connection = UserConnection {
        user: a.user_id(&token).await,
        token: Some(token.split_once('-').unwrap().0.into()),
        target: Target::OwnAgents,
        revoked: revoked.clone(),
    };
    let _registered = b.app.network.users.add(connection).unwrap();
    // The first look, which finds that the user may connect.
    let before = b.app.store.statement_counts().heartbeats;
    eventually("looks", || b.app.store.statement_counts().heartbeats >= before + 3).await;
    assert!(!revoked.is_cancelled());
    a.put(&owner, "/api/v2/users/u/status/suspend", json!({})).await.expect(200);
    tokio::time::timeout(POLL_DEADLINE, revoked.cancelled()).await.expect("no daemon is connected there");
}

#[tokio::test]
async fn a_server_that_was_away_for_long_looks_at_everything() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let (first, second) = (keyed(&a, &b, "first").await, keyed(&a, &b, "second").await);
    a.delete(&owner, &format!("{KEYS}/first")).await.expect(204);
    ends(&first, "the first").await;
    // The next hints are purged before the server reads them, except for the last one.
    let mut tx = a.app.store.begin().await.unwrap();
    for hint in ["nonsense", "z0"] {
        coder_store::changes::insert(&mut tx, hint, a.app.now()).await.unwrap();
    }
    let now = a.app.now();
    let id = keys::revoke(&mut tx, a.app.default_organization, "second", now).await.unwrap();
    assert!(id.is_some());
    coder_store::changes::purge(&mut tx, now + jiff::SignedDuration::from_secs(1)).await.unwrap();
    coder_store::changes::insert(&mut tx, "nonsense", now).await.unwrap();
    tx.commit().await.unwrap();
    ends(&second, "the second").await;
}

#[tokio::test]
async fn an_idle_daemon_costs_nothing_by_itself() {
    let Some((a, b)) = pair().await else { return };
    let mut connections = Vec::new();
    for number in 0..50 {
        connections.push(keyed(&a, &b, &format!("k{number}")).await);
    }
    let (before, started) = (b.app.store.statement_counts(), std::time::Instant::now());
    // The first polls run at once.
    eventually("looks", || b.app.store.statement_counts().heartbeats >= before.heartbeats + 5).await;
    let after = b.app.store.statement_counts();
    assert!(after.work - before.work < 10, "other tasks have little to do: {before:?} {after:?}");
    assert!(started.elapsed() > Duration::from_secs(1), "one query a second for all of them");
}

#[tokio::test]
async fn followers_and_holders_of_jobs_hear_within_a_second_though_every_hint_is_lost() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let (_, followed) = import(&a, &owner, json!({})).await;
    let there = Daemon::untagged(&a, "there").await;
    there.take(followed).await;
    let mut changes = b.app.events.subscribe(coder_server::events::Topic::Job(followed));
    let mut next = async |what: &str| {
        assert!(tokio::time::timeout(POLL_DEADLINE, changes.changed()).await.is_ok(), "{what}");
    };
    next("one query for new log lines").await;
    there.update(followed, 1).await.unwrap();
    next("lines").await;
    there.calls.complete_job(&import_result(followed, vec![])).await.unwrap();
    next("the end").await;

    let (version, held) = import(&a, &owner, json!({})).await;
    let connection = keyed(&a, &b, "holder").await;
    connection.take(held).await;
    let mut notifications = connection.ext.notifications().await.unwrap();
    cancel(&a, &owner, version).await;
    let notification =
        tokio::time::timeout(POLL_DEADLINE, next_notification(&mut notifications)).await.unwrap();
    assert!(
        matches!(&notification, Notification::JobCancel(canceled) if canceled.job_id == held.to_string()),
        "{notification:?}"
    );
}

#[tokio::test]
async fn idle_followers_cost_one_statement_a_second_for_all_of_them() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let mut followers = Vec::new();
    for _ in 0..20 {
        let posted = import(&a, &owner, json!({})).await.1;
        followers.push(b.app.events.subscribe(coder_server::events::Topic::Job(posted)));
    }
    let (before, started) = (b.app.store.statement_counts(), std::time::Instant::now());
    eventually("looks", || b.app.store.statement_counts().heartbeats >= before.heartbeats + 4).await;
    assert!(started.elapsed() > Duration::from_secs(2), "one query a second for all of them");
    let after = b.app.store.statement_counts();
    assert!(after.work - before.work < 10, "{before:?} {after:?}");
    drop(followers);
}
