//! The bytes of the Agent service's messages, written by hand from the numbers of their fields (agent 2.3). Official modules with
//! these messages cannot be had.

use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::tailnet::v2::DerpMap;
use prost::Message;
use prost_types::{Duration, Timestamp};

fn key(number: u32, kind: u32) -> Vec<u8> {
    let key = number << 3 | kind;
    match u8::try_from(key) {
        Ok(key) if key < 0x80 => vec![key],
        _ => vec![u8::try_from(key & 0x7f).unwrap() | 0x80, u8::try_from(key >> 7).unwrap()],
    }
}

/// A field with a length.
fn bytes(number: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 0x80);
    [&key(number, 2)[..], &[length], content].concat()
}

/// A field with a small number.
fn int(number: u32, value: u8) -> Vec<u8> {
    [&key(number, 0)[..], &[value]].concat()
}

/// A field with a double.
fn double(number: u32, value: f64) -> Vec<u8> {
    [&key(number, 1)[..], &value.to_le_bytes()].concat()
}

#[track_caller]
fn check<M: Message + Default + PartialEq>(message: &M, expected: &[Vec<u8>]) {
    assert_eq!(message.encode_to_vec(), expected.concat());
    assert!(M::decode(&*expected.concat()).unwrap() == *message);
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

#[test]
fn app_and_script() {
    use pb::workspace_app::{Health, Healthcheck, SharingLevel};
    let app = pb::WorkspaceApp {
        id: b"i".to_vec(),
        url: text("u"),
        external: true,
        slug: text("s"),
        display_name: text("d"),
        command: text("c"),
        icon: text("o"),
        subdomain: true,
        subdomain_name: text("n"),
        sharing_level: SharingLevel::Organization.into(),
        healthcheck: Some(Healthcheck { url: text("h"), interval: seconds(5), threshold: 6 }),
        health: Health::Unhealthy.into(),
        hidden: true,
    };
    let health = [bytes(1, "h"), bytes(2, int(1, 5)), int(3, 6)].concat();
    let expected = [
        bytes(1, "i"),
        bytes(2, "u"),
        int(3, 1),
        bytes(4, "s"),
        bytes(5, "d"),
        bytes(6, "c"),
        bytes(7, "o"),
        int(8, 1),
        bytes(9, "n"),
        int(10, 4),
        bytes(11, health),
        int(12, 4),
        int(13, 1),
    ];
    check(&app, &expected);
    let script = pb::WorkspaceAgentScript {
        log_source_id: b"l".to_vec(),
        log_path: text("p"),
        script: text("s"),
        cron: text("c"),
        run_on_start: true,
        run_on_stop: true,
        start_blocks_login: true,
        timeout: seconds(8),
        display_name: text("d"),
        id: b"i".to_vec(),
    };
    let expected = [
        bytes(1, "l"),
        bytes(2, "p"),
        bytes(3, "s"),
        bytes(4, "c"),
        int(5, 1),
        int(6, 1),
        int(7, 1),
        bytes(8, int(1, 8)),
        bytes(9, "d"),
        bytes(10, "i"),
    ];
    check(&script, &expected);
}

#[test]
fn manifest() {
    let manifest = pb::Manifest {
        agent_id: b"a".to_vec(),
        git_auth_configs: 2,
        environment_variables: [(text("k"), text("v"))].into(),
        directory: text("d"),
        vs_code_port_proxy_uri: text("u"),
        motd_path: text("m"),
        disable_direct_connections: true,
        derp_force_websockets: true,
        derp_map: Some(DerpMap::default()),
        scripts: vec![pb::WorkspaceAgentScript::default()],
        apps: vec![pb::WorkspaceApp::default()],
        metadata: vec![pb::workspace_agent_metadata::Description {
            display_name: text("n"),
            key: text("k"),
            script: text("s"),
            interval: Some(Duration { seconds: 0, nanos: 10 }),
            timeout: Some(Duration { seconds: 0, nanos: 11 }),
        }],
        owner_username: text("o"),
        workspace_id: b"w".to_vec(),
        agent_name: text("g"),
        workspace_name: text("x"),
        devcontainers: vec![pb::WorkspaceAgentDevcontainer {
            id: b"i".to_vec(),
            workspace_folder: text("f"),
            config_path: text("c"),
            name: text("n"),
        }],
        parent_id: Some(b"p".to_vec()),
    };
    let description =
        [bytes(1, "n"), bytes(2, "k"), bytes(3, "s"), bytes(4, int(2, 10)), bytes(5, int(2, 11))];
    let expected = [
        bytes(1, "a"),
        int(2, 2),
        bytes(3, [bytes(1, "k"), bytes(2, "v")].concat()),
        bytes(4, "d"),
        bytes(5, "u"),
        bytes(6, "m"),
        int(7, 1),
        int(8, 1),
        bytes(9, ""),
        bytes(10, ""),
        bytes(11, ""),
        bytes(12, description.concat()),
        bytes(13, "o"),
        bytes(14, "w"),
        bytes(15, "g"),
        bytes(16, "x"),
        bytes(17, [bytes(1, "i"), bytes(2, "f"), bytes(3, "c"), bytes(4, "n")].concat()),
        bytes(18, "p"),
    ];
    check(&manifest, &expected);
}

#[test]
fn stats() {
    use pb::stats::Metric;
    use pb::stats::metric::{Label, Type};
    let stats = pb::Stats {
        connections_by_proto: [(text("TCP"), 1)].into(),
        connection_count: 2,
        connection_median_latency_ms: 0.5,
        rx_packets: 4,
        rx_bytes: 5,
        tx_packets: 6,
        tx_bytes: 7,
        session_count_vscode: 8,
        session_count_jetbrains: 9,
        session_count_reconnecting_pty: 10,
        session_count_ssh: 11,
        metrics: vec![Metric {
            name: text("n"),
            r#type: Type::Gauge.into(),
            value: 1.5,
            labels: vec![Label { name: text("l"), value: text("v") }],
        }],
    };
    let metric =
        [bytes(1, "n"), int(2, 2), double(3, 1.5), bytes(4, [bytes(1, "l"), bytes(2, "v")].concat())];
    let expected = [
        bytes(1, [bytes(1, "TCP"), int(2, 1)].concat()),
        int(2, 2),
        double(3, 0.5),
        int(4, 4),
        int(5, 5),
        int(6, 6),
        int(7, 7),
        int(8, 8),
        int(9, 9),
        int(10, 10),
        int(11, 11),
        bytes(12, metric.concat()),
    ];
    check(&stats, &expected);
    check(&pb::UpdateStatsRequest { stats: Some(pb::Stats::default()) }, &[bytes(1, "")]);
    check(&pb::UpdateStatsResponse { report_interval: seconds(30) }, &[bytes(1, int(1, 30))]);
}

#[test]
fn reports() {
    let startup = pb::Startup { version: text("v1"), expanded_directory: text("/"), subsystems: vec![1, 3] };
    check(&startup, &[bytes(1, "v1"), bytes(2, "/"), bytes(3, [1, 3])]);
    check(
        &pb::UpdateStartupRequest { startup: Some(startup) },
        &[bytes(1, [bytes(1, "v1"), bytes(2, "/"), bytes(3, [1, 3])].concat())],
    );
    let lifecycle = pb::Lifecycle { state: pb::lifecycle::State::Off.into(), changed_at: at(7) };
    let written = [int(1, 9), bytes(2, int(1, 7))];
    check(&lifecycle, &written);
    check(&pb::UpdateLifecycleRequest { lifecycle: Some(lifecycle) }, &[bytes(1, written.concat())]);
    let log = pb::Log { created_at: at(1), output: text("o"), level: pb::log::Level::Error.into() };
    let batch = pb::BatchCreateLogsRequest { log_source_id: b"s".to_vec(), logs: vec![log] };
    check(&batch, &[bytes(1, "s"), bytes(2, [bytes(1, int(1, 1)), bytes(2, "o"), int(3, 5)].concat())]);
    check(&pb::BatchCreateLogsResponse { log_limit_exceeded: true }, &[int(1, 1)]);
    let result = pb::workspace_agent_metadata::Result {
        collected_at: at(1),
        age: 2,
        value: text("v"),
        error: text("e"),
    };
    let metadata = pb::Metadata { key: text("k"), result: Some(result) };
    let written = [bytes(1, int(1, 1)), int(2, 2), bytes(3, "v"), bytes(4, "e")].concat();
    // The list is the second field.
    check(
        &pb::BatchUpdateMetadataRequest { metadata: vec![metadata] },
        &[bytes(2, [bytes(1, "k"), bytes(2, written)].concat())],
    );
    let update = pb::batch_update_app_health_request::HealthUpdate {
        id: b"i".to_vec(),
        health: pb::AppHealth::Unhealthy.into(),
    };
    check(
        &pb::BatchUpdateAppHealthRequest { updates: vec![update] },
        &[bytes(1, [bytes(1, "i"), int(2, 4)].concat())],
    );
    let timing = pb::Timing {
        script_id: b"s".to_vec(),
        start: at(1),
        end: at(2),
        exit_code: 3,
        stage: pb::timing::Stage::Cron.into(),
        status: pb::timing::Status::PipesLeftOpen.into(),
    };
    let written =
        [bytes(1, "s"), bytes(2, int(1, 1)), bytes(3, int(1, 2)), int(4, 3), int(5, 2), int(6, 3)].concat();
    check(&pb::WorkspaceAgentScriptCompletedRequest { timing: Some(timing) }, &[bytes(1, written)]);
    let connection = pb::Connection {
        id: b"i".to_vec(),
        action: pb::connection::Action::Disconnect.into(),
        r#type: pb::connection::Type::ReconnectingPty.into(),
        timestamp: at(4),
        ip: text("::"),
        status_code: 6,
        reason: Some(String::new()),
    };
    let written =
        [bytes(1, "i"), int(2, 2), int(3, 4), bytes(4, int(1, 4)), bytes(5, "::"), int(6, 6), bytes(7, "")]
            .concat();
    check(&pb::ReportConnectionRequest { connection: Some(connection) }, &[bytes(1, written)]);
}

#[test]
fn monitoring_banners_and_boundary_logs() {
    use pb::boundary_log::{HttpRequest, Resource};
    use pb::get_resources_monitoring_configuration_response::{Config, Memory, Volume};
    use pb::push_resources_monitoring_usage_request::Datapoint;
    use pb::push_resources_monitoring_usage_request::datapoint::{MemoryUsage, VolumeUsage};
    let configuration = pb::GetResourcesMonitoringConfigurationResponse {
        config: Some(Config { num_datapoints: 20, collection_interval_seconds: 10 }),
        memory: Some(Memory { enabled: true }),
        volumes: vec![Volume { enabled: true, path: text("/") }],
    };
    let expected = [
        bytes(1, [int(1, 20), int(2, 10)].concat()),
        bytes(2, int(1, 1)),
        bytes(3, [int(1, 1), bytes(2, "/")].concat()),
    ];
    check(&configuration, &expected);
    let point = Datapoint {
        collected_at: at(1),
        memory: Some(MemoryUsage { used: 2, total: 3 }),
        volumes: vec![VolumeUsage { volume: text("/"), used: 4, total: 5 }],
    };
    let written = [
        bytes(1, int(1, 1)),
        bytes(2, [int(1, 2), int(2, 3)].concat()),
        bytes(3, [bytes(1, "/"), int(2, 4), int(3, 5)].concat()),
    ];
    check(
        &pb::PushResourcesMonitoringUsageRequest { datapoints: vec![point] },
        &[bytes(1, written.concat())],
    );
    let banner = pb::BannerConfig { enabled: true, message: text("m"), background_color: text("b") };
    let written = [int(1, 1), bytes(2, "m"), bytes(3, "b")].concat();
    check(&pb::GetAnnouncementBannersResponse { announcement_banners: vec![banner] }, &[bytes(1, written)]);
    let request = HttpRequest { method: text("G"), url: text("u"), matched_rule: text("r") };
    let log = pb::BoundaryLog { allowed: true, time: at(2), resource: Some(Resource::HttpRequest(request)) };
    let written =
        [int(1, 1), bytes(2, int(1, 2)), bytes(3, [bytes(1, "G"), bytes(2, "u"), bytes(3, "r")].concat())];
    check(&pb::ReportBoundaryLogsRequest { logs: vec![log] }, &[bytes(1, written.concat())]);
}

#[test]
fn sub_agents() {
    use pb::create_sub_agent_request::app::{Healthcheck, OpenIn, SharingLevel};
    use pb::create_sub_agent_request::{App, DisplayApp};
    let app = App {
        slug: text("s"),
        command: Some(text("c")),
        display_name: Some(text("d")),
        external: Some(false),
        group: Some(text("g")),
        healthcheck: Some(Healthcheck { interval: 1, threshold: 2, url: text("u") }),
        hidden: Some(true),
        icon: Some(text("i")),
        open_in: Some(OpenIn::Tab.into()),
        order: Some(10),
        share: Some(SharingLevel::Organization.into()),
        subdomain: Some(true),
        url: Some(text("w")),
    };
    let written = [
        bytes(1, "s"),
        bytes(2, "c"),
        bytes(3, "d"),
        int(4, 0),
        bytes(5, "g"),
        bytes(6, [int(1, 1), int(2, 2), bytes(3, "u")].concat()),
        int(7, 1),
        bytes(8, "i"),
        int(9, 1),
        int(10, 10),
        int(11, 3),
        int(12, 1),
        bytes(13, "w"),
    ];
    let request = pb::CreateSubAgentRequest {
        name: text("n"),
        directory: text("d"),
        architecture: text("a"),
        operating_system: text("o"),
        apps: vec![app],
        display_apps: vec![DisplayApp::PortForwardingHelper.into()],
    };
    let expected = [
        bytes(1, "n"),
        bytes(2, "d"),
        bytes(3, "a"),
        bytes(4, "o"),
        bytes(5, written.concat()),
        bytes(6, [4]),
    ];
    check(&request, &expected);
    let agent = pb::SubAgent { name: text("n"), id: b"i".to_vec(), auth_token: b"t".to_vec() };
    let error = pb::create_sub_agent_response::AppCreationError {
        index: 1,
        field: Some(text("f")),
        error: text("e"),
    };
    let response = pb::CreateSubAgentResponse { agent: Some(agent), app_creation_errors: vec![error] };
    let agent = [bytes(1, "n"), bytes(2, "i"), bytes(3, "t")].concat();
    let error = [int(1, 1), bytes(2, "f"), bytes(3, "e")].concat();
    check(&response, &[bytes(1, agent), bytes(2, error)]);
}
