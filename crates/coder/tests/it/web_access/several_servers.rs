//! A workspace whose agent is connected to another server than the people who use it.

use std::io::{BufRead as _, BufReader, Write as _};

use coder_api::paths;
use coder_testkit::proxy::{Disconnect, Proxy};
use coder_testkit::server::meshed;
use coder_testkit::wait::eventually;

use super::terminal::{send, until};
use super::*;

fn links(server: &TestServer) -> (usize, usize) {
    let counts = server.handle.app.network.mesh.as_ref().unwrap().counts();
    (counts.dialled, counts.accepted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspace_is_entered_through_another_server_and_outlives_its_own() {
    let Some(database) = testing::postgres().await else { return };
    let config = || with_apps(meshed(), PathAppRules::default());
    let first = TestServer::start_with(config(), database).await.unwrap();
    let second = first.beside(config()).await.unwrap();
    eventually("the servers are connected", || links(&first) == (1, 1) && links(&second) == (1, 1)).await;
    // In the place of a load balancer, which sends the agent to the first server.
    let balancer = Proxy::start(first.handle.http.unwrap()).await.unwrap();
    let mut site = Site::start_at(first, &balancer.url()).await;
    // From here on everybody uses the second server.
    let first = std::mem::replace(&mut site.server, second);
    site.ann = site.server.owner.with_token(site.ann.token().cloned());

    assert_eq!(site.get(Some(&site.ann), &host("own"), "/").await.status, 200);
    assert_eq!(site.get(Some(&site.ann), "coder.test", "/@ann/dev/apps/own/").await.status, 200);
    let listed = site.get(Some(&site.ann), "coder.test", &paths::agent_listening_ports(site.agent)).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let id = AgentId::random();
    let mut terminal = site.terminal(&site.ann, &site.pty(id, "")).await.unwrap();
    send(&mut terminal, "echo $((40+2))-there\r").await;
    until(&mut terminal, "42-there").await;

    let mut outside = Home::new();
    outside.set("CODER_URL", url(&site.server));
    outside.set("CODER_SESSION_TOKEN", site.ann.token().unwrap().expose().to_owned());
    let ssh = |command: &str| outside.command(&["ssh", "dev", "--", command]);
    let mut child = ssh("echo begin; read line; echo got $line")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().map(Result::unwrap);
    assert_eq!(next().as_deref(), Some("begin"));

    // The agent's server is killed, and the agent connects to the one of its users.
    balancer.retarget(site.server.handle.http.unwrap());
    first.kill().await;
    balancer.disconnect(Disconnect::Reset, 0);
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(b"end\n").unwrap();
    stdin.flush().unwrap();
    assert_eq!(next().as_deref(), Some("got end"));
    assert!(child.wait().unwrap().success());
    site.until_status(AgentStatus::Connected).await;
    send(&mut terminal, "echo $((40+3))-there\r").await;
    until(&mut terminal, "43-there").await;
    assert_eq!(site.get(Some(&site.ann), "coder.test", "/@ann/dev/apps/own/").await.status, 200);
}
