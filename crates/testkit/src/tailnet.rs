//! Peers of the overlay network over the relay of a real server: an agent's node, and a user's.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use coder_api::client::Client;
use coder_api::headers::SESSION_TOKEN;
use coder_api::paths;
use coder_api::templates::CreateTemplateRequest;
use coder_api::versions::CreateTemplateVersionRequest;
use coder_api::workspaces::{CreateWorkspaceRequest, Workspace};
use coder_domain::ids::AgentId;
use coder_domain::secret::Secret;
use coder_tailnet::controller::{self, Controller};
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::derp::upgrade::{self, Form};
use coder_tailnet::node::{BoxedFuture, Config, Dialer, Node};
use coder_tailnet::peer::Role;
use coder_tailnet::rpc;
use coder_wire::bytes::BoxedStream;
use coder_wire::messages::provisioner::{Agent, App, Resource, Script, agent};
use coder_wire::mux;
use coder_wire::ws::Socket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::daemon::{FakeDaemon, build_result};
use crate::server::TestServer;

/// The region of a server's own relay.
const REGION: i32 = 999;
/// In the year 2100: an agent that was heard of then counts as connected.
const FUTURE_US: i64 = 4_102_444_800_000_000;
const STATE: &[u8] = br#"{"version":4,"serial":1,"lineage":"tailnet","resources":[]}"#;

/// Dials the relay of the server that a client talks to.
#[derive(Debug)]
pub struct RelayDialer {
    /// The client.
    pub client: Client,
    /// The form of the upgrade.
    pub form: Form,
}

impl Dialer for RelayDialer {
    fn dial(&self, region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        Box::pin(async move {
            if region != REGION {
                return Err(io::ErrorKind::NotFound.into());
            }
            let url = self.client.base().join(paths::DERP).map_err(io::Error::other)?;
            let io = self.client.dialer().connection(&url).await.map_err(io::Error::other)?;
            let uri = url.as_str().parse().map_err(io::Error::other)?;
            upgrade::client(io, &uri, self.client.headers(), self.form).await.map_err(io::Error::other)
        })
    }
}

/// Makes a workspace whose build has one agent called `main` that counts as connected, for the user of `client`.
///
/// # Errors
/// When a call fails.
pub async fn workspace_with_agent(
    server: &TestServer,
    client: &Client,
    name: &str,
) -> Result<(Workspace, AgentId)> {
    let (workspace, agent, _) = new_workspace(server, client, name).await?;
    // It takes part in the network without the calls by which agents report.
    let connected = format!(
        "insert into workspace_agent_connections (agent_id, connection, first_connected_us, last_connected_us) \
         values ('{agent}', 'test', {FUTURE_US}, {FUTURE_US}); \
         update workspace_agents set lifecycle_state = 'ready' where id = '{agent}';"
    );
    server.execute(&connected).await;
    Ok((client.workspace(workspace.id).await?, agent))
}

/// Makes a workspace whose build has one agent called `main`, and the token of that agent.
///
/// # Errors
/// When a call fails.
pub async fn new_workspace(
    server: &TestServer,
    client: &Client,
    name: &str,
) -> Result<(Workspace, AgentId, Secret)> {
    workspace_of_agent(server, client, name, Agent::default()).await
}

/// The same, with apps on the agent.
///
/// # Errors
/// When a call fails.
pub async fn new_workspace_with(
    server: &TestServer,
    client: &Client,
    name: &str,
    apps: Vec<App>,
) -> Result<(Workspace, AgentId, Secret)> {
    workspace_of_agent(server, client, name, Agent { apps, ..Agent::default() }).await
}

/// The same with startup scripts, each with its time limit in seconds; 0 for none.
///
/// # Errors
/// When a call fails.
pub async fn workspace_with_scripts(
    server: &TestServer,
    client: &Client,
    name: &str,
    scripts: &[(&str, i32)],
) -> Result<(Workspace, AgentId, Secret)> {
    let script = |(number, (text, seconds)): (usize, &(&str, i32))| Script {
        display_name: format!("Script {number}"),
        script: (*text).to_owned(),
        run_on_start: true,
        timeout_seconds: *seconds,
        ..Script::default()
    };
    let scripts = scripts.iter().enumerate().map(script).collect();
    workspace_of_agent(server, client, name, Agent { scripts, ..Agent::default() }).await
}

/// The same, of a template with these settings.
///
/// # Errors
/// When a call fails.
pub async fn new_workspace_of(
    server: &TestServer,
    client: &Client,
    name: &str,
    template: CreateTemplateRequest,
) -> Result<(Workspace, AgentId, Secret)> {
    workspace_of_template(server, client, name, template, Agent::default()).await
}

async fn workspace_of_agent(
    server: &TestServer,
    client: &Client,
    name: &str,
    agent: Agent,
) -> Result<(Workspace, AgentId, Secret)> {
    workspace_of_template(server, client, name, CreateTemplateRequest::default(), agent).await
}

async fn workspace_of_template(
    server: &TestServer,
    client: &Client,
    name: &str,
    template: CreateTemplateRequest,
    agent: Agent,
) -> Result<(Workspace, AgentId, Secret)> {
    let owner = &server.owner;
    let organization = server.handle.app.default_organization;
    let daemon = FakeDaemon::join_with_session(owner, &format!("daemon-of-{name}")).await?;
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o644);
    archive.append_data(&mut header, "main.tf", io::empty())?;
    let file = owner.upload("application/x-tar", archive.into_inner()?.into()).await?;
    let request = CreateTemplateVersionRequest { file_id: Some(file), ..Default::default() };
    let version = owner.create_version(organization, &request).await?;
    daemon.run_import().await?;
    let request = CreateTemplateRequest {
        name: format!("template-of-{name}"),
        version_id: Some(version.id),
        ..template
    };
    let template = owner.create_template(organization, &request).await?.id;
    let request =
        CreateWorkspaceRequest { template_id: Some(template), name: name.to_owned(), ..Default::default() };
    let workspace = client.create_workspace("me", &request).await?;
    let job = daemon.acquire().await?;
    let token = Secret::new(Uuid::new_v4().to_string());
    let agent =
        Agent { name: "main".to_owned(), auth: Some(agent::Auth::Token(token.expose().to_owned())), ..agent };
    let resource = Resource {
        name: "machine".to_owned(),
        r#type: "null_resource".to_owned(),
        agents: vec![agent],
        ..Resource::default()
    };
    daemon.calls.complete_job(&build_result(&job.job_id, STATE, vec![resource])).await?;
    daemon.leave().await;
    let workspace = client.workspace(workspace.id).await?;
    let resources = workspace.latest_build.resources.iter();
    let agent = resources.flat_map(|resource| &resource.agents).next().context("the build has an agent")?.id;
    Ok((workspace, agent, token))
}

/// The node of an agent that is connected to relay and coordinator.
#[derive(Debug)]
pub struct AgentPeer {
    /// The node.
    pub node: Node,
    task: JoinHandle<()>,
}

impl AgentPeer {
    /// Connects an agent.
    #[must_use]
    pub fn start(server: &TestServer, agent: AgentId, form: Form) -> Self {
        let dialer = Arc::new(RelayDialer { client: server.owner.clone(), form });
        Self::with_node(server, agent, Node::start(Config::agent(agent.0, REGION, dialer)))
    }

    fn with_node(server: &TestServer, agent: AgentId, node: Node) -> Self {
        let mut controller = Controller::new(node.clone(), Role::Agent);
        let hub = server.handle.app.network.hub.clone();
        let task = tokio::spawn(async move {
            loop {
                let (connection, mut responses) = hub.connect(agent.0, Authorization::Agent(agent.0));
                let (sender, mut requests) = mpsc::channel(32);
                let forward = async {
                    while let Some(request) = requests.recv().await {
                        connection.request(request);
                    }
                };
                tokio::select! {
                    _ = controller.run(&sender, &mut responses) => {}
                    () = forward => {}
                }
                drop(connection);
                tokio::task::yield_now().await;
            }
        });
        Self { node, task }
    }
}

impl Drop for AgentPeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A user's connection to one agent, as a client makes it.
#[derive(Debug)]
pub struct UserPeer {
    /// The node.
    pub node: Node,
    /// Why the coordinator ended the connection.
    pub ended: JoinHandle<Result<(), controller::Error>>,
}

impl UserPeer {
    /// Connects to the coordinator for one agent.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn dial(client: &Client, agent: AgentId, form: Form) -> Result<Self> {
        let session = coordinate(client, &paths::agent_coordinate(agent), &[("version", "2.0")]).await?;
        let dialer = Arc::new(RelayDialer { client: client.clone(), form });
        let node = Node::start(Config::client(REGION, dialer));
        let mut controller = Controller::new(node.clone(), Role::Client);
        controller.add_destination(agent.0);
        let ended = tokio::spawn(async move {
            let stream = session.open().await.map_err(|_| controller::Error::Lost)?;
            let (requests, outgoing) = mpsc::channel(32);
            let (incoming, mut responses) = mpsc::channel(512);
            let call = tokio::spawn(rpc::coordinate(stream, outgoing, incoming));
            let ended = controller.run(&requests, &mut responses).await;
            call.abort();
            ended
        });
        Ok(Self { node, ended })
    }
}

/// Opens a session with the Tailnet service of a path.
///
/// # Errors
/// When the server refuses.
pub async fn coordinate(
    client: &Client,
    path: &str,
    query: &[(&str, &str)],
) -> Result<mux::Session, coder_api::client::Error> {
    let query: Vec<_> = query.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let token = client.token().cloned().map(|token| (SESSION_TOKEN, token));
    let headers: Vec<_> = token.into_iter().collect();
    let upgraded = client.websocket(path, &query, &headers).await?;
    Ok(mux::Session::client(Socket::client(upgraded.stream), mux::Config::default()))
}
