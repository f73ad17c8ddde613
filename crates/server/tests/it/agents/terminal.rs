//! The web terminal: what the agent is told, what passes, and how it ends (agent 5).

use std::net::SocketAddr;
use std::time::Duration;

use coder_api::paths;
use coder_domain::apps::PathAppRules;
use coder_domain::ids::AgentId;
use coder_server::App;
use coder_tailnet::node::TcpStream as TunnelStream;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;

use super::apps::{Site, with_apps};
use super::overlay::AgentNode;

/// The agent's port of terminals.
const PORT: u16 = 2;

pub(super) type Browser = WebSocketStream<TcpStream>;

/// A listening server, and an agent whose terminals the test serves.
struct Terminals {
    site: Site,
    app: App,
    address: SocketAddr,
    stop: CancellationToken,
    opened: mpsc::Receiver<TunnelStream>,
    node: AgentNode,
}

impl Terminals {
    async fn start() -> Self {
        let site = Site::start(with_apps(PathAppRules::default())).await;
        let (app, address, stop) = site.rig.server.listening_app(with_apps(PathAppRules::default())).await;
        let mut node = AgentNode::join(&app, site.rig.agent);
        let (sender, opened) = mpsc::channel(4);
        node.serve(PORT, move |stream| {
            let sender = sender.clone();
            async move { drop(sender.send(stream).await) }
        });
        Self { site, app, address, stop, opened, node }
    }

    fn path(&self, query: &str) -> String {
        format!("{}?reconnect={}{query}", paths::agent_pty(self.site.rig.agent), AgentId::NIL)
    }

    async fn connect(&self, token: &str, path: &str) -> Result<Browser, Error> {
        connect(self.address, token, path).await
    }

    /// A terminal of the owner, as the browser and the agent see it.
    async fn open(&mut self) -> (Browser, TunnelStream) {
        let browser = self.connect(&self.site.rig.owner, &self.path("")).await.unwrap();
        let mut terminal = self.opened.recv().await.unwrap();
        opening(&mut terminal).await;
        (browser, terminal)
    }
}

/// Opens a WebSocket.
pub(super) async fn connect(address: SocketAddr, token: &str, path: &str) -> Result<Browser, Error> {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    request.headers_mut().insert("coder-session-token", token.parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    client_async(request, stream).await.map(|(browser, _)| browser)
}

/// The first message to the agent.
async fn opening(terminal: &mut TunnelStream) -> Value {
    let length = terminal.read_u16_le().await.unwrap();
    let mut text = vec![0; length.into()];
    terminal.read_exact(&mut text).await.unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The messages until the end, and the code and reason of the end.
pub(super) async fn rest(mut browser: Browser) -> (Vec<u8>, u16, String) {
    let mut data = Vec::new();
    loop {
        match browser.next().await.unwrap().unwrap() {
            Message::Binary(more) => data.extend_from_slice(&more),
            Message::Close(Some(end)) => return (data, end.code.into(), end.reason.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_agent_is_told_what_to_open_and_bytes_pass_both_ways() {
    let mut terminals = Terminals::start().await;
    let owner = terminals.site.rig.owner.clone();
    let query = "&height=24&width=70&command=htop%20-d&container=c&container_user=u&backend_type=buffered";
    let mut browser = terminals.connect(&owner, &terminals.path(query)).await.unwrap();
    let mut terminal = terminals.opened.recv().await.unwrap();
    let wanted = json!({ "ID": AgentId::NIL, "Height": 24, "Width": 70, "Command": "htop -d", "Container": "c",
        "ContainerUser": "u", "BackendType": "buffered" });
    assert_eq!(opening(&mut terminal).await, wanted);
    browser.send(Message::Binary(b"ab".as_slice().into())).await.unwrap();
    browser.send(Message::Ping(b"x".as_slice().into())).await.unwrap();
    browser.send(Message::Text("cd".into())).await.unwrap();
    let mut typed = [0; 4];
    terminal.read_exact(&mut typed).await.unwrap();
    assert_eq!(&typed, b"abcd");
    let output: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
    let mut shown = Vec::new();
    let show = async {
        while shown.len() < output.len() {
            match browser.next().await.unwrap().unwrap() {
                Message::Binary(data) => {
                    assert!(data.len() <= 16 << 10, "{}", data.len());
                    shown.extend_from_slice(&data);
                }
                Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let (written, ()) = tokio::join!(terminal.write_all(&output), show);
    written.unwrap();
    assert!(shown == output);
    terminal.write_all(b"bye").await.unwrap();
    terminal.shutdown().await.unwrap();
    assert_eq!(rest(browser).await, (b"bye".to_vec(), 1000, "the program ended".to_owned()));
    terminals.stop.cancel();
}

#[tokio::test]
async fn a_terminal_without_a_size_has_80_rows_and_columns() {
    let mut terminals = Terminals::start().await;
    let _browser = terminals.connect(&terminals.site.rig.owner, &terminals.path("")).await.unwrap();
    let mut terminal = terminals.opened.recv().await.unwrap();
    let told = opening(&mut terminal).await;
    assert_eq!((&told["Height"], &told["Width"], &told["Command"]), (&80.into(), &80.into(), &"".into()));
    terminals.stop.cancel();
}

#[tokio::test]
async fn a_terminal_ends_with_the_session_the_server_and_the_connection_to_the_agent() {
    let mut terminals = Terminals::start().await;
    let server = &terminals.site.rig.server;
    let session = server.login("admin@example.com").await;
    let (browser, terminal) = terminals.open().await;
    let path = terminals.path("");
    let of_session = terminals.connect(&session, &path).await.unwrap();
    let _held = terminals.opened.recv().await.unwrap();
    assert_eq!(terminals.app.network.users.len(), 2);
    let server = &terminals.site.rig.server;
    server.post(&session, "/api/v2/users/logout", json!({})).await.expect(200);
    coder_server::network::revoke::ended_tokens(&terminals.app).await.unwrap();
    assert_eq!(rest(of_session).await, (Vec::new(), 1008, "your right to connect has ended".to_owned()));
    terminal.abort();
    assert_eq!(rest(browser).await, (Vec::new(), 1011, "the connection to the agent broke".to_owned()));
    let (browser, _terminal) = terminals.open().await;
    terminals.stop.cancel();
    assert_eq!(rest(browser).await, (Vec::new(), 1001, "the server stops".to_owned()));
}

#[tokio::test]
async fn an_agent_without_terminals_is_said_to_have_none() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let (app, address, stop) = site.rig.server.listening_app(with_apps(PathAppRules::default())).await;
    let node = AgentNode::join(&app, site.rig.agent);
    let (_, opened) = mpsc::channel(1);
    let terminals = Terminals { site, app, address, stop, opened, node };
    let browser = terminals.connect(&terminals.site.rig.owner, &terminals.path("")).await.unwrap();
    let reason = "dial workspace agent: nothing listens on port 2 in the workspace";
    assert_eq!(rest(browser).await, (Vec::new(), 1011, reason.to_owned()));
    assert_eq!(terminals.node.peers(), 1);
    terminals.stop.cancel();
}

#[tokio::test]
async fn a_browser_that_leaves_ends_the_terminal_of_its_agent() {
    let mut terminals = Terminals::start().await;
    let (mut browser, mut terminal) = terminals.open().await;
    browser.close(None).await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(60), terminal.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.is_empty());
    coder_testkit::wait::eventually("it is not counted any more", || terminals.app.network.users.is_empty())
        .await;
    terminals.stop.cancel();
}

#[tokio::test]
async fn terminals_are_for_those_who_may_connect() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let (server, owner, agent) = (&site.rig.server, &site.rig.owner, site.rig.agent);
    let bob = server.user(owner, "bob", &[]).await;
    let weak = json!({ "scopes": ["coder:application_connect"] });
    let weak = server.post(owner, "/api/v2/users/me/keys/tokens", weak).await.expect(201);
    let weak = weak["key"].as_str().unwrap();
    let bare = paths::agent_pty(agent);
    let good = format!("{bare}?reconnect={agent}");
    for token in ["", "x-y", &bob, weak] {
        assert_eq!(server.get(token, &good).await.status, 404, "{token}");
    }
    let unknown = paths::agent_pty(AgentId::random());
    assert_eq!(server.get(owner, &format!("{unknown}?reconnect={agent}")).await.status, 404);
    assert_eq!(server.get(owner, &good).await.status, 426, "everything but the upgrade is right");
    let long = |bytes: usize| "x".repeat(bytes);
    for (query, field, detail) in [
        ("", "reconnect", "It must be a UUID."),
        (&*format!("?reconnect={agent}&backend_type=vim"), "backend_type", "It must be screen or buffered."),
        (&*format!("?reconnect={agent}&command={}", long(16_385)), "command", "It is too long."),
        (&*format!("?reconnect={agent}&container={}", long(16_385)), "container", "It is too long."),
        (
            &*format!("?reconnect={agent}&container_user={}", long(16_385)),
            "container_user",
            "It is too long.",
        ),
        (&*format!("?reconnect={agent}&backend_type={}", long(16_385)), "backend_type", "It is too long."),
    ] {
        let refused = server.get(owner, &format!("{bare}{query}")).await.expect(400);
        assert_eq!(refused["validations"], json!([{ "field": field, "detail": detail }]), "{field}");
    }
    for bad in
        ["reconnect=x", &format!("reconnect={agent}&height=-1"), &format!("reconnect={agent}&width=70000")]
    {
        assert_eq!(server.get(owner, &format!("{bare}?{bad}")).await.status, 400, "{bad}");
    }
    for kind in ["", "buffered", "screen"] {
        assert_eq!(server.get(owner, &format!("{good}&backend_type={kind}")).await.status, 426, "{kind}");
    }
    assert_eq!(server.get(owner, &format!("{good}&command={}", long(16_384))).await.status, 426);
    // Each text is short enough, but not all of them together: backslashes are escaped.
    let escaped = "\\".repeat(16_384);
    let refused =
        server.get(owner, &format!("{good}&command={escaped}&container={escaped}")).await.expect(400);
    assert_eq!(refused["message"], "The parameters are too long.");
    let cookie = format!("coder_session_token={owner}");
    for (origin, status) in [("http://coder.test", 426), ("https://evil.test", 403), ("null", 403)] {
        let headers = [("cookie", &*cookie), ("origin", origin), ("upgrade", "websocket")];
        assert_eq!(
            site.ask(http::Method::GET, "coder.test", &good, &headers).await.status,
            status,
            "{origin}"
        );
    }
    server.execute("delete from workspace_agent_connections").await;
    let refused = server.get(owner, &good).await.expect(404);
    assert_eq!(refused["message"], "The agent is not connected.");
}

#[tokio::test]
async fn the_page_asks_before_it_runs_a_command_of_the_address() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let (server, owner, agent) = (&site.rig.server, &site.rig.owner, site.rig.agent);
    let bob = server.user(owner, "bob", &[]).await;
    let page = async |token: &str, path: &str| {
        let cookie = format!("coder_session_token={token}");
        site.ask(http::Method::GET, "coder.test", path, &[("cookie", &cookie)]).await
    };
    let login = site.get("", "coder.test", "/@admin/w/terminal").await;
    assert_eq!(login.status, 303);
    assert!(login.headers["location"].to_str().unwrap().ends_with("&redirect=%2F%40admin%2Fw%2Fterminal"));
    for (token, path, status) in [
        (&bob, "/@admin/w/terminal".to_owned(), 404),
        (owner, "/@none/w/terminal".to_owned(), 404),
        (owner, "/@admin/none/terminal".to_owned(), 404),
        (owner, "/@admin/w.none/terminal".to_owned(), 404),
        (owner, format!("/@bob/{}/terminal", site.rig.workspace), 404),
        (owner, "/@admin/w/terminal?app=none".to_owned(), 404),
        (owner, "/@admin/w/terminal?app=web".to_owned(), 404),
        (owner, format!("/@admin/w/terminal?command={}", "x".repeat(8193)), 400),
        (owner, format!("/@admin/w/terminal?command={}", "x".repeat(8192)), 200),
        (owner, "/@admin/w.MAIN/terminal".to_owned(), 200),
        (owner, format!("/@{}/{}/terminal", server.user_id(owner).await, site.rig.workspace), 200),
    ] {
        let path_start = &path[..path.len().min(60)];
        assert_eq!(page(token, &path).await.status, status, "{path_start}");
    }
    let post = site.ask(http::Method::POST, "coder.test", "/@admin/w/terminal", &[]).await;
    assert_eq!(post.status, 405);
    let asked = page(owner, "/@admin/w/terminal?command=%3Cb%3E%22").await.text();
    assert!(asked.contains(&agent.to_string()) && !asked.contains("<b>"), "{asked}");
    assert!(asked.contains(r#"data-ask="true""#), "{asked}");
    for path in
        ["/@admin/w/terminal", "/@admin/w/terminal?command=", "/@admin/w/terminal?app=cmd&command=evil"]
    {
        let shown = page(owner, path).await.text();
        assert!(shown.contains(r#"data-ask="false""#) && !shown.contains("evil"), "{shown}");
        assert_eq!(shown.contains("htop"), path.contains("app=cmd"), "{path}");
    }
    site.rig.build("stop").await;
    assert_eq!(page(owner, "/@admin/w/terminal").await.expect(400)["message"], "The workspace is stopped.");
}
