//! Two servers on one Postgres: hints alone carry changes to the daemons and followers of the other server. Polling does not run
//! here.

use bytes::Bytes;
use coder_domain::ids::{AgentId, WorkspaceId};
use coder_domain::key::Sha256Digest;
use coder_server::events::Topic;
use coder_server::tasks::replicas;
use coder_store::keys;
use coder_wire::extension::messages::notification::Notification;

use super::daemon_process::{DaemonConnection, JoinOptions, next_notification};
use super::*;
use crate::harness::settings;

/// Two servers that have found each other; none without Postgres.
async fn pair() -> Option<(TestServer, TestServer)> {
    let a = TestServer::postgres().await?;
    let b = a.beside(settings()).await;
    listen(&a);
    listen(&b);
    eventually("both have found each other", || {
        [&a, &b].iter().all(|server| server.app.events.outbox().peers() == 1)
    })
    .await;
    Some((a, b))
}

#[tokio::test]
async fn a_daemon_on_two_servers_is_connected_until_both_connections_end() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let shown = async |status: &str| {
        let list =
            a.get(&owner, "/api/v2/organizations/default/provisionerdaemons?offline=true").await.expect(200);
        (list[0]["status"] == status).then_some(())
    };
    let (there, newest) =
        (DaemonConnection::fresh(&b.app, "twin").await.0, DaemonConnection::fresh(&a.app, "twin").await.0);
    newest.cut();
    eventually("one has left", || a.app.scheduler.connected().is_empty()).await;
    // No heartbeat runs here. The end of the other connection is stored only when the row names it.
    poll_until("the remaining connection counts", async || shown("idle").await).await;
    there.cut();
    poll_until("without a connection it is offline", async || shown("offline").await).await;
}

fn listen(server: &TestServer) {
    let app = server.app.clone();
    server.app.lifecycle.spawn("other servers", async move { replicas::run(&app).await });
}

/// Waits until no more wake-ups of followers are pending.
async fn still(changes: &mut coder_server::events::Subscription) {
    while tokio::time::timeout(Duration::from_millis(300), changes.changed()).await.is_ok() {}
}

#[tokio::test]
async fn a_server_that_joins_tells_at_once_of_the_jobs_that_are_followed_on_another() {
    let Some(a) = TestServer::postgres().await else { return };
    listen(&a);
    let owner = a.owner().await;
    let posted = import(&a, &owner, json!({})).await.1;
    let mut changes = a.app.events.subscribe(Topic::Job(posted));
    let b = a.beside(settings()).await;
    listen(&b);
    eventually("both have found each other", || {
        [&a, &b].iter().all(|server| server.app.events.outbox().peers() == 1)
    })
    .await;
    let daemon = Daemon::untagged(&b, "d").await;
    daemon.take(posted).await;
    still(&mut changes).await;
    // The next heartbeat, which names the followed jobs, is 20 seconds away.
    daemon.update(posted, 1).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.unwrap();
}

#[tokio::test]
async fn a_daemon_of_a_running_server_is_listed_on_another_whatever_the_clock_says() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let connection = DaemonConnection::fresh(&b.app, "d").await.0;
    let shown = async |query: &str| {
        let path = format!("/api/v2/organizations/default/provisionerdaemons{query}");
        a.get(&owner, &path).await.expect(200)[0]["status"].as_str().map(str::to_owned)
    };
    // No heartbeat runs here.
    for jump in [3600, -2 * 3600, 3 * 3600] {
        a.advance(jump);
        assert_eq!(shown("").await.as_deref(), Some("idle"), "after {jump}");
        let health = a.get(&owner, "/api/v2/debug/health").await.expect(200);
        assert_eq!(health["provisioner_daemons"]["items"].as_array().unwrap().len(), 1, "{health}");
    }
    a.advance(8 * 24 * 3600);
    coder_server::tasks::driver::Task::run(&mut coder_server::tasks::purge::Purge, &a.app).await.unwrap();
    a.advance(-8 * 24 * 3600);
    assert_eq!(shown("?offline=true").await.as_deref(), Some("idle"), "its row stays");
    connection.cut();
    poll_until("it has left", async || shown("?offline=true").await.filter(|shown| shown == "offline")).await;
}

#[tokio::test]
async fn changes_of_a_workspace_and_its_agents_wake_the_followers_of_the_other() {
    let Some((a, b)) = pair().await else { return };
    let (workspace, agent) = (WorkspaceId::random(), AgentId::random());
    let topics = [
        Topic::Workspace(workspace),
        Topic::Workspaces,
        Topic::AgentLogs(agent),
        Topic::AgentMetadata(agent),
    ];
    let mut followers = topics.map(|topic| b.app.events.subscribe(topic));
    a.app.events.workspace_changed(workspace);
    a.app.events.agent_logs_changed(agent);
    a.app.events.agent_metadata_changed(agent);
    for (follower, topic) in followers.iter_mut().zip(topics) {
        let woken = tokio::time::timeout(Duration::from_secs(5), follower.changed()).await;
        assert!(woken.is_ok(), "{topic:?}");
    }
}

/// A daemon that waits for a job on this server.
async fn waiting(server: &TestServer) -> tokio::task::JoinHandle<AcquiredJob> {
    let daemon = Daemon::untagged(server, "waits").await;
    let acquiring = tokio::spawn(async move { daemon.acquire().await });
    eventually("it waits", || server.app.scheduler.size() == (1, 1)).await;
    acquiring
}

#[tokio::test]
async fn a_job_posted_on_one_server_is_taken_at_once_by_a_daemon_of_the_other() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let acquiring = waiting(&b).await;
    let posted = import(&a, &owner, json!({})).await.1;
    assert_eq!(acquiring.await.unwrap().job_id, posted.to_string());
    let taken = job(&a, posted).await;
    assert_eq!(status(&taken), Status::Running);
}

#[tokio::test]
async fn cancels_drains_and_the_end_of_a_key_reach_daemons_of_the_other_server() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let key = keys::Key::new(
        KeyId::random(),
        a.app.default_organization,
        "k".to_owned(),
        TagSet::untagged(),
        a.app.now(),
    );
    keys::insert(&mut a.app.store.single().await.unwrap(), &key, Sha256Digest::of("secret")).await.unwrap();
    let (version, posted) = import(&a, &owner, json!({})).await;
    let connection =
        DaemonConnection::open(&b.app, JoinOptions { name: "d", key: key.id, ..JoinOptions::default() })
            .await;
    connection.attach(&Bytes::new(), vec![]).await.unwrap();
    connection.take(posted).await;
    let mut notifications = connection.ext.notifications().await.unwrap();

    cancel(&a, &owner, version).await;
    let Notification::JobCancel(canceled) = next_notification(&mut notifications).await else {
        panic!("a cancel")
    };
    assert_eq!((canceled.job_id, canceled.force), (posted.to_string(), false));

    let path = "/api/v2/organizations/default/provisionerdaemons/d/drain";
    let drained = a.post(&owner, path, Value::Null).await.expect(200);
    assert_eq!(drained["notified"], 0, "it is connected to the other server");
    let Notification::Drain(drain) = next_notification(&mut notifications).await else { panic!("a drain") };
    assert_eq!(drain.reason, "admin asked for it");

    let idle =
        DaemonConnection::open(&b.app, JoinOptions { name: "idle", key: key.id, ..JoinOptions::default() })
            .await;
    idle.attach(&Bytes::new(), vec![]).await.unwrap();
    let other = Daemon::untagged(&b, "other").await;
    let started = std::time::Instant::now();
    // The session on the other server is notified, and the handler here does not wait for it.
    let shown = DaemonConnection::open(
        &b.app,
        JoinOptions {
            name: "shown",
            key: key.id,
            presented_key: Some(coder_server::provisioning::session::authenticate::PresentedKey {
                key: key.id,
                secret: Sha256Digest::of("secret"),
                address: std::net::Ipv4Addr::LOCALHOST.into(),
            }),
            ..JoinOptions::default()
        },
    )
    .await;
    shown.attach(&Bytes::new(), vec![]).await.unwrap();
    a.delete(&owner, "/api/v2/organizations/default/provisionerkeys/k").await.expect(204);
    for connection in [&connection, &idle, &shown] {
        tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let error = job(&a, posted).await.error;
    assert!(error.starts_with("the key of the provisioner daemon was deleted (daemon "), "{error}");
    assert!(other.calls.session().end().is_none());
}

#[tokio::test]
async fn a_follower_on_one_server_is_woken_by_lines_that_arrive_on_the_other() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let posted = import(&a, &owner, json!({})).await.1;
    let daemon = Daemon::untagged(&b, "d").await;
    daemon.take(posted).await;
    let mut changes = a.app.events.subscribe(Topic::Job(posted));
    // The hints of the other server show whether it knows the follower.
    let told = async {
        loop {
            daemon.update(posted, 1).await.unwrap();
            if tokio::time::timeout(Duration::from_millis(50), changes.changed()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(WAIT_LIMIT, told).await.unwrap();
    daemon.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
    tokio::time::timeout(WAIT_LIMIT, changes.changed()).await.unwrap();
}

#[tokio::test]
async fn a_user_who_leaves_or_is_suspended_has_no_daemons_on_any_server() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let user = a.user(&owner, "u", &["template-admin"]).await;
    let user = a.user_id(&user).await;
    let connection =
        DaemonConnection::open(&b.app, JoinOptions { user: Some(user), ..JoinOptions::default() }).await;
    connection.attach(&Bytes::new(), vec![]).await.unwrap();
    // A deleted token also disconnects the daemons that joined with it.
    let token = a.login("u@example.com").await;
    let signed = JoinOptions { name: "signed", user: Some(user), token: &token, ..JoinOptions::default() };
    let signed = DaemonConnection::open(&b.app, signed).await;
    signed.attach(&Bytes::new(), vec![]).await.unwrap();
    a.post(&token, "/api/v2/users/logout", Value::Null).await.expect(200);
    tokio::time::timeout(WAIT_LIMIT, signed.calls.session().closed()).await.unwrap();
    assert!(connection.calls.session().end().is_none());
    a.put(&owner, "/api/v2/users/u/status/suspend", json!({})).await.expect(200);
    tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
}

#[tokio::test]
async fn missed_notifications_are_read_from_the_database() {
    let Some((a, b)) = pair().await else { return };
    let owner = a.owner().await;
    let acquiring = waiting(&b).await;
    a.execute("select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen \"coder_%'")
        .await;
    let posted = import(&a, &owner, json!({})).await.1;
    assert_eq!(acquiring.await.unwrap().job_id, posted.to_string());
    // Hints work again.
    let acquiring = waiting(&b).await;
    let posted = import(&a, &owner, json!({})).await.1;
    assert_eq!(acquiring.await.unwrap().job_id, posted.to_string());
}

/// Follows a log over a WebSocket until the server closes it. Returns the ids and texts.
async fn followed(
    address: std::net::SocketAddr,
    token: &str,
    version: TemplateVersionId,
) -> Vec<(i64, String)> {
    use futures_util::StreamExt as _;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let url = format!("ws://{address}/api/v2/templateversions/{version}/logs?follow&after=0");
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("Coder-Session-Token", token.parse().unwrap());
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let mut lines = Vec::new();
    while let Some(message) = socket.next().await {
        match message.unwrap() {
            Message::Text(text) => {
                let line: Value = serde_json::from_str(&text).unwrap();
                lines.push((line["id"].as_i64().unwrap(), line["output"].as_str().unwrap().to_owned()));
            }
            Message::Close(frame) => {
                assert_eq!(frame.map(|frame| u16::from(frame.code)), Some(1000));
                break;
            }
            _ => {}
        }
    }
    lines
}

#[tokio::test]
async fn followers_on_one_server_get_the_lines_of_the_other_in_order_and_once() {
    let Some(a) = TestServer::postgres().await else { return };
    let (address, stop) = a.listening().await;
    listen(&a);
    eventually("they have found each other", || a.app.events.outbox().peers() == 1).await;
    let owner = a.owner().await;
    let (version, posted) = import(&a, &owner, json!({})).await;
    // One follows from before the start, the other one starts in the middle.
    let follow = |owner: String| tokio::spawn(async move { followed(address, &owner, version).await });
    let first = follow(owner.clone());
    let daemon = Daemon::untagged(&a, "d").await;
    daemon.take(posted).await;
    let (mut want, mut second) = (Vec::new(), None);
    for batch in 0..120_usize {
        // Identical lines are all kept.
        let texts: Vec<_> = (0..=batch % 7).map(|at| format!("{} {}", batch / 3, at / 2)).collect();
        let logs = texts.iter().map(|text| line(text)).collect();
        let request = UpdateJobRequest { job_id: posted.to_string(), logs, ..UpdateJobRequest::default() };
        daemon.calls.update_job(&request).await.unwrap();
        want.extend(texts);
        if batch == 60 {
            second = Some(follow(owner.clone()));
        }
    }
    daemon.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
    let want: Vec<_> = (1..).zip(want).collect();
    for follower in [first, second.unwrap()] {
        // Not the query that every follower runs twice a minute.
        let got = tokio::time::timeout(Duration::from_secs(20), follower).await.unwrap().unwrap();
        assert_eq!(got, want);
    }
    stop.cancel();
}
