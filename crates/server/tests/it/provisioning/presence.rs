//! A daemon that disconnects is offline at once on every server.

use coder_domain::job::lifecycle::Guard;

use super::daemon_process::{DaemonConnection, JoinOptions};
use super::*;
use crate::harness::{on_both_engines, settings};

const DAEMONS: &str = "/api/v2/organizations/default/provisionerdaemons";

/// The status of the only daemon in a list; none when the list is empty.
async fn shown(server: &TestServer, owner: &str, query: &str) -> Option<String> {
    let list = server.get(owner, &format!("{DAEMONS}{query}")).await.expect(200);
    assert!(list.as_array().unwrap().len() < 2, "{list}");
    list[0]["status"].as_str().map(str::to_owned)
}

async fn soon_shown(server: &TestServer, owner: &str, want: &str) {
    poll_until(want, async || shown(server, owner, "?offline=true").await.filter(|shown| shown == want))
        .await;
}

async fn open(server: &TestServer) -> DaemonConnection {
    let connection = DaemonConnection::open(&server.app, JoinOptions::default()).await;
    connection.attach(&bytes::Bytes::new(), vec![]).await.unwrap();
    connection
}

on_both_engines! {
    async fn a_daemon_that_leaves_or_is_cut_is_offline_at_once(server: TestServer) {
        let owner = server.owner().await;
        // Another server on the same database reports the same.
        let beside = server.beside(settings()).await;
        for cut in [false, true] {
            let connection = open(&server).await;
            for asked in [&server, &beside] {
                assert_eq!(shown(asked, &owner, "").await.as_deref(), Some("idle"));
            }
            server.advance(10);
            if cut {
                connection.cut();
            } else {
                connection.calls.session().close().await;
            }
            soon_shown(&server, &owner, "offline").await;
            assert_eq!(shown(&beside, &owner, "?offline=true").await.as_deref(), Some("offline"));
            for asked in [&server, &beside] {
                assert_eq!(shown(asked, &owner, "").await, None, "stale daemons are shown on request");
            }
            let health = beside.get(&owner, "/api/v2/debug/health").await.expect(200);
            assert_eq!(health["provisioner_daemons"]["items"], json!([]), "{health}");
            // The explanation of a waiting job names the time when it was last connected.
            let (version, posted) = import(&server, &owner, json!({})).await;
            let path = format!("/api/v2/organizations/default/provisionerjobs/{posted}/explain");
            for asked in [&server, &beside] {
                let explained = asked.get(&owner, &path).await.expect(200);
                assert_eq!(explained["reasons"][0]["code"], "not_seen", "{explained}");
                let seen = server.app.now().to_string();
                let message = explained["reasons"][0]["message"].as_str().unwrap();
                assert!(message.contains(&seen), "{message}");
            }
            cancel(&server, &owner, version).await;
        }
    }

    async fn an_older_connection_that_ends_says_nothing_of_the_newer_one(server: TestServer) {
        let owner = server.owner().await;
        let beside = server.beside(settings()).await;
        let (older, here, newest) = (open(&server).await, open(&server).await, open(&beside).await);
        for connection in [&older, &here] {
            connection.calls.session().close().await;
        }
        all_gone(&server).await;
        assert_eq!(shown(&server, &owner, "").await.as_deref(), Some("idle"));
        newest.cut();
        soon_shown(&server, &owner, "offline").await;
    }

    async fn the_end_of_the_newest_connection_says_nothing_of_an_older_one(server: TestServer) {
        let owner = server.owner().await;
        let (older, newest) = (open(&server).await, open(&server).await);
        newest.cut();
        eventually("one has left", || server.app.scheduler.connected().len() == 1).await;
        assert_eq!(shown(&server, &owner, "").await.as_deref(), Some("idle"));
        older.cut();
        soon_shown(&server, &owner, "offline").await;
    }

    async fn disconnected_daemon_with_a_job_is_busy_until_the_job_ends(server: TestServer) {
        let owner = server.owner().await;
        let connection = open(&server).await;
        let posted = import(&server, &owner, json!({})).await.1;
        connection.take(posted).await;
        connection.cut();
        until(&server, posted, |job| job.lost_at.is_some()).await;
        assert_eq!(shown(&server, &owner, "").await.as_deref(), Some("busy"));
        // A heartbeat of its server proves that it is connected, when it has not disconnected within the last seconds.
        let mut tx = server.app.store.single().await.unwrap();
        daemons::update_seen(&mut tx, &[connection.id], server.app.events.outbox().own(), server.app.now()).await.unwrap();
        drop(tx);
        let mut tx = server.app.store.begin().await.unwrap();
        let now = server.app.now();
        jobs::give_up(&mut tx, posted, Guard::Open, "it is over", now).await.unwrap();
        tx.commit().await.unwrap();
        soon_shown(&server, &owner, "offline").await;
        server.advance(10);
        let mut tx = server.app.store.single().await.unwrap();
        daemons::update_seen(&mut tx, &[connection.id], server.app.events.outbox().own(), server.app.now()).await.unwrap();
        drop(tx);
        assert_eq!(shown(&server, &owner, "").await.as_deref(), Some("idle"));
    }
}
