//! Built-in daemons: all extensions, and how the next server process ends the jobs of a killed one.

use bytes::Bytes;
use coder_server::Handle;
use coder_store::workspaces::builds;
use coder_wire::extension::messages::{AttachRequest, HoldRequest};
use coder_wire::extension::{self, Extensions};

use super::daemon_process::state;
use super::*;
use crate::harness::{on_both_engines, settings};

fn handle(server: &TestServer) -> Handle {
    Handle { app: server.app.clone(), http: None, https: None, metrics: None }
}

on_both_engines! {
    async fn the_jobs_of_a_killed_server_end_with_its_successor(first: TestServer) {
        let owner = first.owner().await;
        let (template, _) = first.template(&owner, "t").await;
        let (_, build, started) = first.workspace(&owner, template, "w").await;
        let (killed, next) = (handle(&first), first.beside(settings()).await);
        let before = killed.builtin(0);
        let (stream, extensions) = killed.connect_builtin(&before).await.unwrap();
        assert_eq!(extensions, Extensions::ALL);
        let session = mux::Session::client(stream, mux::Config::default());
        let (calls, ext) = (Client::new(session.clone()), extension::Client::new(session));
        ext.attach(&AttachRequest { session: Bytes::new(), jobs: vec![] }).await.unwrap();
        let take = async || calls.acquire(std::future::pending()).await.unwrap().unwrap().job_id;
        assert_eq!(take().await, started.to_string());
        let token = ext.hold(&HoldRequest { job_id: started.to_string() }).await.unwrap().token;
        let posted = import(&first, &owner, json!({})).await.1;
        assert_eq!(take().await, posted.to_string());
        assert!(job(&first, posted).await.session_hash == Some(before.session()));

        // The first process was killed together with its jobs. The next process uses the same directory.
        let heir = handle(&next);
        let after = heir.builtin(0);
        assert_ne!(after.session(), before.session());
        let (stream, _) = heir.connect_builtin(&after).await.unwrap();
        let salvaging = extension::Client::new(mux::Session::client(stream, mux::Config::default()));
        salvaging.attach(&AttachRequest { session: Bytes::new(), jobs: vec![] }).await.unwrap();
        let began = std::time::Instant::now();
        let salvage = async {
            // Only after the jobs without a state have ended.
            until(&next, posted, |job| job.status() == Status::Failed).await;
            assert!(began.elapsed() < Duration::from_secs(3), "at once: {:?}", began.elapsed());
            assert!(salvaging.salvage(&state(started, &token, "a", 7)).await.unwrap().kept);
        };
        let former = [before.session()];
        let (ended, ()) = tokio::join!(heir.end_builtin_jobs(&former), salvage);
        ended.unwrap();
        for id in [started, posted] {
            let lost = job(&next, id).await;
            assert!(lost.error.starts_with("daemon lost"), "{}", lost.error);
        }
        let mut tx = next.app.store.reader().await.unwrap();
        let kept = builds::find_state(&mut tx, build.parse().unwrap()).await.unwrap().unwrap();
        assert!(String::from_utf8(kept).unwrap().contains(r#""serial":7"#));
    }
}
