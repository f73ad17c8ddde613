//! Ports of a workspace: opened by number, shared, and listed.

use coder_api::agents::{ListeningPorts, UpsertPortShare};
use coder_api::paths;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_are_opened_and_shared() {
    let site = Site::start(PathAppRules::default()).await;
    let port = site.app.port();
    let other = LoopbackApp::start().await;
    let of = |port: &str| format!("{port}--main--dev--ann.{APPS}");
    let here = of(&port.to_string());
    let bob = user(&site.server, "bob", site.server.handle.app.default_organization).await;
    assert_eq!(site.get(Some(&site.ann), &here, "/").await.status, 200);
    assert_eq!(site.get(Some(&bob), &here, "/").await.status, 404);
    assert_eq!(site.get(None, &here, "/").await.status, 303);
    let share = |level: &str| UpsertPortShare {
        agent_name: "main".to_owned(),
        port: port.into(),
        share_level: level.to_owned(),
        protocol: "http".to_owned(),
    };
    let path = paths::workspace_port_share(site.workspace.id);
    let set = async |level: &str| {
        let body = serde_json::to_string(&share(level)).unwrap();
        let token = site.ann.token().unwrap().expose().to_owned();
        let mut io = site.connect().await;
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: coder.test\r\nConnection: close\r\nCoder-Session-Token: {token}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        io.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(WAIT_LIMIT, io.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    set("organization").await;
    assert_eq!(site.get(Some(&bob), &here, "/").await.status, 200);
    assert_eq!(site.get(None, &here, "/").await.status, 303);
    set("public").await;
    assert_eq!(site.get(None, &here, "/").await.status, 200);
    // Only this port, and only of this agent.
    assert_eq!(site.get(None, &of(&other.port().to_string()), "/").await.status, 303);
    assert_eq!(site.get(Some(&site.ann), &format!("{port}--other--dev--ann.{APPS}"), "/").await.status, 404);
    assert_eq!(site.get(Some(&site.ann), &of("8"), "/").await.status, 400);
    let mixed = site.get(Some(&site.ann), &of(&format!("{port}s")), "/").await;
    assert_eq!(mixed.status, 502);
    assert!(mixed.body.contains(&format!("open {port} in the place of {port}s")), "{}", mixed.body);
    let listed = site.get(Some(&site.ann), "coder.test", &paths::agent_listening_ports(site.agent)).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let ports: ListeningPorts = serde_json::from_str(&listed.body).unwrap();
    let ports: Vec<_> = ports.ports.iter().map(|port| port.port).collect();
    assert!(ports.contains(&other.port()), "{ports:?}");
    assert!(!ports.contains(&port), "it is an app: {ports:?}");
    assert_eq!(
        site.get(Some(&bob), "coder.test", &paths::agent_listening_ports(site.agent)).await.status,
        404
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_of_sub_agents_are_shared_as_widely_as_ports_may_be() {
    let site = Site::start(PathAppRules::default()).await;
    let bound = "update templates set settings = replace(settings, '\"max_port_share_level\":\"public\"', '\"max_port_share_level\":\"authenticated\"')";
    site.server.execute(bound).await;
    assert_eq!(site.get(None, &host("open"), "/").await.status, 200, "it is the template's");
    site.server.execute("update workspace_agents set parent_id = id").await;
    assert_eq!(site.get(None, &host("open"), "/").await.status, 303);
    let eve = stranger(&site.server, "eve").await;
    assert_eq!(site.get(Some(&eve), &host("open"), "/").await.status, 200);
}
