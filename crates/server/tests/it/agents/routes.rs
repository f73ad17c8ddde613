//! What users and agents see over HTTP.

use axum::body::Body;
use coder_api::paths;
use coder_server::tasks::agents::AgentReports;
use coder_server::tasks::driver::Task;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::workspace_agent_metadata::Result as MetadataResult;
use futures_util::StreamExt;
use http::Request;
use serde_json::{Value, json};
use uuid::Uuid;

use super::rig::{Rig, call};
use crate::harness::{TestServer, on_both_engines};

/// The events of a stream, in the exact form that official clients read.
struct Events(axum::body::BodyDataStream, String);

impl Events {
    async fn open(server: &TestServer, token: &str, path: &str) -> Self {
        let request = Request::get(path).header("Coder-Session-Token", token).body(Body::empty()).unwrap();
        let response = server.open(request).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-cache");
        Self(response.into_body().into_data_stream(), String::new())
    }

    /// The next event; none at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((frame, rest)) = self.1.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.1 = rest;
                let mut lines = frame.lines();
                let kind = lines.next().unwrap().strip_prefix("event: ").unwrap().to_owned();
                let data = lines.next().map(|line| line.strip_prefix("data: ").unwrap());
                assert_eq!(lines.next(), None, "one line of data");
                return Some((kind, data.map_or(Value::Null, |data| serde_json::from_str(data).unwrap())));
            }
            let bytes = self.0.next().await?.unwrap();
            self.1.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    async fn data(&mut self) -> Value {
        loop {
            match self.next().await.unwrap() {
                (kind, data) if kind == "data" => return data,
                (kind, _) => assert_eq!(kind, "ping"),
            }
        }
    }
}

on_both_engines! {
    async fn a_watcher_of_a_workspace_sees_its_agent_connect_and_its_end(server: TestServer) {
        let rig = Rig::new(server).await;
        let path = paths::workspace_watch(rig.workspace);
        let mut events = Events::open(&rig.server, &rig.owner, &path).await;
        assert_eq!(events.next().await.unwrap().0, "ping", "the official server sends one at once");
        let status = |workspace: &Value| workspace["latest_build"]["resources"][0]["agents"][0]["status"].clone();
        assert_eq!(status(&events.data().await), "connecting");
        let _session = rig.connect().await;
        assert_eq!(status(&events.data().await), "connected");
        rig.server.execute("update workspaces set deleted = true").await;
        rig.server.app.events.workspace_changed(rig.workspace);
        while events.next().await.is_some() {}
    }

    async fn a_watcher_of_metadata_sees_new_values(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let mut events = Events::open(&rig.server, &rig.owner, &paths::agent_watch_metadata(rig.agent)).await;
        let first = events.data().await;
        assert_eq!(first[0]["description"]["key"], "cpu");
        assert_eq!(first[0]["result"]["collected_at"], "0001-01-01T00:00:00Z");
        let result = MetadataResult { value: "7%".to_owned(), ..Default::default() };
        let metadata = vec![pb::Metadata { key: "cpu".to_owned(), result: Some(result) }];
        let request = pb::BatchUpdateMetadataRequest { metadata };
        let _: pb::BatchUpdateMetadataResponse = call(&session, "BatchUpdateMetadata", &request).await.unwrap();
        AgentReports.run(&rig.server.app).await.unwrap();
        assert_eq!(events.data().await[0]["result"]["value"], "7%");
    }

    async fn what_is_watched_ends_with_the_session(server: TestServer) {
        let rig = Rig::new(server).await;
        for path in [paths::workspace_watch(rig.workspace), paths::agent_watch_metadata(rig.agent)] {
            let session = rig.server.login("admin@example.com").await;
            let mut events = Events::open(&rig.server, &session, &path).await;
            events.data().await;
            rig.server.post(&session, "/api/v2/users/logout", json!({})).await.expect(200);
            while events.next().await.is_some() {}
        }
        // A watcher who may have lost rights begins again.
        let mut events = Events::open(&rig.server, &rig.owner, &paths::workspace_watch(rig.workspace)).await;
        events.data().await;
        let user = rig.server.user_id(&rig.owner).await;
        coder_server::network::revoke::users(&rig.server.app, &[user]).await.unwrap();
        while events.next().await.is_some() {}
    }

    async fn programs_beside_the_agent_add_lines_and_sources(server: TestServer) {
        let rig = Rig::new(server).await;
        let source = Uuid::new_v4();
        let body = json!({ "id": source, "display_name": "envbuilder", "icon": "/icon/docker.svg" });
        for _ in 0..2 {
            let made = rig.server.post(&rig.token, paths::AGENT_LOG_SOURCE, body.clone()).await.expect(201);
            assert_eq!(made["display_name"], "envbuilder");
        }
        let lines = |source: Uuid| {
            let line = json!({ "created_at": "2020-01-01T00:00:00Z", "output": "built", "level": "debug" });
            json!({ "log_source_id": source, "logs": [line] })
        };
        rig.server.patch(&rig.token, paths::AGENT_OWN_LOGS, lines(source)).await.expect(200);
        let unknown = rig.server.patch(&rig.token, paths::AGENT_OWN_LOGS, lines(Uuid::new_v4())).await;
        assert_eq!(unknown.refused(400), "log_source_id");
        let shown = rig.server.get(&rig.owner, &paths::agent_logs(rig.agent)).await.expect(200);
        assert_eq!((&shown[0]["output"], &shown[0]["level"]), (&"built".into(), &"debug".into()));
        assert_ne!(shown[0]["created_at"], "2020-01-01T00:00:00Z", "the server sets its own time");
        let long = json!({ "logs": [{ "output": "x".repeat(1 << 20) }, { "output": "y" }] });
        rig.server.patch(&rig.token, paths::AGENT_OWN_LOGS, long).await.expect(413);
    }

    async fn ports_are_shared_within_the_template_s_limit(server: TestServer) {
        let rig = Rig::new(server).await;
        let path = paths::workspace_port_share(rig.workspace);
        let share = |port: i64, level: &str, protocol: &str, agent: &str| {
            json!({ "agent_name": agent, "port": port, "share_level": level, "protocol": protocol })
        };
        for (body, field) in [
            (share(8, "public", "http", "main"), "port"),
            (share(65536, "public", "http", "main"), "port"),
            (share(8080, "everyone", "http", "main"), "share_level"),
            (share(8080, "owner", "http", "main"), "share_level"),
            (share(8080, "public", "gopher", "main"), "protocol"),
            (share(8080, "public", "http", "other"), "agent_name"),
        ] {
            assert_eq!(rig.server.post(&rig.owner, &path, body).await.refused(400), field);
        }
        rig.server.post(&rig.owner, &path, share(8080, "public", "http", "main")).await.expect(200);
        rig.server.post(&rig.owner, &path, share(8080, "organization", "https", "main")).await.expect(200);
        let shares = rig.server.get(&rig.owner, &path).await.expect(200);
        assert_eq!(shares["shares"].as_array().unwrap().len(), 1);
        assert_eq!(shares["shares"][0]["share_level"], "organization");
        let template = paths::template(rig.template);
        rig.server.patch(&rig.owner, &template, json!({ "max_port_share_level": "organization" })).await;
        let refused = rig.server.post(&rig.owner, &path, share(8081, "public", "http", "main")).await;
        assert_eq!(refused.refused(400), "share_level");
        let end = json!({ "agent_name": "main", "port": 8080 });
        rig.server.ask(&rig.owner, http::Method::DELETE, &path, end.clone()).await.expect(204);
        rig.server.ask(&rig.owner, http::Method::DELETE, &path, end).await.expect(404);
    }

    async fn a_new_git_key_reaches_the_agent(server: TestServer) {
        let rig = Rig::new(server).await;
        let first = rig.server.get(&rig.owner, "/api/v2/users/me/gitsshkey").await.expect(200);
        let pair = rig.server.get(&rig.token, paths::AGENT_GIT_SSH_KEY).await.expect(200);
        assert_eq!(pair["public_key"], first["public_key"]);
        assert!(pair["private_key"].as_str().unwrap().starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"));
        let second = rig.server.put(&rig.owner, "/api/v2/users/me/gitsshkey", json!({})).await.expect(200);
        assert_ne!(second["public_key"], first["public_key"]);
        assert!(second.get("private_key").is_none());
        let pair = rig.server.get(&rig.token, paths::AGENT_GIT_SSH_KEY).await.expect(200);
        assert_eq!(pair["public_key"], second["public_key"]);
    }

    async fn containers_need_a_connected_agent(server: TestServer) {
        let rig = Rig::new(server).await;
        let path = paths::agent_containers(rig.agent);
        rig.server.get(&rig.owner, &path).await.expect(400);
        let _session = rig.connect().await;
        let found = rig.server.get(&rig.owner, &path).await.expect(200);
        assert_eq!(found, json!({ "devcontainers": [], "containers": [] }));
    }
}

#[tokio::test]
async fn host_names_and_options_for_plain_ssh_are_those_of_the_settings() {
    let mut config = crate::harness::settings();
    config.ssh.hostname_prefix = "work-".to_owned();
    config.ssh.hostname_suffix = "work".to_owned();
    config.ssh.config_options.insert("ForwardAgent".to_owned(), "yes".to_owned());
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let ssh = server.get(&owner, "/api/v2/deployment/ssh").await.expect(200);
    let want = json!({ "hostname_prefix": "work-", "hostname_suffix": "work", "ssh_config_options": { "ForwardAgent": "yes" } });
    assert_eq!(ssh, want);
    let connection = server.get(&owner, "/api/v2/workspaceagents/connection").await.expect(200);
    assert_eq!(connection["hostname_suffix"], "work");
}
