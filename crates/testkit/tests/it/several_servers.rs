//! Two servers on one Postgres: users of one reach agents of the other, as long as they may, and nobody else joins them.

use std::net::SocketAddrV6;
use std::time::Duration;

use coder_api::client::Client;
use coder_domain::ids::AgentId;
use coder_domain::secret::Secret;
use coder_store::testing;
use coder_tailnet::address;
use coder_tailnet::controller;
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::Relay;
use coder_tailnet::derp::relay::Config as RelayConfig;
use coder_tailnet::derp::upgrade::{self, Form};
use coder_tailnet::key::NodePrivate;
use coder_tailnet::mesh::{Error as MeshError, Mesh};
use coder_testkit::server::{TestServer, meshed, settings};
use coder_testkit::tailnet::{AgentPeer, UserPeer, workspace_with_agent};
use coder_testkit::wait::eventually;
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use crate::network::{echo, member};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Two servers that are connected to each other; none without Postgres.
async fn pair() -> Option<(TestServer, TestServer)> {
    let a = TestServer::start_with(meshed(), testing::postgres().await?).await.unwrap();
    let b = a.beside(meshed()).await.unwrap();
    until_connected(&[&a, &b]).await;
    Some((a, b))
}

/// Waits until each server is connected with all others.
async fn until_connected(servers: &[&TestServer]) {
    let others = servers.len() - 1;
    eventually("the servers are connected", || {
        servers.iter().all(|server| {
            let counts = server.handle.app.network.mesh.as_ref().unwrap().counts();
            (counts.dialled, counts.accepted) == (others, others)
        })
    })
    .await;
}

/// What `client` sends through port 7 of the agent comes back.
async fn talks(user: &UserPeer, agent: AgentId) -> coder_tailnet::node::TcpStream {
    user.node.wait_reachable(address::of(agent.0), WAIT_LIMIT).await.unwrap();
    let mut stream = user.node.connect(SocketAddrV6::new(address::of(agent.0), 7, 0, 0)).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_of_one_server_reaches_an_agent_of_the_other() {
    let Some((a, b)) = pair().await else { return };
    let (workspace, agent) = workspace_with_agent(&a, &a.owner, "dev").await.unwrap();
    let peer = AgentPeer::start(&a, agent, Form::Derp);
    let _echo = echo(&peer.node, 7);
    let user = UserPeer::dial(&b.owner, agent, Form::Derp).await.unwrap();
    let _stream = talks(&user, agent).await;
    let counts = |server: &TestServer| server.handle.app.network.relay.counts();
    assert!(counts(&a).remote_packets > 0 && counts(&b).remote_packets > 0);
    // The server itself reaches it, too: apps and terminals.
    let dialled = b.handle.app.network.server_node.dial(workspace.owner_id, agent, 7);
    let mut stream = timeout(WAIT_LIMIT, dialled).await.unwrap().unwrap();
    stream.write_all(b"y").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'y');
    b.stop().await.unwrap();
    a.stop().await.unwrap();
}

/// The right of `bob`, who is connected to one server, ends at the other.
async fn loses_the_tunnel(ends: impl AsyncFnOnce(&TestServer, &Client)) {
    let Some((a, b)) = pair().await else { return };
    let bob = member(&a, "bob").await;
    let (_, agent) = workspace_with_agent(&a, &bob, "dev").await.unwrap();
    let peer = AgentPeer::start(&a, agent, Form::Derp);
    let _echo = echo(&peer.node, 7);
    let there = b.owner.with_token(bob.token().cloned());
    let user = UserPeer::dial(&there, agent, Form::Derp).await.unwrap();
    let mut stream = talks(&user, agent).await;
    ends(&a, &bob).await;
    let ended = timeout(WAIT_LIMIT, user.ended).await.expect("in time").unwrap();
    assert!(
        matches!(&ended, Err(controller::Error::Refused(text)) if text.starts_with("authorization: ")),
        "{ended:?}"
    );
    eventually("the agent forgets the user", || peer.node.peers() == 0).await;
    // What is open inside the tunnel has no other end any more.
    assert!(
        stream.write_all(b"x").await.is_err()
            || timeout(Duration::from_secs(1), stream.read_u8()).await.is_err()
    );
    assert!(UserPeer::dial(&there, agent, Form::Derp).await.is_err());
    b.stop().await.unwrap();
    a.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_who_is_suspended_at_one_server_loses_the_tunnel_of_the_other() {
    loses_the_tunnel(async |a, bob| {
        let id = bob.user("me").await.unwrap().id;
        a.owner.suspend_user(id).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_who_leaves_the_organization_at_one_server_loses_the_tunnel_of_the_other() {
    loses_the_tunnel(async |a, bob| {
        let id = bob.user("me").await.unwrap().id.to_string();
        let organization = a.handle.app.default_organization;
        a.owner.remove_member(organization, &id).await.unwrap();
    })
    .await;
}

/// The agent's server is killed. The agent comes back at the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_of_a_killed_server_is_reached_at_another() {
    let Some((a, b)) = pair().await else { return };
    let c = a.beside(meshed()).await.unwrap();
    until_connected(&[&a, &b, &c]).await;
    let (_, agent) = workspace_with_agent(&a, &a.owner, "dev").await.unwrap();
    let peer = AgentPeer::start(&a, agent, Form::Derp);
    let _echo = echo(&peer.node, 7);
    let user = UserPeer::dial(&b.owner, agent, Form::Derp).await.unwrap();
    drop(talks(&user, agent).await);
    a.kill().await;
    drop(peer);
    let peer = AgentPeer::start(&c, agent, Form::Derp);
    let _echo = echo(&peer.node, 7);
    let user = UserPeer::dial(&b.owner, agent, Form::Derp).await.unwrap();
    drop(talks(&user, agent).await);
    eventually("the killed server is gone", || {
        [&b, &c].iter().all(|server| server.handle.app.network.mesh.as_ref().unwrap().counts().accepted == 1)
    })
    .await;
    c.stop().await.unwrap();
    b.stop().await.unwrap();
}

/// A stream to the path where servers connect.
async fn upgrade(server: &TestServer) -> Result<coder_wire::bytes::BoxedStream, upgrade::Error> {
    let io = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
    let uri = format!("{}/derp/mesh", server.url()).parse().unwrap();
    upgrade::client(io, &uri, &HeaderMap::new(), Form::Derp).await
}

fn stranger(secret: &str) -> Mesh {
    let relay = Relay::new(NodePrivate::generate(), RelayConfig::default());
    Mesh::new(Uuid::new_v4(), Secret::new(secret), relay, Hub::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_have_the_secret_is_no_server() {
    let Some((a, b)) = pair().await else { return };
    let before = a.handle.app.network.mesh.as_ref().unwrap().counts();
    for secret in ["", "guess"] {
        let io = upgrade(&a).await.unwrap();
        let other = a.handle.app.network.mesh.as_ref().unwrap().own();
        let refused = timeout(WAIT_LIMIT, stranger(secret).dial(io, other)).await.unwrap();
        assert!(
            matches!(refused, Err(MeshError::Secret | MeshError::Closed | MeshError::Io(_))),
            "{refused:?}"
        );
    }
    for garbage in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096], &[1; 4096]] {
        let mut io = upgrade(&a).await.unwrap();
        // The server may have closed it already.
        let _ = io.write_all(garbage).await;
        let _ = io.shutdown().await;
        let mut all = Vec::new();
        let _ = timeout(WAIT_LIMIT, io.read_to_end(&mut all)).await.expect("the server ends it");
    }
    assert_eq!(a.handle.app.network.mesh.as_ref().unwrap().counts(), before);
    b.stop().await.unwrap();
    a.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_server_has_no_path_for_others() {
    let sqlite = TestServer::start_with(meshed(), testing::sqlite()).await.unwrap();
    let refused = upgrade(&sqlite).await.err().unwrap();
    assert!(matches!(refused, upgrade::Error::Refused(StatusCode::NOT_FOUND)), "{refused}");
    sqlite.stop().await.unwrap();
    let Some(database) = testing::postgres().await else { return };
    let alone = TestServer::start_with(settings(), database).await.unwrap();
    let refused = upgrade(&alone).await.err().unwrap();
    assert!(matches!(refused, upgrade::Error::Refused(StatusCode::NOT_FOUND)), "{refused}");
    alone.stop().await.unwrap();
}

/// A server that stops leaves the list, so that nobody dials it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_server_is_not_listed() {
    let Some((a, b)) = pair().await else { return };
    b.stop().await.unwrap();
    let app = &a.handle.app;
    let own = app.network.mesh.as_ref().unwrap().own().to_string();
    let mut tx = app.store.reader().await.unwrap();
    let listed = coder_store::replicas::list_others(&mut tx, &own, coder_domain::Timestamp::UNIX_EPOCH, 10)
        .await
        .unwrap();
    assert_eq!(listed, []);
    drop(tx);
    eventually("it is not connected", || app.network.mesh.as_ref().unwrap().counts().accepted == 0).await;
    a.stop().await.unwrap();
}
