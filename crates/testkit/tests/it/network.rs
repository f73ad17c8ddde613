//! The overlay network through a real server: users reach agents over its relay and coordinator, and only those that they may.

use std::io;
use std::net::SocketAddrV6;
use std::time::Duration;

use coder_api::client::{Client, Error, Options};
use coder_api::paths;
use coder_api::users::{CreateUserRequest, UserStatus};
use coder_domain::ids::AgentId;
use coder_domain::secret::Secret;
use coder_tailnet::address;
use coder_tailnet::controller;
use coder_tailnet::derp::upgrade::{self, Form};
use coder_tailnet::messages::coordinate_request::Tunnel;
use coder_tailnet::messages::{CoordinateRequest, WorkspaceUpdate, WorkspaceUpdatesRequest};
use coder_tailnet::node::Node;
use coder_tailnet::rpc::{self, name};
use coder_testkit::server::{TestServer, settings};
use coder_testkit::tailnet::{AgentPeer, RelayDialer, UserPeer, coordinate, workspace_with_agent};
use coder_testkit::wait::eventually;
use coder_wire::drpc::client::Call;
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "SomeSecurePassword!";

/// Echoes on one port until the node is closed.
pub(crate) fn echo(node: &Node, port: u16) -> JoinHandle<()> {
    let mut listener = node.listen(port).unwrap();
    tokio::spawn(async move {
        while let Some(stream) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                    let _ = writer.shutdown().await;
                }
            });
        }
    })
}

/// A user of their own, logged in.
pub(crate) async fn member(server: &TestServer, name: &str) -> Client {
    let request = CreateUserRequest {
        email: format!("{name}@example.com"),
        username: name.to_owned(),
        password: Secret::new(PASSWORD),
        user_status: Some(UserStatus::Active),
        organization_ids: vec![server.handle.app.default_organization],
        ..serde_json::from_str("{}").unwrap()
    };
    server.owner.create_user(&request).await.unwrap();
    let anybody = Client::new(&server.url(), None, Options::default()).unwrap();
    let token = anybody.login(&request.email, Secret::new(PASSWORD)).await.unwrap();
    anybody.with_token(Some(token))
}

fn status<T>(result: Result<T, Error>) -> StatusCode {
    result.err().and_then(|error| error.status()).expect("the server refuses")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_reaches_an_agent_over_both_forms_of_the_relay() {
    let server = TestServer::start().await.unwrap();
    let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
    for form in [Form::Derp, Form::WebSocket] {
        let peer = AgentPeer::start(&server, agent, form);
        let _echo = echo(&peer.node, 7);
        let user = UserPeer::dial(&server.owner, agent, form).await.unwrap();
        user.node.wait_reachable(address::of(agent.0), WAIT_LIMIT).await.unwrap();
        let to = SocketAddrV6::new(address::of(agent.0), 7, 0, 0);
        let mut stream = user.node.connect(to).await.unwrap();
        let data = vec![7; 1 << 20];
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let send = async {
            writer.write_all(&data).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let ((), read) = tokio::join!(send, reader.read_to_end(&mut got));
        read.unwrap();
        assert!(got == data);
    }
    assert!(server.handle.app.network.relay.counts().bytes > 4 << 20, "all of it went through the relay");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn connection_info_has_the_relay_of_the_server() {
    let server = TestServer::start().await.unwrap();
    let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
    let info = server.owner.agent_connection(agent).await.unwrap();
    assert_eq!(info, server.owner.agents_connection().await.unwrap());
    let node = &info.derp_map["Regions"]["999"]["Nodes"][0];
    assert_eq!(node["HostName"], "127.0.0.1");
    assert_eq!(node["DERPPort"], server.handle.http.unwrap().port());
    assert_eq!(node["ForceHTTP"], true);
    assert_eq!(info.hostname_suffix, "coder");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn agents_of_others_do_not_exist() {
    let server = TestServer::start().await.unwrap();
    let eve = member(&server, "eve").await;
    let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
    let version = [("version", "2.0")];
    for agent in [agent, AgentId::random()] {
        assert_eq!(status(eve.agent_connection(agent).await), 404);
        assert_eq!(status(coordinate(&eve, &paths::agent_coordinate(agent), &version).await), 404);
    }
    let nobody = eve.with_token(None);
    assert_eq!(status(coordinate(&nobody, &paths::agent_coordinate(agent), &version).await), 401);
    assert_eq!(status(coordinate(&nobody, paths::TAILNET, &[]).await), 401);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn unknown_versions_and_foreign_resume_tokens_are_refused() {
    let server = TestServer::start().await.unwrap();
    let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
    let path = paths::agent_coordinate(agent);
    for query in [&[][..], &[("version", "1.0")], &[("version", "2.8")], &[("version", "x")]] {
        let error = coordinate(&server.owner, &path, query).await.unwrap_err();
        assert_eq!(error.status(), Some(StatusCode::BAD_REQUEST), "{query:?}");
        let body = error.body().unwrap();
        assert_eq!(body.message, "Unknown or unsupported API version");
        assert_eq!(body.validations[0].field, "version");
    }
    let error = coordinate(&server.owner, &path, &[("version", "2.0"), ("resume_token", "x.y.z")]).await;
    let error = error.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::UNAUTHORIZED));
    let body = error.body().unwrap();
    assert_eq!(
        (body.message.as_str(), body.validations[0].field.as_str()),
        ("Invalid resume token", "resume_token")
    );
    server.stop().await.unwrap();
}

/// agent 3.4, 3.7.
#[tokio::test]
async fn resume_token_keeps_the_peer_id() {
    let server = TestServer::start().await.unwrap();
    let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
    let path = paths::agent_coordinate(agent);
    let first = coordinate(&server.owner, &path, &[("version", "2.0")]).await.unwrap();
    let (_requests, outgoing) = mpsc::channel(8);
    let (incoming, mut responses) = mpsc::channel(8);
    let call = tokio::spawn(rpc::coordinate(first.open().await.unwrap(), outgoing, incoming));
    eventually("the first peer is there", || server.handle.app.network.hub.peers() == 1).await;
    let token = rpc::refresh_resume_token(first.open().await.unwrap()).await.unwrap();
    assert_eq!(token.refresh_in.unwrap().seconds, 12 * 3600);
    let query = [("version", "2.0"), ("resume_token", token.token.as_str())];
    let second = coordinate(&server.owner, &path, &query).await.unwrap();
    let (_requests, outgoing) = mpsc::channel(8);
    let (incoming, _responses) = mpsc::channel(8);
    let again = tokio::spawn(rpc::coordinate(second.open().await.unwrap(), outgoing, incoming));
    // The same peer connected again, so the older connection ends.
    let response = tokio::time::timeout(WAIT_LIMIT, responses.recv()).await.unwrap().unwrap();
    assert_eq!(response.error, "peer ID overwritten by new connection");
    call.await.unwrap().unwrap();
    again.abort();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn connection_to_one_agent_reaches_no_other() {
    let server = TestServer::start().await.unwrap();
    let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
    let (_, other) = workspace_with_agent(&server, &server.owner, "other").await.unwrap();
    let path = paths::agent_coordinate(agent);
    let session = coordinate(&server.owner, &path, &[("version", "2.0")]).await.unwrap();
    let (requests, outgoing) = mpsc::channel(8);
    let (incoming, mut responses) = mpsc::channel(8);
    let call = tokio::spawn(rpc::coordinate(session.open().await.unwrap(), outgoing, incoming));
    let tunnel = Some(Tunnel { id: other.0.as_bytes().to_vec() });
    requests.send(CoordinateRequest { add_tunnel: tunnel, ..CoordinateRequest::default() }).await.unwrap();
    assert!(responses.recv().await.unwrap().error.starts_with("authorization: "));
    call.await.unwrap().unwrap();
    server.stop().await.unwrap();
}

/// Whoever may not connect any more loses the tunnel at once, and open connections with it.
async fn loses_the_tunnel(server: &TestServer, bob: &Client, ends: impl AsyncFnOnce()) {
    let (_, agent) = workspace_with_agent(server, bob, "dev").await.unwrap();
    let peer = AgentPeer::start(server, agent, Form::Derp);
    let _echo = echo(&peer.node, 7);
    let user = UserPeer::dial(bob, agent, Form::Derp).await.unwrap();
    user.node.wait_reachable(address::of(agent.0), WAIT_LIMIT).await.unwrap();
    let mut stream = user.node.connect(SocketAddrV6::new(address::of(agent.0), 7, 0, 0)).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    assert_eq!(peer.node.peers(), 1);
    ends().await;
    let ended = tokio::time::timeout(WAIT_LIMIT, user.ended).await.expect("in time").unwrap();
    assert!(
        matches!(&ended, Err(controller::Error::Refused(text)) if text.starts_with("authorization: ")),
        "{ended:?}"
    );
    eventually("the agent forgets the user", || peer.node.peers() == 0).await;
    eventually("the connection is not counted any more", || server.handle.app.network.users.is_empty()).await;
    assert!(UserPeer::dial(bob, agent, Form::Derp).await.is_err());
}

#[tokio::test]
async fn suspended_user_loses_the_tunnel() {
    let server = TestServer::start().await.unwrap();
    let bob = member(&server, "bob").await;
    loses_the_tunnel(&server, &bob, async || {
        let id = bob.user("me").await.unwrap().id;
        server.owner.suspend_user(id).await.unwrap();
    })
    .await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn logged_out_user_loses_the_tunnel() {
    let server = TestServer::start().await.unwrap();
    let bob = member(&server, "bob").await;
    loses_the_tunnel(&server, &bob, async || bob.logout().await.unwrap()).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn desktop_client_learns_of_its_workspaces_and_reaches_them() {
    let server = TestServer::start().await.unwrap();
    let bob = member(&server, "bob").await;
    let (foreign, _) = workspace_with_agent(&server, &server.owner, "foreign").await.unwrap();
    let (workspace, agent) = workspace_with_agent(&server, &bob, "dev").await.unwrap();
    let session = coordinate(&bob, paths::TAILNET, &[("version", "2.3")]).await.unwrap();
    let mut updates = Call::new(session.open().await.unwrap(), name::WORKSPACE_UPDATES);
    let owner = workspace.owner_id.0.as_bytes().to_vec();
    updates.send(&WorkspaceUpdatesRequest { workspace_owner_id: owner }).await.unwrap();
    let first: WorkspaceUpdate = updates.recv().await.unwrap().unwrap();
    let names = |update: &WorkspaceUpdate| -> Vec<_> {
        update.upserted_workspaces.iter().map(|workspace| workspace.name.clone()).collect()
    };
    assert_eq!(names(&first), ["dev"]);
    assert_eq!(first.upserted_agents[0].id, agent.0.as_bytes());
    let (_, later) = workspace_with_agent(&server, &bob, "later").await.unwrap();
    loop {
        let update: WorkspaceUpdate = updates.recv().await.unwrap().unwrap();
        assert!(names(&update).iter().all(|name| name == "later"));
        if update.upserted_agents.iter().any(|agent| agent.id == later.0.as_bytes()) {
            break;
        }
    }
    // Somebody else's workspaces are not shown.
    let mut others = Call::new(session.open().await.unwrap(), name::WORKSPACE_UPDATES);
    let owner = foreign.owner_id.0.as_bytes().to_vec();
    others.send(&WorkspaceUpdatesRequest { workspace_owner_id: owner }).await.unwrap();
    assert!(others.recv::<WorkspaceUpdate>().await.is_err());
    // The new agent may be reached; somebody else's ends the connection.
    let (requests, outgoing) = mpsc::channel(8);
    let (incoming, mut responses) = mpsc::channel(8);
    tokio::spawn(rpc::coordinate(session.open().await.unwrap(), outgoing, incoming));
    let tunnel = |agent: AgentId| CoordinateRequest {
        add_tunnel: Some(Tunnel { id: agent.0.as_bytes().to_vec() }),
        ..CoordinateRequest::default()
    };
    let peer = AgentPeer::start(&server, later, Form::Derp);
    requests.send(tunnel(later)).await.unwrap();
    let response = tokio::time::timeout(WAIT_LIMIT, responses.recv()).await.unwrap().unwrap();
    assert_eq!(response.peer_updates[0].node.as_ref().unwrap().key, peer.node.message().key);
    requests.send(tunnel(AgentId::random())).await.unwrap();
    assert!(responses.recv().await.unwrap().error.starts_with("authorization: "));
    server.stop().await.unwrap();
}

/// A connection to the relay that says nothing after the upgrade.
async fn silent(server: &TestServer, form: Form) -> Result<coder_wire::bytes::BoxedStream, upgrade::Error> {
    let io = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
    let uri = format!("{}/derp", server.url()).parse().unwrap();
    upgrade::client(io, &uri, &HeaderMap::new(), form).await
}

#[tokio::test]
async fn one_network_cannot_take_all_connections_of_the_relay() {
    let mut config = settings();
    config.tailnet.relay_connections = 8;
    let server = TestServer::start_with(config, coder_store::testing::sqlite()).await.unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match silent(&server, if held.len() % 2 == 0 { Form::Derp } else { Form::WebSocket }).await {
            Ok(io) => held.push(io),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, upgrade::Error::Refused(StatusCode::SERVICE_UNAVAILABLE)), "{refused}");
    assert_eq!(held.len(), 4, "the others are left for other networks");
    // Everything else works on.
    assert!(server.owner.user("me").await.is_ok());
    held.clear();
    eventually("closed connections are not counted", || {
        server.handle.app.network.relay.counts().connections == 0
    })
    .await;
    assert!(silent(&server, Form::Derp).await.is_ok());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn garbage_ends_only_its_own_connection() {
    let server = TestServer::start().await.unwrap();
    let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
    let peer = AgentPeer::start(&server, agent, Form::Derp);
    peer.node.home_relay().wait_for(|is_up| *is_up).await.unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[2, 0xff, 0xff, 0xff, 0xff], &[0; 64]] {
        for form in [Form::Derp, Form::WebSocket] {
            let mut io = silent(&server, form).await.unwrap();
            let _ = io.write_all(garbage).await;
            let _ = io.flush().await;
            let mut all = Vec::new();
            let read =
                tokio::time::timeout(WAIT_LIMIT, io.read_to_end(&mut all)).await.expect("the relay ends it");
            assert!(read.is_ok() || read.is_err_and(|error| error.kind() != io::ErrorKind::TimedOut));
        }
    }
    let user = UserPeer::dial(&server.owner, agent, Form::Derp).await.unwrap();
    user.node.wait_reachable(address::of(agent.0), WAIT_LIMIT).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn relay_needs_an_upgrade() {
    let server = TestServer::start().await.unwrap();
    let ask = async |path: &str| {
        let mut io = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        io.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        io.read_to_string(&mut answer).await.unwrap();
        answer.to_ascii_lowercase()
    };
    let answer = ask("/derp").await;
    assert!(answer.starts_with("http/1.1 426 ") && answer.contains("\r\nupgrade: derp\r\n"), "{answer}");
    assert!(ask("/derp/latency-check").await.starts_with("http/1.1 200 "));
    assert!(ask("/api/v2/derp-map").await.starts_with("http/1.1 426 "));
    let upgraded = server.owner.websocket(paths::DERP_MAP, &[], &[]).await.unwrap();
    let mut socket = coder_wire::ws::Socket::client(upgraded.stream);
    let mut text = vec![0; 4096];
    let count = socket.read(&mut text).await.unwrap();
    let map: serde_json::Value = serde_json::from_slice(&text[..count]).unwrap();
    assert_eq!(map["Regions"]["999"]["EmbeddedRelay"], true);
    server.stop().await.unwrap();
}

/// A stopping server says so, and nodes connect to the next one.
#[tokio::test]
async fn stopping_server_ends_connections_to_the_relay() {
    let server = TestServer::start().await.unwrap();
    let client = server.owner.clone();
    let dialer = std::sync::Arc::new(RelayDialer { client, form: Form::Derp });
    let node = Node::start(coder_tailnet::node::Config::client(999, dialer));
    let mut home = node.home_relay();
    home.wait_for(|is_up| *is_up).await.unwrap();
    let stopped = tokio::time::timeout(WAIT_LIMIT, server.stop());
    stopped.await.expect("it does not wait for the relay's clients").unwrap();
    tokio::time::timeout(WAIT_LIMIT, home.wait_for(|is_up| !*is_up)).await.unwrap().unwrap();
}
