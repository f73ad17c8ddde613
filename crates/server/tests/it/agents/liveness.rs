//! When an agent counts as connected, and when its connection ends (agent 2.10).

use coder_server::tasks::agents::Contacts;
use coder_server::tasks::driver::Task;
use coder_wire::messages::coder::agent::v2 as pb;

use super::rig::{Rig, call, refusal};
use crate::harness::{TestServer, on_both_engines};

on_both_engines! {
    async fn status_follows_the_connection(server: TestServer) {
        let rig = Rig::new(server).await;
        let shown = rig.shown().await;
        assert_eq!((&shown["status"], shown.get("first_connected_at")), (&"connecting".into(), None));

        let session = rig.connect().await;
        let shown = rig.shown().await;
        assert_eq!(shown["status"], "connected");
        assert_eq!(shown["first_connected_at"], shown["last_connected_at"]);

        rig.server.advance(5);
        drop(session);
        rig.until_status("disconnected").await;
        let shown = rig.shown().await;
        assert_ne!(shown["disconnected_at"], shown["last_connected_at"]);

        // It comes back at the same instant.
        let _session = rig.connect().await;
        assert_eq!(rig.shown().await["status"], "connected");
    }

    async fn an_agent_without_contact_is_disconnected_and_one_that_never_came_timed_out(server: TestServer) {
        let rig = Rig::new(server).await;
        rig.server.advance(120);
        assert_eq!(rig.shown().await["status"], "connecting");
        rig.server.advance(1);
        let shown = rig.shown().await;
        assert_eq!((&shown["status"], &shown["health"]["healthy"]), (&"timeout".into(), &false.into()));

        let _session = rig.connect().await;
        let connected_at = rig.shown().await["last_connected_at"].clone();
        rig.server.advance(31);
        let shown = rig.shown().await;
        assert_eq!(shown["status"], "disconnected");
        assert_eq!(shown["disconnected_at"], connected_at, "nobody has noted the end");
        let workspace = format!("/api/v2/workspaces/{}", rig.workspace);
        let workspace = rig.server.get(&rig.owner, &workspace).await.expect(200);
        assert_eq!(workspace["health"]["failing_agents"], serde_json::json!([rig.agent]));

        // The task of this process notes that it is still there.
        Contacts.run(&rig.server.app).await.unwrap();
        assert_eq!(rig.shown().await["status"], "connected");
    }

    async fn contacts_of_all_agents_are_one_statement_and_none_without_agents(server: TestServer) {
        let rig = Rig::new(server).await;
        let before = rig.server.app.store.statement_counts();
        Contacts.run(&rig.server.app).await.unwrap();
        assert_eq!(rig.server.app.store.statement_counts(), before);
    }

    async fn a_later_build_ends_the_connection(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        // While the workspace stops, stop scripts run and report.
        let stop = rig.build("stop").await;
        let banner: Result<pb::GetAnnouncementBannersResponse, _> =
            call(&session, "GetAnnouncementBanners", &pb::GetAnnouncementBannersRequest {}).await;
        banner.unwrap();
        rig.server.finish(stop, "").await;
        rig.server.app.events.workspace_changed(rig.workspace);
        session.closed().await;
    }

    async fn a_lost_wake_up_does_not_keep_the_connection_of_an_old_build(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let stop = rig.build("stop").await;
        rig.server.finish(stop, "").await;
        Contacts.run(&rig.server.app).await.unwrap();
        session.closed().await;
    }

    async fn a_second_connection_replaces_the_first(server: TestServer) {
        let rig = Rig::new(server).await;
        let first = rig.connect().await;
        let _second = rig.connect().await;
        first.closed().await;
        // The late end of the first says nothing about the second.
        rig.until_status("connected").await;
        assert_eq!(rig.server.app.agents.agents(), [rig.agent]);
    }

    async fn garbage_ends_its_own_connection_only(server: TestServer) {
        use tokio::io::AsyncWriteExt as _;
        let rig = Rig::new(server).await;
        let good = rig.connect().await;
        // A stream that is not a call.
        let mut stream = good.open().await.unwrap();
        stream.write_all(&[0xff; 4096]).await.unwrap();
        stream.flush().await.unwrap();
        let unknown: Result<(), _> = call(&good, "Nonsense", &()).await;
        assert_eq!(refusal(unknown).code, 12);
        // A request that is not a message of its kind.
        let bad = pb::Startup { version: "\u{7f}".repeat(100), ..Default::default() };
        let bad: Result<pb::Manifest, _> = call(&good, "UpdateStats", &bad).await;
        refusal(bad);
        let banner: Result<pb::GetAnnouncementBannersResponse, _> =
            call(&good, "GetAnnouncementBanners", &pb::GetAnnouncementBannersRequest {}).await;
        banner.unwrap();
    }
}
