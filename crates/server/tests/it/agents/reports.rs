//! What agents report, and what is kept of it (agent 2.2 to 2.9).

use coder_domain::agent::{MAX_METADATA_BYTES, MAX_METADATA_CALL_BYTES};
use coder_server::tasks::agents::AgentReports;
use coder_server::tasks::driver::Task;
use coder_store::workspaces::{agent_logs, agent_reports};
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::batch_update_app_health_request::HealthUpdate;
use coder_wire::messages::coder::agent::v2::workspace_agent_metadata::Result as MetadataResult;
use serde_json::json;
use uuid::Uuid;

use super::rig::{Rig, call, refusal};
use crate::harness::{START, TestServer, on_both_engines};

fn bytes(id: Uuid) -> Vec<u8> {
    id.as_bytes().to_vec()
}

fn log(output: &str, level: i32) -> pb::Log {
    pb::Log { created_at: None, output: output.to_owned(), level }
}

fn value(key: &str, value: &str) -> pb::Metadata {
    let result = MetadataResult { value: value.to_owned(), ..Default::default() };
    pb::Metadata { key: key.to_owned(), result: Some(result) }
}

on_both_engines! {
    async fn the_manifest_is_what_the_template_says(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let manifest: pb::Manifest = call(&session, "GetManifest", &pb::GetManifestRequest {}).await.unwrap();
        assert_eq!(manifest.agent_id, bytes(rig.agent.0));
        assert_eq!(manifest.workspace_id, bytes(rig.workspace.0));
        let names = (manifest.agent_name, manifest.workspace_name, manifest.owner_username);
        assert_eq!(names, ("main".to_owned(), "w".to_owned(), "admin".to_owned()));
        assert_eq!((manifest.directory.as_str(), manifest.parent_id), ("/home/coder", None));
        assert_eq!(manifest.environment_variables, [("KEY".to_owned(), "value".to_owned())].into());
        // Official agents refuse a manifest without these.
        assert!(manifest.derp_map.unwrap().home_params.is_some());
        let app = &manifest.apps[0];
        assert!(app.healthcheck.is_some() && app.sharing_level != 0 && app.health != 0);
        let script = &manifest.scripts[0];
        assert_eq!((&script.id, &script.log_source_id), (&bytes(rig.script.id.0), &bytes(rig.script.log_source_id.0)));
        assert_eq!(script.timeout.unwrap().seconds, 60);
        // Seconds in the place of nanoseconds.
        let interval = manifest.metadata[0].interval.unwrap();
        assert_eq!((interval.seconds, interval.nanos), (0, 10));
    }

    async fn startup_and_lifecycle_are_shown(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let startup = |version: &str, subsystems: &[i32]| pb::UpdateStartupRequest {
            startup: Some(pb::Startup {
                version: version.to_owned(),
                expanded_directory: "/home/coder".to_owned(),
                subsystems: subsystems.to_vec(),
            }),
        };
        for bad in [startup("2.30.0", &[]), startup("v2.30.0", &[0]), startup("v2.30.0", &[9]), pb::UpdateStartupRequest::default()] {
            refusal(call::<pb::Startup>(&session, "UpdateStartup", &bad).await);
        }
        let echo: pb::Startup = call(&session, "UpdateStartup", &startup("v2.30.0", &[2, 1, 2])).await.unwrap();
        assert_eq!(echo.subsystems, [2, 1, 2]);
        let shown = rig.shown().await;
        assert_eq!((&shown["version"], &shown["api_version"]), (&"v2.30.0".into(), &"2.7".into()));
        assert_eq!(shown["subsystems"], json!(["envbox", "envbuilder"]));

        let change = |state: i32, seconds: i64| pb::UpdateLifecycleRequest {
            lifecycle: Some(pb::Lifecycle {
                state,
                changed_at: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            }),
        };
        let now = START.as_second();
        for bad in [change(0, now), change(10, now), change(-1, now), pb::UpdateLifecycleRequest::default()] {
            refusal(call::<pb::Lifecycle>(&session, "UpdateLifecycle", &bad).await);
        }
        // The zero time of Go becomes the server's.
        let echo: pb::Lifecycle = call(&session, "UpdateLifecycle", &change(2, -62_135_596_800)).await.unwrap();
        assert_eq!(echo.changed_at.unwrap().seconds, now);
        let shown = rig.shown().await;
        assert_eq!((&shown["lifecycle_state"], shown.get("ready_at")), (&"starting".into(), None));
        let _: pb::Lifecycle = call(&session, "UpdateLifecycle", &change(4, now + 7)).await.unwrap();
        let shown = rig.shown().await;
        assert_eq!((&shown["lifecycle_state"], &shown["health"]["healthy"]), (&"start_error".into(), &false.into()));
        assert!(shown["ready_at"].as_str() > shown["started_at"].as_str(), "{shown}");
        // A reconnect reports all states again.
        let _: pb::Lifecycle = call(&session, "UpdateLifecycle", &change(2, now + 9)).await.unwrap();
        assert_eq!(rig.shown().await.get("ready_at"), None);
    }

    async fn logs_are_kept_up_to_a_limit(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let send = async |source: Uuid, logs: Vec<pb::Log>| {
            let request = pb::BatchCreateLogsRequest { log_source_id: bytes(source), logs };
            call::<pb::BatchCreateLogsResponse>(&session, "BatchCreateLogs", &request).await
        };
        let own = rig.script.log_source_id.0;
        refusal(send(Uuid::new_v4(), vec![log("x", 3)]).await);
        assert!(!send(own, vec![log("one", 3), log("two", 5), log(&"ä".repeat(5000), 99)]).await.unwrap().log_limit_exceeded);
        assert!(!send(Uuid::nil(), vec![log("outside", 4)]).await.unwrap().log_limit_exceeded);
        let path = format!("/api/v2/workspaceagents/{}/logs", rig.agent);
        let lines = rig.server.get(&rig.owner, &path).await.expect(200);
        let text = |index: usize| (lines[index]["output"].as_str().unwrap(), lines[index]["level"].as_str().unwrap());
        assert_eq!((text(0), text(1)), (("one", "info"), ("two", "error")));
        assert_eq!(lines.as_array().unwrap().len(), 6, "the long line is split");
        assert_eq!(text(5), ("outside", "warn"));
        assert_eq!(lines[0]["source_id"], json!(own));
        let rest = rig.server.get(&rig.owner, &format!("{path}?after=5")).await.expect(200);
        assert_eq!(rest.as_array().unwrap().len(), 1);
        let sources = rig.shown().await["log_sources"].clone();
        assert_eq!(sources[1]["display_name"], "External");

        // A flood fills the log and no more; the agent is told to stop.
        let batch = || vec![log(&"x".repeat(4000), 3); 100];
        assert!(!send(own, batch()).await.unwrap().log_limit_exceeded);
        assert!(!send(own, batch()).await.unwrap().log_limit_exceeded);
        assert!(send(own, batch()).await.unwrap().log_limit_exceeded);
        let statements = rig.server.app.store.statement_counts();
        assert!(send(own, vec![log("small", 3)]).await.unwrap().log_limit_exceeded);
        assert_eq!(rig.server.app.store.statement_counts(), statements, "nobody asks the database again");
        let shown = rig.shown().await;
        assert_eq!(shown["logs_overflowed"], true);
        assert!(shown["logs_length"].as_i64().unwrap() <= agent_logs::MAX_BYTES);
        let many = rig.server.get(&rig.owner, &path).await.expect(200);
        assert_eq!(many.as_array().unwrap().len(), 206);
    }

    async fn lines_without_end_are_no_way_around_the_limit(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let request = pb::BatchCreateLogsRequest {
            log_source_id: bytes(rig.script.log_source_id.0),
            logs: vec![log("", 3); usize::try_from(agent_logs::MAX_LINES).unwrap() + 1],
        };
        let sent: pb::BatchCreateLogsResponse = call(&session, "BatchCreateLogs", &request).await.unwrap();
        assert!(sent.log_limit_exceeded);
    }

    async fn metadata_is_bounded_and_written_for_all_agents_at_once(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let send = async |metadata: Vec<pb::Metadata>| {
            let request = pb::BatchUpdateMetadataRequest { metadata };
            call::<pb::BatchUpdateMetadataResponse>(&session, "BatchUpdateMetadata", &request).await
        };
        // On Postgres the first check of the build may still be under way.
        let counts = || (!rig.server.app.store.is_postgres()).then(|| rig.server.app.store.statement_counts());
        let statements = counts();
        for number in 0..50 {
            send(vec![value("cpu", &number.to_string()), value("unknown", "x")]).await.unwrap();
        }
        assert_eq!(counts(), statements, "nothing is written yet");
        AgentReports.run(&rig.server.app).await.unwrap();
        let stored = async || {
            let mut tx = rig.server.app.store.reader().await.unwrap();
            agent_reports::list_metadata(&mut tx, rig.agent).await.unwrap()
        };
        let found = stored().await;
        assert_eq!(found.len(), 1, "unknown keys are ignored");
        assert_eq!((found[0].value.as_str(), found[0].collected_at), ("49", START));

        send(vec![value("cpu", &"v".repeat(MAX_METADATA_BYTES + 1))]).await.unwrap();
        AgentReports.run(&rig.server.app).await.unwrap();
        let found = stored().await;
        assert_eq!(found[0].value.len(), MAX_METADATA_BYTES);
        assert!(found[0].error.contains("2049"), "{}", found[0].error);

        let long = "k".repeat(MAX_METADATA_CALL_BYTES);
        refusal(send(vec![value("cpu", "kept"), value(&long, "x"), value("cpu", "lost")]).await);
        AgentReports.run(&rig.server.app).await.unwrap();
        assert_eq!(stored().await[0].value, "kept");
    }

    async fn app_health_is_checked_and_shown(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let send = async |id: Vec<u8>, health: i32| {
            let request = pb::BatchUpdateAppHealthRequest { updates: vec![HealthUpdate { id, health }] };
            call::<pb::BatchUpdateAppHealthResponse>(&session, "BatchUpdateAppHealths", &request).await
        };
        send(bytes(rig.app.0), 4).await.unwrap();
        assert_eq!(rig.shown().await["apps"][0]["health"], "unhealthy");
        refusal(send(bytes(Uuid::new_v4()), 3).await);
        refusal(send(vec![1, 2, 3], 3).await);
        refusal(send(bytes(rig.app.0), 0).await);
        refusal(send(bytes(rig.app.0), 9).await);
        assert_eq!(rig.shown().await["apps"][0]["health"], "unhealthy");
        send(bytes(rig.app.0), 3).await.unwrap();
        assert_eq!(rig.shown().await["apps"][0]["health"], "healthy");
        let _: pb::BatchUpdateAppHealthResponse =
            call(&session, "BatchUpdateAppHealths", &pb::BatchUpdateAppHealthRequest::default()).await.unwrap();
    }

    async fn stats_with_connections_mark_the_workspace_as_used(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let send = async |stats: Option<pb::Stats>| {
            let request = pb::UpdateStatsRequest { stats };
            let answer: pb::UpdateStatsResponse = call(&session, "UpdateStats", &request).await.unwrap();
            assert!(answer.report_interval.unwrap().seconds > 0);
        };
        let used_at = async || {
            AgentReports.run(&rig.server.app).await.unwrap();
            let path = format!("/api/v2/workspaces/{}", rig.workspace);
            rig.server.get(&rig.owner, &path).await.expect(200)["last_used_at"].clone()
        };
        let before = used_at().await;
        rig.server.advance(60);
        send(None).await;
        send(Some(pb::Stats { session_count_ssh: 3, session_count_vscode: -5, ..Default::default() })).await;
        assert_eq!(used_at().await, before, "nobody is connected");
        let sessions = rig.server.app.agents.sessions();
        assert_eq!((sessions.ssh, sessions.vscode), (3, 0));
        send(Some(pb::Stats { connection_count: 1, ..Default::default() })).await;
        assert_ne!(used_at().await, before);
        let (path, later) = (format!("/api/v2/workspaces/{}/usage", rig.workspace), used_at().await);
        rig.server.advance(60);
        let refused = rig.server.post(&rig.owner, &path, json!({ "app_name": "ssh" })).await;
        assert_eq!(refused.refused(400), "agent_id");
        let body = json!({ "agent_id": rig.agent, "app_name": "telnet" });
        assert_eq!(rig.server.post(&rig.owner, &path, body).await.refused(400), "app_name");
        let body = json!({ "agent_id": Uuid::new_v4(), "app_name": "ssh" });
        assert_eq!(rig.server.post(&rig.owner, &path, body).await.refused(400), "agent_id");
        assert_eq!(used_at().await, later);
        let body = json!({ "agent_id": rig.agent, "app_name": "ssh" });
        rig.server.post(&rig.owner, &path, body).await.expect(204);
        assert_ne!(used_at().await, later);
    }

    async fn scripts_and_connections_end_in_the_timings_and_the_log(server: TestServer) {
        let rig = Rig::new(server).await;
        rig.server.advance(3);
        let session = rig.connect().await;
        let at = |seconds: i64| Some(prost_types::Timestamp { seconds: START.as_second() + seconds, nanos: 0 });
        let good = pb::Timing { script_id: bytes(rig.script.id.0), start: at(1), end: at(5), exit_code: 2, stage: 0, status: 1 };
        let send = async |timing: Option<pb::Timing>| {
            let request = pb::WorkspaceAgentScriptCompletedRequest { timing };
            call::<pb::WorkspaceAgentScriptCompletedResponse>(&session, "ScriptCompleted", &request).await
        };
        for bad in [
            pb::Timing { script_id: bytes(Uuid::new_v4()), ..good.clone() },
            pb::Timing { start: at(6), ..good.clone() },
            pb::Timing { end: None, ..good.clone() },
            pb::Timing { stage: 7, ..good.clone() },
            pb::Timing { status: 7, ..good.clone() },
        ] {
            refusal(send(Some(bad)).await);
        }
        refusal(send(None).await);
        send(Some(good.clone())).await.unwrap();
        send(Some(pb::Timing { end: at(6), ..good })).await.unwrap();
        let path = format!("/api/v2/workspaces/{}/timings", rig.workspace);
        let timings = rig.server.get(&rig.owner, &path).await.expect(200);
        let script = &timings["agent_script_timings"][0];
        assert_eq!((&script["status"], &script["exit_code"]), (&"exit_failure".into(), &2.into()));
        assert_eq!(timings["agent_script_timings"].as_array().unwrap().len(), 1, "the newest run");
        assert_eq!(timings["agent_connection_timings"][0]["stage"], "connect");

        let id = Uuid::new_v4();
        let report = async |action: i32, kind: i32, ip: &str| {
            let connection = pb::Connection {
                id: bytes(id),
                action,
                r#type: kind,
                timestamp: at(10),
                ip: ip.to_owned(),
                status_code: 130,
                reason: Some("gone".to_owned()),
            };
            let request = pb::ReportConnectionRequest { connection: Some(connection) };
            call::<()>(&session, "ReportConnection", &request).await
        };
        refusal(report(0, 1, "").await);
        refusal(report(1, 0, "").await);
        refusal(report(1, 1, &"1".repeat(100)).await);
        report(1, 1, "localhost").await.unwrap();
        report(2, 1, "localhost").await.unwrap();
        let log = rig.server.get(&rig.owner, "/api/v2/connectionlog").await.expect(200);
        assert_eq!((&log["count"], log["connection_logs"].as_array().unwrap().len()), (&1.into(), 1));
        let entry = &log["connection_logs"][0];
        assert_eq!((&entry["type"], &entry["ip"], &entry["agent_name"]), (&"ssh".into(), &"127.0.0.1".into(), &"main".into()));
        assert_eq!(entry["workspace_id"], rig.workspace.to_string());
        let session = &entry["ssh_info"];
        assert_eq!((&session["exit_code"], &session["disconnect_reason"]), (&130.into(), &"gone".into()));
        assert!(session["disconnect_time"].is_string() && session["connection_id"] == id.to_string());
        let start = START.to_string();
        for (q, want) in [
            ("type:ssh status:completed workspace_owner:admin organization:coder".to_owned(), 1),
            (format!("workspace_id:{} connection_id:{id}", rig.workspace), 1),
            (format!("connected_after:\"{start}\""), 1),
            (format!("connected_before:\"{start}\""), 0),
            ("type:vscode".to_owned(), 0),
            ("status:ongoing".to_owned(), 0),
            (format!("workspace_id:{id}"), 0),
        ] {
            let path = format!("/api/v2/connectionlog?q={}", q.replace('"', "%22").replace(' ', "%20"));
            let found = rig.server.get(&rig.owner, &path).await.expect(200);
            assert_eq!(found["count"], want, "{q}: {found}");
        }
        for q in ["status:gone", "color:red", "connected_after:noon", "connection_id:1"] {
            rig.server.get(&rig.owner, &format!("/api/v2/connectionlog?q={q}")).await.expect(400);
        }
        let member = rig.server.user(&rig.owner, "member", &[]).await;
        rig.server.get(&member, "/api/v2/connectionlog").await.expect(403);
    }

    async fn monitors_have_numbers_above_zero(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let request = pb::GetResourcesMonitoringConfigurationRequest {};
        let found: pb::GetResourcesMonitoringConfigurationResponse =
            call(&session, "GetResourcesMonitoringConfiguration", &request).await.unwrap();
        let config = found.config.unwrap();
        assert!(config.num_datapoints > 0 && config.collection_interval_seconds > 0);
        let request = pb::PushResourcesMonitoringUsageRequest::default();
        let _: pb::PushResourcesMonitoringUsageResponse =
            call(&session, "PushResourcesMonitoringUsage", &request).await.unwrap();
    }

    async fn sub_agents_come_and_go_with_their_tokens(server: TestServer) {
        let rig = Rig::new(server).await;
        let session = rig.connect().await;
        let create = async |name: &str| {
            let app = |slug: &str| pb::create_sub_agent_request::App { slug: slug.to_owned(), ..Default::default() };
            let request = pb::CreateSubAgentRequest {
                name: name.to_owned(),
                apps: vec![app("docs"), app("Bad Slug"), app("docs")],
                ..Default::default()
            };
            call::<pb::CreateSubAgentResponse>(&session, "CreateSubAgent", &request).await
        };
        refusal(create("not a name").await);
        let made = create("inner").await.unwrap();
        let errors: Vec<_> = made.app_creation_errors.iter().map(|error| error.index).collect();
        assert_eq!(errors, [1, 2]);
        refusal(create("Inner").await);
        let made = made.agent.unwrap();
        let token = Uuid::from_slice(&made.auth_token).unwrap().to_string();
        let child = rig.open(&token).await;
        let manifest: pb::Manifest = call(&child, "GetManifest", &pb::GetManifestRequest {}).await.unwrap();
        assert_eq!(manifest.parent_id, Some(bytes(rig.agent.0)));
        assert_eq!(manifest.apps.len(), 1);
        let nested = pb::CreateSubAgentRequest { name: "deeper".to_owned(), ..Default::default() };
        refusal(call::<pb::CreateSubAgentResponse>(&child, "CreateSubAgent", &nested).await);
        let listed: pb::ListSubAgentsResponse =
            call(&session, "ListSubAgents", &pb::ListSubAgentsRequest {}).await.unwrap();
        assert_eq!(listed.agents.len(), 1);
        // An agent removes its own only.
        refusal(call::<pb::DeleteSubAgentResponse>(&session, "DeleteSubAgent", &pb::DeleteSubAgentRequest { id: bytes(rig.agent.0) }).await);
        let request = pb::DeleteSubAgentRequest { id: made.id };
        let _: pb::DeleteSubAgentResponse = call(&session, "DeleteSubAgent", &request).await.unwrap();
        child.closed().await;
        assert_eq!(rig.server.get(&token, coder_api::paths::AGENT_GIT_SSH_KEY).await.status, 401);
    }
}
