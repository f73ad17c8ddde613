//! The life of an agent: connections that come and go, states, reports, and the end.

use std::net::Ipv4Addr;

use coder_wire::messages::coder::agent::v2 as messages;
use messages::lifecycle::State;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::rig::{Running, Server, run, run_paused};

/// agent 2.4.
#[test]
fn startup_names_version_and_directory() {
    run(async {
        let server = Server::new(messages::Manifest { directory: "~/src".to_owned(), ..Default::default() });
        let agent = Running::start(&server);
        let records = server.until(|records| !records.startups.is_empty()).await;
        assert_eq!(records.startups[0].version, "v2.30.0+test");
        assert_eq!(records.startups[0].expanded_directory, agent.path("home/src").to_str().unwrap());
        server.until(|records| records.states == [State::Starting, State::Ready]).await;
        agent.end().await;
        let states = server.records().states;
        assert_eq!(states, [State::Starting, State::Ready, State::ShuttingDown, State::Off]);
    });
}

#[test]
fn agent_comes_back_after_its_server_was_away() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        server.until(|records| records.states == [State::Starting, State::Ready]).await;
        let user = server.user().await;
        let mut stream = user.connect(4).await.unwrap();
        server.stop();
        // What users have goes on without the server.
        let request = b"GET / HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Hello from the agent!"), "{answer}");
        server.change_manifest(|manifest| manifest.directory = "/new".to_owned());
        server.start();
        let records = server.until(|records| records.startups.len() == 2).await;
        assert_eq!(records.startups[1].expanded_directory, "/new");
        assert_eq!(records.states, [State::Starting, State::Ready], "no state is reported twice");
        agent.end().await;
        assert_eq!(server.records().states.last(), Some(&State::Off));
    });
}

#[test]
fn agent_comes_back_after_hours() {
    run_paused(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        server.until(|records| records.startups.len() == 1).await;
        server.stop();
        // The clock is paused: it moves on at once.
        tokio::time::sleep(std::time::Duration::from_secs(5 * 3600)).await;
        server.start();
        let back = tokio::time::Instant::now();
        server.until(|records| records.startups.len() == 2).await;
        assert!(back.elapsed().as_secs() <= 10, "the delay between attempts is bounded");
        agent.end().await;
        assert_eq!(server.records().states.last(), Some(&State::Off));
    });
}

#[test]
fn agent_ends_within_its_limit_when_the_server_is_away() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        server.until(|records| records.states.len() == 2).await;
        server.stop();
        let start = tokio::time::Instant::now();
        agent.end().await;
        assert!(start.elapsed().as_secs() < 15, "{:?}", start.elapsed());
    });
}

#[test]
fn metadata_is_collected_at_its_interval() {
    run(async {
        let description =
            |key: &str, script: &str, interval| messages::workspace_agent_metadata::Description {
                key: key.to_owned(),
                script: script.to_owned(),
                // Seconds, as nanoseconds (agent 2.3).
                interval: Some(prost_types::Duration { seconds: 0, nanos: interval }),
                ..Default::default()
            };
        let server = Server::new(messages::Manifest {
            metadata: vec![
                description("often", "echo $CODER_WORKSPACE_NAME", 1),
                description("once", "echo once >> ran; echo failed; exit 3", 0),
            ],
            ..Default::default()
        });
        let agent = Running::start(&server);
        let count = |records: &super::rig::Records, key: &str| {
            records.metadata.iter().filter(|(of, _)| of == key).count()
        };
        let start = tokio::time::Instant::now();
        let records =
            server.until(|records| count(records, "often") >= 3 && count(records, "once") >= 1).await;
        assert!(start.elapsed().as_millis() >= 2000, "never more often than the interval");
        let (_, result) = records.metadata.iter().find(|(key, _)| key == "once").unwrap();
        assert_eq!((result.value.as_str(), result.error.as_str()), ("failed", "run cmd: exit status 3"));
        let (_, result) = records.metadata.iter().find(|(key, _)| key == "often").unwrap();
        assert_eq!((result.value.as_str(), result.error.as_str()), ("dev", ""));
        // Another connection does not run it again.
        server.stop();
        server.start();
        let often = count(&records, "often");
        server.until(|records| records.connections == 2 && count(records, "often") > often + 1).await;
        assert_eq!(std::fs::read_to_string(agent.path("home/ran")).unwrap(), "once\n");
        agent.end().await;
    });
}

#[test]
fn health_of_apps_and_use_of_resources_are_reported() {
    run(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
            }
        });
        let app = |id: u128, url: String| messages::WorkspaceApp {
            id: Uuid::from_u128(id).as_bytes().to_vec(),
            healthcheck: Some(messages::workspace_app::Healthcheck {
                url,
                interval: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }),
                threshold: 1,
            }),
            ..Default::default()
        };
        let apps = vec![
            app(1, format!("http://127.0.0.1:{port}/")),
            // Nothing listens on the port that names a service nobody runs.
            app(2, "http://127.0.0.1:9/".to_owned()),
        ];
        let server = Server::new(messages::Manifest { apps, ..Default::default() });
        let agent = Running::start(&server);
        let is = |records: &super::rig::Records, id: u128, health: messages::AppHealth| {
            records
                .healths
                .iter()
                .any(|update| update.id == Uuid::from_u128(id).as_bytes() && update.health() == health)
        };
        server
            .until(|records| {
                is(records, 1, messages::AppHealth::Healthy) && is(records, 2, messages::AppHealth::Unhealthy)
            })
            .await;
        server.until(|records| records.datapoints >= 2).await;
        agent.end().await;
    });
}

#[test]
fn traffic_and_sessions_are_counted() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let opening =
            br#"{"ID":"5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10","Height":20,"Width":80,"Command":"cat"}"#;
        let mut stream = user.connect(2).await.unwrap();
        stream.write_all(&u16::try_from(opening.len()).unwrap().to_le_bytes()).await.unwrap();
        stream.write_all(opening).await.unwrap();
        let records = server
            .until(|records| {
                records
                    .stats
                    .iter()
                    .any(|stats| stats.session_count_reconnecting_pty == 1 && stats.rx_bytes > 0)
            })
            .await;
        let stats = records.stats.iter().find(|stats| stats.session_count_reconnecting_pty == 1).unwrap();
        assert!(stats.connection_count >= 1 && stats.connections_by_proto["TCP"] >= 1);
        drop(stream);
        let left = |records: &super::rig::Records| {
            records.connection_reports.iter().any(|report| {
                report.action() == messages::connection::Action::Disconnect
                    && report.r#type() == messages::connection::Type::ReconnectingPty
            })
        };
        let records = server.until(left).await;
        assert_eq!(records.connection_reports[0].id, records.connection_reports[1].id);
        server
            .until(|records| {
                records.stats.last().is_some_and(|stats| stats.session_count_reconnecting_pty == 0)
            })
            .await;
        agent.end().await;
    });
}
