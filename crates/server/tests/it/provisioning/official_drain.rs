//! Drains of official daemons: they get no jobs until they are undrained, even after restarts.

use coder_wire::extension::Extensions;
use futures_util::future::select_all;

use super::daemon_process::{DaemonConnection, JoinOptions};
use super::*;
use crate::harness::{on_both_engines, settings};

const DRAIN: &str = "/api/v2/organizations/default/provisionerdaemons/official/drain";

/// An official daemon of this name.
async fn official(server: &TestServer, key: KeyId) -> DaemonConnection {
    let options =
        JoinOptions { name: "official", key, extensions: Extensions::NONE, ..JoinOptions::default() };
    DaemonConnection::open(&server.app, options).await
}

/// Waits for a job, as official daemons do.
fn waiting(connection: &DaemonConnection) -> tokio::task::JoinHandle<AcquiredJob> {
    let calls = connection.calls.clone();
    tokio::spawn(async move { calls.acquire(std::future::pending()).await.unwrap().unwrap() })
}

async fn is_draining(server: &TestServer, connection: &DaemonConnection) -> bool {
    let mut tx = server.app.store.reader().await.unwrap();
    daemons::find(&mut tx, connection.id).await.unwrap().unwrap().draining
}

on_both_engines! {
    async fn an_official_daemon_stays_drained_until_that_is_taken_back(first: TestServer) {
        let owner = first.owner().await;
        let connection = official(&first, KeyId::USER_AUTH).await;
        let acquiring = waiting(&connection);
        all_wait(&first, (1, 1)).await;
        assert_eq!(first.post(&owner, DRAIN, Value::Null).await.expect(200)["notified"], 1);
        all_wait(&first, (0, 0)).await;
        assert!(!acquiring.is_finished(), "after an empty response it would call again at once");
        let posted = import(&first, &owner, json!({})).await.1;

        // It reconnects to the same server, and to a restarted one.
        first.advance(5);
        let again = official(&first, KeyId::USER_AUTH).await;
        let next = first.beside(settings()).await;
        let there = official(&next, KeyId::USER_AUTH).await;
        let (of_again, of_there) = (waiting(&again), waiting(&there));
        assert!(is_draining(&next, &there).await);
        let healthy = Daemon::untagged(&next, "healthy").await;
        healthy.take(posted).await;
        assert!(!of_again.is_finished() && !of_there.is_finished());

        let second = import(&next, &owner, json!({})).await.1;
        for (server, notified) in [(&next, 1), (&first, 2)] {
            assert_eq!(server.delete(&owner, DRAIN).await.expect(200)["notified"], notified);
        }
        assert!(!is_draining(&next, &there).await);
        // The first server may be notified of the undrain before it receives the request, so either connection may get
        // the job.
        let (taken, _, rest) = select_all([of_there, of_again, acquiring]).await;
        assert_eq!(taken.unwrap().job_id, second.to_string());
        let third = import(&first, &owner, json!({})).await.1;
        let (taken, _, _) = select_all(rest).await;
        assert_eq!(taken.unwrap().job_id, third.to_string());
        first.delete(&owner, &DRAIN.replace("official/", "nobody/")).await.expect(404);
    }

    async fn a_drain_ends_with_the_row_and_with_another_key(server: TestServer) {
        let owner = server.owner().await;
        let connection = official(&server, KeyId::USER_AUTH).await;
        server.post(&owner, DRAIN, Value::Null).await.expect(200);
        connection.calls.session().close().await;
        // A daemon with another credential is a different daemon.
        let psk = official(&server, KeyId::PSK).await;
        assert!(!is_draining(&server, &psk).await);
        let posted = import(&server, &owner, json!({})).await.1;
        psk.take(posted).await;
        psk.calls.complete_job(&import_result(posted, vec![])).await.unwrap();

        server.post(&owner, DRAIN, Value::Null).await.expect(200);
        psk.calls.session().close().await;
        server.advance(60);
        let now = server.app.now();
        daemons::purge(&mut server.app.store.single().await.unwrap(), now, &daemons::ConnectedDaemons::default()).await.unwrap();
        let anew = official(&server, KeyId::PSK).await;
        assert!(!is_draining(&server, &anew).await && anew.id != psk.id);
    }

    async fn our_daemon_without_the_extension_is_handed_no_more_jobs_either(server: TestServer) {
        let owner = server.owner().await;
        let extensions = Extensions::ALL.without(coder_wire::extension::Extension::Drain);
        let options = JoinOptions { name: "official", extensions, ..JoinOptions::default() };
        let connection = DaemonConnection::open(&server.app, options).await;
        connection.attach(&bytes::Bytes::new(), vec![]).await.unwrap();
        let acquiring = waiting(&connection);
        all_wait(&server, (1, 1)).await;
        server.post(&owner, DRAIN, Value::Null).await.expect(200);
        all_wait(&server, (0, 0)).await;
        let report = coder_wire::extension::messages::SlotsReport { slots: 2, busy: 0, draining: false };
        connection.ext.report_slots(&report).await.unwrap();
        assert!(is_draining(&server, &connection).await, "whatever it reports about itself");
        assert!(!acquiring.is_finished());
    }

    /// A daemon joins while it is drained or undrained: its row was read just before.
    async fn drain_and_undrain_during_a_join_apply(server: TestServer) {
        let owner = server.owner().await;
        let connection = official(&server, KeyId::USER_AUTH).await;
        for drains in [true, false] {
            let join = NewDaemon {
                organization_id: server.app.default_organization,
                name: "official".to_owned(),
                key_id: KeyId::USER_AUTH,
                provisioners: vec!["terraform".to_owned()],
                tags: TagSet::untagged(),
                version: String::new(),
                api_version: protocol::CURRENT.to_string(),
            };
            let session = Session::new(server.app.clone(), connection.id, &join, "http://coder.test".to_owned());
            let heard = session.drain_changes();
            let was_drained = is_draining(&server, &connection).await;
            assert_eq!(was_drained, !drains);
            if drains {
                server.post(&owner, DRAIN, Value::Null).await.expect(200);
            } else {
                server.delete(&owner, DRAIN).await.expect(200);
            }
            session.set_drained(was_drained, heard);
            let (near, far) = tokio::io::duplex(64 << 10);
            server.app.lifecycle.spawn("session", session.run(near));
            let calls = Client::new(mux::Session::client(far, mux::Config::default()));
            let taking = tokio::spawn(async move { calls.acquire(std::future::pending()).await });
            let posted = import(&server, &owner, json!({})).await.1;
            if drains {
                let healthy = Daemon::untagged(&server, "healthy").await;
                healthy.take(posted).await;
                assert!(!taking.is_finished(), "it is drained");
                taking.abort();
                eventually("it has left", || server.app.scheduler.connected().len() == 2).await;
            } else {
                let taken = tokio::time::timeout(WAIT_LIMIT, taking).await.unwrap().unwrap().unwrap();
                assert_eq!(taken.unwrap().job_id, posted.to_string());
            }
        }
    }
}
