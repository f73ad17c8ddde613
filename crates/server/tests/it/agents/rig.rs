//! A workspace with an agent, and the agent's end of its connection.

use coder_domain::build::Transition;
use coder_domain::ids::{AgentId, AppId, JobId, LogSourceId, ResourceId, ScriptId, TemplateId, WorkspaceId};
use coder_domain::secret::Secret;
use coder_server::agents::connection::Connection;
use coder_server::events::Topic;
use coder_server::http::AccessUrl;
use coder_store::workspaces::agents::{Agent, App, AppDefinition, Definition, MetadataItem, Script};
use coder_store::workspaces::resources::Resource;
use coder_store::workspaces::{agent_connections, agents, resources};
use coder_wire::drpc::client::unary;
use coder_wire::drpc::{Error, Status};
use coder_wire::mux;
use prost::Message;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::TestServer;

/// A workspace whose latest build has one agent.
pub(super) struct Rig {
    pub(super) server: TestServer,
    pub(super) owner: String,
    pub(super) template: TemplateId,
    pub(super) workspace: WorkspaceId,
    pub(super) agent: AgentId,
    pub(super) token: String,
    pub(super) script: Script,
    pub(super) app: AppId,
}

impl Rig {
    pub(super) async fn new(server: TestServer) -> Self {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        let (workspace, _, job) = server.workspace(&owner, template, "w").await;
        server.finish(job, "").await;
        let workspace = workspace.parse().unwrap();
        let (agent, token, script, app) = insert_agent(&server, job).await;
        Self { server, owner, template, workspace, agent, token, script, app }
    }

    /// The agent as the API shows it.
    pub(super) async fn shown(&self) -> Value {
        self.server.get(&self.owner, &format!("/api/v2/workspaceagents/{}", self.agent)).await.expect(200)
    }

    /// Connects the agent.
    pub(super) async fn connect(&self) -> mux::Session {
        let session = self.open(&self.token).await;
        // The first answer comes after the contact was stored.
        let manifest: Result<coder_wire::messages::coder::agent::v2::Manifest, _> =
            call(&session, "GetManifest", &()).await;
        manifest.unwrap();
        session
    }

    /// The agent's end of a connection with this token, before any call.
    pub(super) async fn open(&self, token: &str) -> mux::Session {
        let app = &self.server.app;
        let mut tx = app.store.reader().await.unwrap();
        let identity = agent_connections::authenticate(&mut tx, &Secret::new(token)).await.unwrap().unwrap();
        drop(tx);
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (version, url) = (coder_domain::agent::API, AccessUrl("http://127.0.0.1:3000".to_owned()));
        tokio::spawn(Connection::new(app.clone(), identity, version, url).run(theirs));
        mux::Session::client(ours, mux::Config::default())
    }

    /// Waits until the agent is shown with this status.
    pub(super) async fn until_status(&self, status: &str) {
        let mut changes = self.server.app.events.subscribe(Topic::Workspace(self.workspace));
        while self.shown().await["status"] != status {
            changes.changed().await;
        }
    }

    /// Begins a build; its job waits.
    pub(super) async fn build(&self, transition: &str) -> JobId {
        let path = format!("/api/v2/workspaces/{}/builds", self.workspace);
        let build =
            self.server.post(&self.owner, &path, json!({ "transition": transition })).await.expect(201);
        build["job"]["id"].as_str().unwrap().parse().unwrap()
    }
}

/// A call of an agent.
pub(super) async fn call<A: Message + Default>(
    session: &mux::Session,
    name: &str,
    request: &impl Message,
) -> Result<A, Error> {
    let stream = session.open().await.unwrap();
    unary(stream, &format!("/coder.agent.v2.Agent/{name}"), request).await
}

/// Why a call was refused.
#[track_caller]
pub(super) fn refusal<A: std::fmt::Debug>(outcome: Result<A, Error>) -> Status {
    match outcome {
        Err(Error::Refused(status)) => status,
        other => panic!("not refused: {other:?}"),
    }
}

/// An agent made by a job, with one script, one app with a health check, and one item of metadata.
pub(crate) async fn insert_agent(server: &TestServer, job: JobId) -> (AgentId, String, Script, AppId) {
    let now = server.app.now();
    let resource = Resource {
        id: ResourceId::random(),
        job_id: job,
        position: 0,
        transition: Transition::Start,
        kind: "docker_container".to_owned(),
        name: "box".to_owned(),
        hide: false,
        icon: String::new(),
        instance_type: String::new(),
        daily_cost: 0,
        module_path: String::new(),
        metadata: Vec::new(),
        created_at: now,
    };
    let script = Script {
        id: ScriptId::random(),
        log_source_id: LogSourceId::random(),
        display_name: "Startup Script".to_owned(),
        script: "echo hi".to_owned(),
        run_on_start: true,
        timeout_seconds: 60,
        ..Script::default()
    };
    let item = MetadataItem {
        key: "cpu".to_owned(),
        script: "cpu".to_owned(),
        interval: 10,
        ..MetadataItem::default()
    };
    let definition = Definition {
        env: [("KEY".to_owned(), "value".to_owned())].into(),
        operating_system: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        directory: "/home/coder".to_owned(),
        connection_timeout_seconds: 120,
        scripts: vec![script.clone()],
        metadata: vec![item],
        ..Definition::default()
    };
    let token = Uuid::new_v4().to_string();
    let agent =
        Agent::reported(resource.id, 0, "main".to_owned(), Secret::new(token.clone()), definition, now);
    let app = App {
        id: AppId::random(),
        agent_id: agent.id,
        position: 0,
        slug: "web".to_owned(),
        definition: AppDefinition {
            url: "http://localhost:8000".to_owned(),
            healthcheck_url: "http://localhost:8000/healthz".to_owned(),
            healthcheck_interval: 5,
            healthcheck_threshold: 3,
            ..AppDefinition::default()
        },
        health: "initializing".to_owned(),
        created_at: now,
    };
    let mut tx = server.app.store.begin().await.unwrap();
    resources::insert(&mut tx, std::slice::from_ref(&resource)).await.unwrap();
    agents::insert(&mut tx, std::slice::from_ref(&agent)).await.unwrap();
    agents::insert_apps(&mut tx, std::slice::from_ref(&app)).await.unwrap();
    tx.commit().await.unwrap();
    (agent.id, token, script, app.id)
}
