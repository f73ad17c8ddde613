//! Users' connections to the coordinator (agent 3.7): what they reach, and how they end.

use std::net::{SocketAddr, SocketAddrV6};
use std::sync::Arc;

use coder_api::paths;
use coder_domain::ids::AgentId;
use coder_server::App;
use coder_server::network::revoke;
use coder_tailnet::address;
use coder_tailnet::controller::{self, Controller};
use coder_tailnet::derp::DerpMap;
use coder_tailnet::messages::coordinate_request::Tunnel;
use coder_tailnet::messages::workspace::Status;
use coder_tailnet::messages::{
    CoordinateRequest, CoordinateResponse, DerpMap as DerpMapMessage, RefreshResumeTokenResponse,
    StreamDerpMapsRequest, TelemetryRequest, TelemetryResponse, WorkspaceUpdate, WorkspaceUpdatesRequest,
};
use coder_tailnet::node::{Config, Node};
use coder_tailnet::peer::Role;
use coder_tailnet::rpc::{self, name};
use coder_testkit::wait::{WAIT_LIMIT, eventually};
use coder_wire::drpc::Error;
use coder_wire::drpc::client::{Call, unary};
use coder_wire::mux;
use coder_wire::ws::{Socket, handshake};
use http::{HeaderMap, HeaderName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::overlay::{AgentNode, InMemory, REGION};
use super::rig::{Rig, insert_agent};
use crate::harness::{START, TestServer, settings};

/// A listening server with a workspace.
struct Place {
    rig: Rig,
    app: App,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Place {
    async fn start() -> Self {
        let rig = Rig::new(TestServer::sqlite().await).await;
        let (app, address, stop) = rig.server.listening_app(settings()).await;
        Self { rig, app, address, stop }
    }

    /// A session with the Tailnet service.
    async fn dial(&self, token: &str, path: &str) -> Result<mux::Session, handshake::Error> {
        let uri = format!("http://{}{path}", self.address).parse().unwrap();
        let name = HeaderName::from_static("coder-session-token");
        let headers = HeaderMap::from_iter([(name, token.parse().unwrap())]);
        let stream = TcpStream::connect(self.address).await.unwrap();
        let upgraded = handshake::client(stream, &uri, &headers).await?;
        Ok(mux::Session::client(upgraded, mux::Config::default()))
    }

    async fn to_agent(&self, more: &str) -> mux::Session {
        let path = format!("{}?version=2.0{more}", paths::agent_coordinate(self.rig.agent));
        self.dial(&self.rig.owner, &path).await.unwrap()
    }
}

/// The coordinator's call on a session.
async fn coordinate(
    session: &mux::Session,
) -> (mpsc::Sender<CoordinateRequest>, mpsc::Receiver<CoordinateResponse>, JoinHandle<Result<(), Error>>) {
    let (requests, outgoing) = mpsc::channel(8);
    let (incoming, responses) = mpsc::channel(8);
    let call = tokio::spawn(rpc::coordinate(session.open().await.unwrap(), outgoing, incoming));
    (requests, responses, call)
}

/// The call that sends the map of relays.
async fn derp_maps(session: &mux::Session) -> Call<mux::Stream> {
    let mut call = Call::new(session.open().await.unwrap(), name::STREAM_DERP_MAPS);
    call.send(&StreamDerpMapsRequest {}).await.unwrap();
    call.close_send().await.unwrap();
    call
}

fn tunnel(agent: AgentId) -> CoordinateRequest {
    let tunnel = Tunnel { id: agent.0.as_bytes().to_vec() };
    CoordinateRequest { add_tunnel: Some(tunnel), ..CoordinateRequest::default() }
}

#[tokio::test]
async fn a_user_reaches_the_agent_until_the_session_ends() {
    let place = Place::start().await;
    let mut agent = AgentNode::join(&place.app, place.rig.agent);
    agent.serve(7, async |stream| {
        let (mut output, mut input) = tokio::io::split(stream);
        let _ = tokio::io::copy(&mut output, &mut input).await;
    });
    let session = place.to_agent("").await;
    let node = Node::start(Config::client(REGION, Arc::new(InMemory(place.app.network.relay.clone()))));
    let mut controller = Controller::new(node.clone(), Role::Client);
    controller.add_destination(place.rig.agent.0);
    let (requests, mut responses, _call) = coordinate(&session).await;
    let ended = tokio::spawn(async move { controller.run(&requests, &mut responses).await });
    let to = address::of(place.rig.agent.0);
    node.wait_reachable(to, WAIT_LIMIT).await.unwrap();
    let mut stream = node.connect(SocketAddrV6::new(to, 7, 0, 0)).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    assert_eq!((place.app.network.users.len(), agent.peers()), (1, 1));
    place.rig.server.post(&place.rig.owner, "/api/v2/users/logout", json!({})).await.expect(200);
    revoke::ended_tokens(&place.app).await.unwrap();
    let ended = tokio::time::timeout(WAIT_LIMIT, ended).await.unwrap().unwrap();
    assert!(
        matches!(&ended, Err(controller::Error::Refused(text)) if text.starts_with("authorization: ")),
        "{ended:?}"
    );
    eventually("the agent forgets the user", || agent.peers() == 0).await;
    eventually("the connection is not counted any more", || place.app.network.users.is_empty()).await;
    place.stop.cancel();
}

#[tokio::test]
async fn a_resume_token_keeps_the_peer_and_is_the_users_own() {
    let place = Place::start().await;
    let first = place.to_agent("").await;
    let (_requests, mut responses, call) = coordinate(&first).await;
    eventually("the first peer is there", || place.app.network.hub.peers() == 1).await;
    let token: RefreshResumeTokenResponse =
        rpc::refresh_resume_token(first.open().await.unwrap()).await.unwrap();
    assert_eq!(token.refresh_in.unwrap().seconds, 12 * 3600);
    assert_eq!(token.expires_at.unwrap().seconds, START.as_second() + 24 * 3600);
    let second = place.to_agent(&format!("&resume_token={}", token.token)).await;
    let (_again, _responses, _held) = coordinate(&second).await;
    let response = tokio::time::timeout(WAIT_LIMIT, responses.recv()).await.unwrap().unwrap();
    assert_eq!(response.error, "peer ID overwritten by new connection");
    call.await.unwrap().unwrap();
    assert_eq!(place.app.network.hub.peers(), 1);
    // An empty one is none.
    let third = place.to_agent("&resume_token=").await;
    let (_other, _more, _held) = coordinate(&third).await;
    eventually("it is another peer", || place.app.network.hub.peers() == 2).await;
    let root = place.rig.server.user(&place.rig.owner, "root", &["owner"]).await;
    let path = paths::agent_coordinate(place.rig.agent);
    for (user, token) in [(&place.rig.owner, "x.y.z"), (&root, &token.token)] {
        let refused = place.rig.server.get(user, &format!("{path}?version=2.0&resume_token={token}")).await;
        let body = refused.expect(401);
        assert_eq!(
            (&body["message"], &body["validations"][0]["field"]),
            (&"Invalid resume token".into(), &"resume_token".into())
        );
    }
    place.stop.cancel();
}

#[tokio::test]
async fn calls_that_a_connection_does_not_have_are_refused() {
    let place = Place::start().await;
    let session = place.to_agent("").await;
    let _: TelemetryResponse =
        unary(session.open().await.unwrap(), name::POST_TELEMETRY, &TelemetryRequest::default())
            .await
            .unwrap();
    let mut maps = derp_maps(&session).await;
    let first: DerpMapMessage = maps.recv().await.unwrap().unwrap();
    assert!(DerpMap::from_message(first).relay(999).is_some());
    for missing in [name::WORKSPACE_UPDATES, "/coder.tailnet.v2.Tailnet/Nothing"] {
        let stream = session.open().await.unwrap();
        let refused = unary::<TelemetryResponse>(stream, missing, &TelemetryRequest::default()).await;
        let Err(Error::Refused(status)) = refused else { panic!("not refused") };
        assert_eq!(
            (status.code, status.text),
            (12, format!("the method {missing} does not exist on this connection"))
        );
    }
    // The agent is the only one that the connection reaches.
    let (requests, mut responses, call) = coordinate(&session).await;
    requests.send(tunnel(AgentId::random())).await.unwrap();
    assert!(responses.recv().await.unwrap().error.starts_with("authorization: "));
    call.await.unwrap().unwrap();
    place.stop.cancel();
}

#[tokio::test]
async fn calls_of_one_connection_are_bounded() {
    let place = Place::start().await;
    let session = place.to_agent("").await;
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut call = derp_maps(&session).await;
        assert!(call.recv::<DerpMapMessage>().await.unwrap().is_some());
        held.push(call);
    }
    let further: Result<TelemetryResponse, _> =
        unary(session.open().await.unwrap(), name::POST_TELEMETRY, &TelemetryRequest::default()).await;
    let Err(Error::Refused(status)) = further else { panic!("{further:?}") };
    assert_eq!(status.text, "too many calls at once on this connection; wait for one to end");
    place.stop.cancel();
}

#[tokio::test]
async fn a_client_of_all_workspaces_learns_of_their_agents_and_reaches_them() {
    let place = Place::start().await;
    let Rig { server, owner, template, workspace, agent, .. } = &place.rig;
    let user = server.user_id(owner).await;
    let dev = server.user(owner, "dev", &[]).await;
    let (_, _, foreign) = server.workspace(&dev, *template, "foreign").await;
    let (foreign, ..) = insert_agent(server, foreign).await;
    let session = place.dial(owner, &format!("{}?version=2.3", paths::TAILNET)).await.unwrap();
    let mut updates = Call::new(session.open().await.unwrap(), name::WORKSPACE_UPDATES);
    let whose = |id: uuid::Uuid| WorkspaceUpdatesRequest { workspace_owner_id: id.as_bytes().to_vec() };
    updates.send(&whose(user.0)).await.unwrap();
    let first: WorkspaceUpdate = updates.recv().await.unwrap().unwrap();
    let workspaces = |update: &WorkspaceUpdate| -> Vec<_> {
        update.upserted_workspaces.iter().map(|one| (one.name.clone(), one.status())).collect()
    };
    assert_eq!(workspaces(&first), [("w".to_owned(), Status::Running)]);
    assert_eq!(first.upserted_workspaces[0].id, workspace.0.as_bytes());
    let agents: Vec<_> = first.upserted_agents.iter().collect();
    assert_eq!((&*agents[0].name, agents.len()), ("main", 1));
    assert_eq!(
        (&*agents[0].id, &*agents[0].workspace_id),
        (&agent.0.as_bytes()[..], &workspace.0.as_bytes()[..])
    );
    // Another one, and the end of the first.
    let (second, _, job) = server.workspace(owner, *template, "second").await;
    place.app.events.workspace_changed(second.parse().unwrap());
    let added: WorkspaceUpdate = updates.recv().await.unwrap().unwrap();
    assert_eq!(workspaces(&added), [("second".to_owned(), Status::Pending)]);
    assert!(added.upserted_agents.is_empty() && added.deleted_workspaces.is_empty());
    server.finish(job, "").await;
    let (later, ..) = insert_agent(server, job).await;
    server.execute(&format!("update workspaces set deleted = true where id = '{workspace}'")).await;
    place.app.events.workspace_changed(*workspace);
    let changed: WorkspaceUpdate = updates.recv().await.unwrap().unwrap();
    assert_eq!(workspaces(&changed), [("second".to_owned(), Status::Running)]);
    assert_eq!(changed.upserted_agents[0].id, later.0.as_bytes());
    let gone = (&changed.deleted_workspaces[0].id, &changed.deleted_agents[0].id);
    assert_eq!(gone, (&workspace.0.as_bytes().to_vec(), &agent.0.as_bytes().to_vec()));
    // Somebody else's workspaces are not shown, and not reached.
    let mut others = Call::new(session.open().await.unwrap(), name::WORKSPACE_UPDATES);
    others.send(&whose(uuid::Uuid::new_v4())).await.unwrap();
    let Err(Error::Refused(status)) = others.recv::<WorkspaceUpdate>().await else { panic!("not refused") };
    assert_eq!(status.text, "only the own workspaces can be watched");
    let node = AgentNode::join(&place.app, later);
    let (requests, mut responses, _call) = coordinate(&session).await;
    requests.send(tunnel(later)).await.unwrap();
    let response = tokio::time::timeout(WAIT_LIMIT, responses.recv()).await.unwrap().unwrap();
    assert_eq!(response.peer_updates[0].node.as_ref().unwrap().key, node.key());
    requests.send(tunnel(foreign)).await.unwrap();
    assert!(responses.recv().await.unwrap().error.starts_with("authorization: "));
    // Whoever may have lost rights begins again.
    revoke::users(&place.app, &[user]).await.unwrap();
    let more = tokio::time::timeout(WAIT_LIMIT, updates.recv::<WorkspaceUpdate>()).await.unwrap();
    assert!(!matches!(more, Ok(Some(_))), "{more:?}");
    place.stop.cancel();
}

#[tokio::test]
async fn agents_of_others_do_not_exist() {
    let rig = Rig::new(TestServer::sqlite().await).await;
    let dev = rig.server.user(&rig.owner, "dev", &[]).await;
    for agent in [rig.agent, AgentId::random()] {
        let connection = format!("/api/v2/workspaceagents/{agent}/connection");
        rig.server.get(&dev, &connection).await.expect(404);
        rig.server.get(&dev, &format!("{}?version=2.0", paths::agent_coordinate(agent))).await.expect(404);
    }
    let path = paths::agent_coordinate(rig.agent);
    for (query, status) in [("", 400), ("?version=1.0", 400), ("?version=2.8", 400), ("?version=2.7", 426)] {
        assert_eq!(rig.server.get(&rig.owner, &format!("{path}{query}")).await.status, status, "{query}");
    }
    assert_eq!(rig.server.get(&rig.owner, paths::TAILNET).await.status, 426);
    rig.server.get(&rig.owner, &format!("{}?version=3.0", paths::TAILNET)).await.expect(400);
}

#[tokio::test]
async fn connections_of_one_user_are_bounded() {
    let rig = Rig::new(TestServer::sqlite().await).await;
    let mut config = settings();
    config.tailnet.user_connections = 1;
    let (app, address, stop) = rig.server.listening_app(config).await;
    let place = Place { rig, app, address, stop };
    let _held = place.to_agent("").await;
    let path = format!("{}?version=2.0", paths::agent_coordinate(place.rig.agent));
    let refused = place.dial(&place.rig.owner, &path).await;
    assert!(matches!(&refused, Err(handshake::Error::Refused { status, .. }) if *status == 429));
    place.stop.cancel();
}

#[tokio::test]
async fn an_older_client_gets_the_map_of_relays_once() {
    let place = Place::start().await;
    let uri = format!("http://{}/api/v2/derp-map", place.address).parse().unwrap();
    let stream = TcpStream::connect(place.address).await.unwrap();
    let mut socket: Socket<TcpStream> = handshake::client(stream, &uri, &HeaderMap::new()).await.unwrap();
    let mut text = Vec::new();
    let map = loop {
        assert!(socket.read_buf(&mut text).await.unwrap() > 0);
        if let Ok(map) = serde_json::from_slice::<serde_json::Value>(&text) {
            break map;
        }
    };
    let info = place.rig.server.get(&place.rig.owner, "/api/v2/workspaceagents/connection").await.expect(200);
    assert_eq!(map["Regions"]["999"]["RegionID"], info["derp_map"]["Regions"]["999"]["RegionID"]);
    assert_eq!(map["Regions"]["999"]["Nodes"][0]["DERPPort"], place.address.port());
    place.stop.cancel();
}
