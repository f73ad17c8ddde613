//! Apps and terminals of a workspace in the browser: our server in process, our agent as a process, and an HTTP server on loopback
//! in the place of the app.

mod apps;
mod ends;
mod grid;
mod loopback_app;
mod ports;
mod refusals;
mod several_servers;
mod sign_in;
mod terminal;

use std::process::{Child, Stdio};
use std::time::Duration;

use coder_api::client::Client;
use coder_api::organizations::CreateOrganizationRequest;
use coder_api::resources::AgentStatus;
use coder_api::users::CreateUserRequest;
use coder_api::workspaces::Workspace;
use coder_domain::apps::{PathAppRules, WildcardHost};
use coder_domain::ids::{AgentId, OrganizationId};
use coder_domain::secret::Secret;
use coder_server::Config;
use coder_store::testing;
use coder_testkit::server::{TestServer, settings};
use coder_testkit::tailnet::new_workspace_with;
use coder_testkit::wait::poll_until;
use coder_wire::messages::provisioner::{App, AppSharingLevel};
use coder_wire::ws::Socket;
use coder_wire::ws::handshake::{self, Error as HandshakeError};
use http::{HeaderMap, HeaderName, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::loopback_app::LoopbackApp;
use crate::program::Home;

/// How long anything may take that does happen.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// What follows the label of an app's host.
const APPS: &str = "apps.coder.test";
const PASSWORD: &str = "SomeSecurePassword!";

/// A server, users, and the workspace `dev` of `ann` with an agent process and apps.
struct Site {
    server: TestServer,
    app: LoopbackApp,
    ann: Client,
    workspace: Workspace,
    agent: AgentId,
    process: Child,
    inside: Home,
}

/// A response.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The value of a cookie that the response sets, and its attributes.
    fn cookie(&self, name: &str) -> Option<(String, String)> {
        let set = self.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
        let pair = set.filter_map(|cookie| cookie.split_once('=')).find(|(key, _)| key.starts_with(name))?;
        let (value, attributes) = pair.1.split_once(';').unwrap_or((pair.1, ""));
        Some((format!("{}={value}", pair.0), attributes.to_owned()))
    }
}

impl Site {
    async fn start(rules: PathAppRules) -> Self {
        let config = with_apps(settings(), rules);
        let server = TestServer::start_with(config, testing::sqlite()).await.unwrap();
        let address = url(&server);
        Self::start_at(server, &address).await
    }

    /// The same, with an agent that reaches the server at another address.
    async fn start_at(server: TestServer, address: &str) -> Self {
        let organization = server.handle.app.default_organization;
        let ann = user(&server, "ann", organization).await;
        let app = LoopbackApp::start().await;
        let (workspace, agent, token) =
            new_workspace_with(&server, &ann, "dev", apps_of(app.port())).await.unwrap();
        // Templates cannot name this level; agents can, for apps of their own.
        let level = "update workspace_apps set definition = replace(definition, '\"sharing_level\":\"owner\"', \
            '\"sharing_level\":\"organization\"') where slug = 'org'";
        server.execute(level).await;
        let mut inside = Home::new();
        inside.set("CODER_AGENT_URL", address).set("CODER_AGENT_TOKEN", token.expose().to_owned());
        let mut command = inside.command(&["agent", "--no-reap"]);
        let log = std::fs::File::create(inside.path().join("log")).unwrap();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let site = Self { server, app, ann, workspace, agent, process, inside };
        site.until_status(AgentStatus::Connected).await;
        site
    }

    async fn until_status(&self, wanted: AgentStatus) {
        poll_until("the agent has the status", async || {
            (self.ann.agent(self.agent).await.unwrap().status == wanted).then_some(())
        })
        .await;
    }

    /// Ends the agent.
    async fn kill_agent(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.until_status(AgentStatus::Disconnected).await;
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.handle.http.unwrap()).await.unwrap()
    }

    /// A request on a connection of its own.
    async fn ask(&self, method: &str, host: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut io = self.connect().await;
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        io.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        timeout(WAIT_LIMIT, io.read_to_end(&mut bytes)).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let (status, headers) = handshake::parse(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        Answer { status: status.as_u16(), headers, body: body.to_owned() }
    }

    /// `GET` with a session token.
    async fn get(&self, visitor: Option<&Client>, host: &str, path: &str) -> Answer {
        let token = visitor.map(|client| client.token().unwrap().expose().to_owned());
        let headers: Vec<_> = token.iter().map(|token| ("Coder-Session-Token", token.as_str())).collect();
        self.ask("GET", host, path, &headers).await
    }

    async fn websocket(
        &self,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Socket<TcpStream>, HandshakeError> {
        let uri: Uri = format!("http://{host}{path}").parse().unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        timeout(WAIT_LIMIT, handshake::client(self.connect().await, &uri, &map)).await.unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.inside.path().join("log")).unwrap_or_default();
            eprintln!("the agent's log:\n{log}");
        }
    }
}

fn with_apps(mut config: Config, rules: PathAppRules) -> Config {
    config.access_url = Some("http://coder.test".parse().unwrap());
    config.apps.wildcard = Some(WildcardHost::parse(&format!("*.{APPS}")).unwrap());
    config.apps.path_rules = rules;
    config
}

fn url(server: &TestServer) -> String {
    format!("http://{}", server.handle.http.unwrap())
}

/// The host of an app of `ann`'s workspace.
fn host(app: &str) -> String {
    format!("{app}--dev--ann.{APPS}")
}

/// The status of a refused handshake.
fn refusal<T: std::fmt::Debug>(outcome: Result<T, HandshakeError>) -> u16 {
    match outcome {
        Err(HandshakeError::Refused { status, .. }) => status.as_u16(),
        other => panic!("not refused: {other:?}"),
    }
}

/// A member of one organization, signed in.
async fn user(server: &TestServer, name: &str, organization: OrganizationId) -> Client {
    let email = format!("{name}@example.com");
    let request = CreateUserRequest {
        email: email.clone(),
        username: name.to_owned(),
        password: Secret::new(PASSWORD),
        organization_ids: vec![organization],
        ..serde_json::from_str("{}").unwrap()
    };
    server.owner.create_user(&request).await.unwrap();
    let token = server.owner.with_token(None).login(&email, Secret::new(PASSWORD)).await.unwrap();
    server.owner.with_token(Some(token))
}

/// A user who is not a member of the workspace's organization.
async fn stranger(server: &TestServer, name: &str) -> Client {
    let request = CreateOrganizationRequest { name: format!("org-of-{name}"), ..Default::default() };
    let organization = server.owner.create_organization(&request).await.unwrap().id;
    user(server, name, organization).await
}

/// One app for each sharing level, and some that are special.
fn apps_of(port: u16) -> Vec<App> {
    let app = |slug: &str, url: String, level: AppSharingLevel| App {
        slug: slug.to_owned(),
        url,
        subdomain: true,
        sharing_level: level.into(),
        ..App::default()
    };
    let url = format!("http://localhost:{port}");
    vec![
        app("own", url.clone(), AppSharingLevel::Owner),
        app("org", url.clone(), AppSharingLevel::Owner),
        app("auth", url.clone(), AppSharingLevel::Authenticated),
        app("open", url.clone(), AppSharingLevel::Public),
        // Another host than loopback: its port is still opened in the workspace.
        app("far", format!("http://169.254.169.254:{port}"), AppSharingLevel::Public),
        app("base", format!("{url}/base/?folder=x"), AppSharingLevel::Public),
        app("low", "http://localhost:7".to_owned(), AppSharingLevel::Public),
        app("file", "file:///etc/passwd".to_owned(), AppSharingLevel::Public),
        app("closed", "http://localhost:9".to_owned(), AppSharingLevel::Public),
        App { external: true, ..app("ext", "https://example.com".to_owned(), AppSharingLevel::Public) },
        App {
            command: "echo from-the-template".to_owned(),
            ..app("cmd", String::new(), AppSharingLevel::Owner)
        },
    ]
}
