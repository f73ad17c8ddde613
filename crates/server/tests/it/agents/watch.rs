//! What is watched and followed over WebSockets (http-api 10.2 to 10.4).

use std::net::SocketAddr;

use coder_api::paths;
use coder_server::App;
use futures_util::StreamExt as _;
use http::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::rig::Rig;
use super::terminal::{Browser, connect, rest};
use crate::harness::{START, TestServer, settings};

/// A workspace, and a server that listens.
struct Watched {
    rig: Rig,
    app: App,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Watched {
    async fn start() -> Self {
        let rig = Rig::new(TestServer::sqlite().await).await;
        let (app, address, stop) = rig.server.listening_app(settings()).await;
        Self { rig, app, address, stop }
    }

    async fn open(&self, path: &str) -> Browser {
        connect(self.address, &self.rig.owner, path).await.unwrap()
    }

    /// A request of the agent to the server that listens.
    async fn report(&self, method: Method, path: &str, body: Value) {
        let server = self.rig.server.beside_app(self.app.clone());
        let answer = server.ask(&self.rig.token, method, path, body).await;
        assert!(answer.status.is_success(), "{}", answer.text());
    }
}

/// The next message.
async fn next(browser: &mut Browser) -> Value {
    match browser.next().await.unwrap().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_watcher_of_a_workspace_gets_it_at_once_and_after_each_change() {
    let watched = Watched::start().await;
    let (rig, path) = (&watched.rig, paths::workspace_watch_ws(watched.rig.workspace));
    let mut browser = watched.open(&path).await;
    assert_eq!(next(&mut browser).await, json!({ "type": "ping", "data": null }));
    let first = next(&mut browser).await;
    let whole =
        rig.server.get(&rig.owner, &format!("/api/v2/workspaces/{}", rig.workspace)).await.expect(200);
    assert_eq!(first, json!({ "type": "data", "data": whole }));
    rig.server.execute("update workspaces set name = 'other'").await;
    watched.app.events.workspace_changed(rig.workspace);
    assert_eq!(next(&mut browser).await["data"]["name"], "other");
    rig.server.execute("update workspaces set deleted = true").await;
    watched.app.events.workspace_changed(rig.workspace);
    assert_eq!(rest(browser).await, (Vec::new(), 1000, "done".to_owned()));
    watched.stop.cancel();
}

#[tokio::test]
async fn watchers_end_with_the_server_and_with_their_rights() {
    let watched = Watched::start().await;
    let path = paths::agent_watch_metadata_ws(watched.rig.agent);
    let mut browsers = Vec::new();
    for _ in 0..2 {
        let mut browser = watched.open(&path).await;
        assert_eq!(next(&mut browser).await["type"], "ping");
        let shown = next(&mut browser).await;
        let description =
            json!({ "display_name": "", "key": "cpu", "script": "cpu", "interval": 10, "timeout": 0 });
        assert_eq!(shown["data"][0]["description"], description);
        browsers.push(browser);
        if browsers.len() == 1 {
            let user = watched.rig.server.user_id(&watched.rig.owner).await;
            coder_server::network::revoke::users(&watched.app, &[user]).await.unwrap();
        }
    }
    let revoked = rest(browsers.remove(0)).await;
    assert_eq!(revoked.1, 1008, "{revoked:?}");
    watched.stop.cancel();
    let stopped = rest(browsers.remove(0)).await;
    assert_eq!(stopped.1, 1001, "{stopped:?}");
}

#[tokio::test]
async fn a_follower_gets_the_lines_of_an_agent_until_another_build_begins() {
    let watched = Watched::start().await;
    let source = Uuid::new_v4();
    let made = json!({ "id": source, "display_name": "x", "icon": "" });
    watched.report(Method::POST, paths::AGENT_LOG_SOURCE, made).await;
    let lines = async |texts: &[&str]| {
        let logs: Vec<_> = texts.iter().map(|text| json!({ "output": text, "level": "warn" })).collect();
        watched
            .report(Method::PATCH, paths::AGENT_OWN_LOGS, json!({ "log_source_id": source, "logs": logs }))
            .await;
    };
    lines(&["one", "two"]).await;
    let stored =
        watched.rig.server.get(&watched.rig.owner, &paths::agent_logs(watched.rig.agent)).await.expect(200);
    let line = json!({ "id": stored[1]["id"], "created_at": START, "output": "two", "level": "warn", "source_id": source });
    assert_eq!(stored[1], line);
    let path = format!("{}?follow&after={}", paths::agent_logs(watched.rig.agent), stored[0]["id"]);
    let mut browser = watched.open(&path).await;
    assert_eq!(next(&mut browser).await, json!([line]));
    lines(&["three"]).await;
    assert_eq!(next(&mut browser).await[0]["output"], "three");
    // Lines of one report come in messages that clients can read.
    let long = "x".repeat(20 << 10);
    lines(&[&long, "y", &long]).await;
    let parts = [next(&mut browser).await, next(&mut browser).await];
    assert!(parts.iter().all(|part| part.to_string().len() <= 32 << 10));
    let outputs = parts.iter().flat_map(|part| part.as_array().unwrap());
    let outputs: String = outputs.map(|line| line["output"].as_str().unwrap()).collect();
    assert!(outputs == format!("{long}y{long}"), "{}", outputs.len());
    watched.rig.build("start").await;
    watched.app.events.workspace_changed(watched.rig.workspace);
    assert_eq!(rest(browser).await, (Vec::new(), 1000, "done".to_owned()));
    watched.stop.cancel();
}
