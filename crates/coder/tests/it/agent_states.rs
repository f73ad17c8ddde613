//! What people see of an agent's startup scripts and of an agent that is gone: in `coder show`, in the API and in the logs.

use std::process::{Child, Stdio};

use coder_api::resources::{AgentLifecycle, AgentStatus, WorkspaceAgent};
use coder_domain::ids::AgentId;
use coder_testkit::server::TestServer;
use coder_testkit::tailnet::workspace_with_scripts;
use coder_testkit::wait::poll_until;

use crate::program::Home;

/// An agent as a process, and a home of the workspace's owner.
struct Site {
    server: TestServer,
    agent: AgentId,
    process: Child,
    inside: Home,
    person: Home,
}

impl Site {
    async fn start(scripts: &[(&str, i32)]) -> Self {
        let server = TestServer::start().await.unwrap();
        let (_, agent, token) = workspace_with_scripts(&server, &server.owner, "dev", scripts).await.unwrap();
        let mut inside = Home::new();
        inside.set("CODER_AGENT_URL", server.url()).set("CODER_AGENT_TOKEN", token.expose().to_owned());
        inside.set("CODER_AGENT_LOG_DIR", inside.path().join("log").to_str().unwrap());
        inside.set("CODER_AGENT_SCRIPT_DATA_DIR", inside.path().join("data").to_str().unwrap());
        let process = start(&inside);
        let mut person = Home::new();
        person
            .set("CODER_URL", server.url())
            .set("CODER_SESSION_TOKEN", server.owner.token().unwrap().expose().to_owned());
        Self { server, agent, process, inside, person }
    }

    /// The agent once it is as wanted.
    async fn until(&self, what: &str, is_wanted: impl Fn(&WorkspaceAgent) -> bool) -> WorkspaceAgent {
        let client = &self.server.owner;
        poll_until(what, async || {
            let now = client.agent(self.agent).await.unwrap();
            is_wanted(&now).then_some(now)
        })
        .await
    }

    async fn run(&self, args: &'static [&'static str]) -> String {
        let command = self.person.command(args);
        let outcome = tokio::task::spawn_blocking(move || crate::program::finish(command, b""));
        outcome.await.unwrap().success().out
    }

    async fn end(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.server.stop().await.unwrap();
    }
}

fn start(inside: &Home) -> Child {
    let mut command = inside.command(&["agent", "--no-reap", "--log-human", ""]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

async fn check(scripts: &[(&str, i32)], state: AgentLifecycle, shown: &str, healthy: bool, logged: &str) {
    let site = Site::start(scripts).await;
    let agent = site.until("its scripts have ended", |agent| agent.lifecycle_state == state).await;
    assert_eq!(agent.status, AgentStatus::Connected);
    assert_eq!(agent.health.healthy, healthy, "{:?}", agent.health);
    let text = site.run(&["show", "dev"]).await;
    assert!(text.contains("connected") && text.contains(shown), "{shown}: {text}");
    let client = &site.server.owner;
    poll_until("the lines have arrived", async || {
        let lines = client.agent_logs(site.agent, 0).await.unwrap();
        lines.iter().any(|line| line.output.contains(logged)).then_some(())
    })
    .await;
    let log = site.run(&["logs", "dev"]).await;
    assert!(log.contains(logged), "{logged}: {log}");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn success_of_startup_scripts_is_shown() {
    check(&[("echo all is well", 0)], AgentLifecycle::Ready, "(ready", true, "all is well").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_startup_script_is_shown() {
    let scripts = [("echo all is well", 0), ("echo it is broken >&2; exit 3", 0)];
    check(&scripts, AgentLifecycle::StartError, "start error", false, "it is broken").await;
}

/// A late agent is not called unhealthy, as in the official system.
#[tokio::test(flavor = "multi_thread")]
async fn startup_script_out_of_time_is_shown() {
    let scripts = [("echo it takes long; sleep 1000", 1)];
    check(&scripts, AgentLifecycle::StartTimeout, "start timeout", true, "did not end within 1s").await;
}

/// agent 2.10: the end of its connection shows at once; a process that is started again, as the machine's service manager does
/// it, is connected again.
#[tokio::test(flavor = "multi_thread")]
async fn killed_agent_is_shown_and_comes_back() {
    let mut site = Site::start(&[]).await;
    site.until("connected", |agent| agent.status == AgentStatus::Connected).await;
    site.process.kill().unwrap();
    site.process.wait().unwrap();
    let gone = site.until("disconnected", |agent| agent.status == AgentStatus::Disconnected).await;
    assert!(gone.disconnected_at.is_some() && !gone.health.healthy, "{gone:?}");
    let text = site.run(&["show", "dev"]).await;
    assert!(text.contains("disconnected"), "{text}");
    site.process = start(&site.inside);
    let back = site.until("connected again", |agent| agent.status == AgentStatus::Connected).await;
    assert!(back.health.healthy || back.lifecycle_state == AgentLifecycle::Starting, "{back:?}");
    site.end().await;
}
