//! Several servers: their relays and coordinators in memory, connected as servers on one database are.

use std::time::Duration;

use coder_domain::secret::Secret;
use coder_tailnet::address;
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::coordinator::hub::{Connection, Hub};
use coder_tailnet::derp::frame::GoneReason;
use coder_tailnet::key::NodePrivate;
use coder_tailnet::mesh::{Error, Mesh};
use coder_tailnet::messages::coordinate_request::{ReadyForHandshake, Tunnel, UpdateSelf};
use coder_tailnet::messages::coordinate_response::peer_update::Kind;
use coder_tailnet::messages::{CoordinateRequest, CoordinateResponse, Node};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::node::{connection, exchange};
use super::relay::{Client, Owned};
use super::rig::{Network, paused};

const AGENT: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);
const LONG: Duration = Duration::from_secs(60);
/// More than the time that the peers of a lost server are kept.
const KEPT: Duration = Duration::from_secs(60);

/// A server with its part of the mesh.
struct Server {
    network: Network,
    mesh: Mesh,
}

impl Server {
    fn new() -> Self {
        Self::with_secret("secret")
    }

    fn with_secret(secret: &str) -> Self {
        let network = Network::new();
        let mesh = Mesh::new(Uuid::new_v4(), Secret::new(secret), network.relay(), network.hub.clone());
        Self { network, mesh }
    }

    fn hub(&self) -> &Hub {
        &self.network.hub
    }
}

/// A connection between two servers; dropped, it is cut.
struct Link(JoinHandle<Result<(), Error>>);

impl Drop for Link {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// `from` tells `to`.
fn link(from: &Server, to: &Server) -> Link {
    let (near, far) = tokio::io::duplex(256 << 10);
    let (mesh, other) = (to.mesh.clone(), to.mesh.own());
    tokio::spawn(async move { mesh.accept(far, |_| {}).await });
    let mesh = from.mesh.clone();
    Link(tokio::spawn(async move { mesh.dial(near, other).await }))
}

/// Connects each server with every other one.
fn connect(servers: &[&Server]) -> Vec<Link> {
    let mut links = Vec::new();
    for from in servers {
        for to in servers.iter().filter(|to| to.mesh.own() != from.mesh.own()) {
            links.push(link(from, to));
        }
    }
    links
}

/// A peer of a coordinator, without a node.
struct Raw {
    connection: Connection,
    responses: Receiver<CoordinateResponse>,
}

impl Raw {
    fn new(server: &Server, id: Uuid, authorization: Authorization) -> Self {
        let (connection, responses) = server.hub().connect(id, authorization);
        Self { connection, responses }
    }

    fn agent(server: &Server) -> Self {
        Self::new(server, AGENT, Authorization::Agent(AGENT))
    }

    fn client(server: &Server, id: Uuid) -> Self {
        let client = Self::new(server, id, Authorization::Client(AGENT));
        let tunnel = Some(Tunnel { id: AGENT.as_bytes().to_vec() });
        client.request(CoordinateRequest { add_tunnel: tunnel, ..CoordinateRequest::default() });
        client
    }

    fn request(&self, request: CoordinateRequest) {
        self.connection.request(request);
    }

    fn announce(&self, number: i64) {
        let node = Some(Node { id: number, ..Node::default() });
        let update = Some(UpdateSelf { node });
        self.request(CoordinateRequest { update_self: update, ..CoordinateRequest::default() });
    }

    /// The next message about a peer: its kind, its id, and the number of its node.
    async fn next(&mut self) -> (Kind, Uuid, i64) {
        let response = timeout(LONG, self.responses.recv()).await.unwrap().unwrap();
        assert_eq!(response.error, "");
        let update = &response.peer_updates[0];
        let number = update.node.as_ref().map_or(0, |node| node.id);
        (update.kind(), Uuid::from_slice(&update.id).unwrap(), number)
    }

    /// The error that ends the connection.
    async fn error(&mut self) -> String {
        loop {
            let response = timeout(LONG, self.responses.recv()).await.unwrap().unwrap();
            if !response.error.is_empty() {
                return response.error;
            }
        }
    }

    fn is_silent(&mut self) -> bool {
        self.responses.try_recv().is_err()
    }
}

/// Lets everything that is under way arrive.
async fn settle() {
    sleep(Duration::from_millis(100)).await;
}

#[test]
fn client_reaches_an_agent_of_another_server() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let _links = connect(&[&a, &b]);
        let (agent, client) = (a.network.agent(AGENT), b.network.client_of(AGENT));
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
        let (near, far) = connection(&agent, &client, 22).await;
        exchange(near, far, 3 << 20).await;
        assert_eq!((a.hub().peers(), a.hub().remote_peers()), (1, 1));
        assert_eq!(a.network.relay().counts().unknown + b.network.relay().counts().unknown, 0);
    });
}

/// A load balancer sends each connection to any server.
#[test]
fn relay_and_coordinator_of_a_peer_are_at_different_servers() {
    paused(async {
        let servers = [Server::new(), Server::new(), Server::new(), Server::new()];
        let _links = connect(&servers.iter().collect::<Vec<_>>());
        let [a, b, c, d] = &servers;
        let agent = a.network.agent_at_relay_of(&c.network, AGENT);
        let client = b.network.client_at_relay_of(&d.network, AGENT);
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
        let (near, far) = connection(&agent, &client, 22).await;
        exchange(near, far, 1 << 20).await;
    });
}

#[test]
fn servers_that_meet_later_introduce_their_peers() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let (_agent, client) = (a.network.agent(AGENT), b.network.client_of(AGENT));
        let short = Duration::from_secs(1);
        assert!(client.node.wait_reachable(address::of(AGENT), short).await.is_err());
        let _links = connect(&[&a, &b]);
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
    });
}

#[test]
fn client_whose_right_ends_loses_the_agent_of_another_server_at_once() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let _links = connect(&[&a, &b]);
        let mut agent = Raw::agent(&a);
        let id = Uuid::new_v4();
        let client = Raw::client(&b, id);
        client.announce(7);
        assert_eq!(agent.next().await, (Kind::Node, id, 7));
        client.connection.revoke("the right has ended");
        assert_eq!(agent.next().await, (Kind::Disconnected, id, 0));
        drop(client);
        // One that is only lost is kept by the agent for a while.
        let client = Raw::client(&b, id);
        client.announce(8);
        assert_eq!(agent.next().await, (Kind::Node, id, 8));
        drop(client);
        assert_eq!(agent.next().await, (Kind::Lost, id, 0));
    });
}

#[test]
fn tunnels_that_end_end_at_the_other_server() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let _links = connect(&[&a, &b]);
        let mut agent = Raw::agent(&a);
        agent.announce(1);
        let id = Uuid::new_v4();
        let mut client = Raw::client(&b, id);
        client.announce(2);
        assert_eq!(client.next().await, (Kind::Node, AGENT, 1));
        assert_eq!(agent.next().await, (Kind::Node, id, 2));
        let ready = vec![ReadyForHandshake { id: id.as_bytes().to_vec() }];
        agent.request(CoordinateRequest { ready_for_handshake: ready, ..CoordinateRequest::default() });
        assert_eq!(client.next().await, (Kind::ReadyForHandshake, AGENT, 0));
        let tunnel = Some(Tunnel { id: AGENT.as_bytes().to_vec() });
        client.request(CoordinateRequest { remove_tunnel: tunnel, ..CoordinateRequest::default() });
        assert_eq!(agent.next().await, (Kind::Disconnected, id, 0));
        assert_eq!(client.next().await, (Kind::Disconnected, AGENT, 0));
    });
}

#[test]
fn agents_are_not_introduced_without_a_tunnel() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let _links = connect(&[&a, &b]);
        let agent = Raw::agent(&a);
        agent.announce(1);
        let mut client = Raw::new(&b, Uuid::new_v4(), Authorization::Client(AGENT));
        client.announce(2);
        settle().await;
        assert!(client.is_silent());
        // What a client may reach is decided where it connects.
        let tunnel = Some(Tunnel { id: Uuid::from_u128(1).as_bytes().to_vec() });
        client.request(CoordinateRequest { add_tunnel: tunnel, ..CoordinateRequest::default() });
        assert!(client.error().await.starts_with("authorization: "));
    });
}

#[test]
fn peer_that_connects_to_another_server_leaves_the_first() {
    paused(async {
        let servers = [Server::new(), Server::new(), Server::new()];
        let _links = connect(&servers.iter().collect::<Vec<_>>());
        let [a, b, c] = &servers;
        let id = Uuid::new_v4();
        let mut client = Raw::client(c, id);
        let mut first = Raw::agent(a);
        first.announce(1);
        assert_eq!(client.next().await, (Kind::Node, AGENT, 1));
        // The first connection broke without a word.
        let second = Raw::agent(b);
        second.announce(2);
        assert_eq!(first.error().await, "peer ID overwritten by new connection");
        drop(first);
        let mut last = client.next().await;
        while last.0 != Kind::Node {
            last = client.next().await;
        }
        assert_eq!(last, (Kind::Node, AGENT, 2));
        settle().await;
        assert!(client.is_silent(), "the end of the first connection changes nothing");
        assert!(a.hub().has_node(AGENT) && c.hub().has_node(AGENT));
    });
}

/// It was connected to a server that died, then here, and loses its right.
#[test]
fn connection_of_a_dead_server_does_not_come_back() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let links = connect(&[&a, &b]);
        let mut agent = Raw::agent(&b);
        let id = Uuid::new_v4();
        let first = Raw::client(&a, id);
        first.announce(1);
        assert_eq!(agent.next().await, (Kind::Node, id, 1));
        drop(links);
        settle().await;
        let second = Raw::client(&b, id);
        second.announce(2);
        assert_eq!(agent.next().await, (Kind::Lost, id, 0));
        assert_eq!(agent.next().await, (Kind::Node, id, 2));
        second.connection.revoke("the right has ended");
        assert_eq!(agent.next().await, (Kind::Disconnected, id, 0));
        sleep(KEPT).await;
        assert!(agent.is_silent());
    });
}

#[test]
fn short_cut_between_servers_changes_nothing() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let links = connect(&[&a, &b]);
        let mut agent = Raw::agent(&a);
        agent.announce(1);
        let (stays, leaves) = (Uuid::new_v4(), Uuid::new_v4());
        let mut client = Raw::client(&b, stays);
        client.announce(2);
        let other = Raw::client(&b, leaves);
        other.announce(3);
        assert_eq!(client.next().await, (Kind::Node, AGENT, 1));
        settle().await;
        while !agent.is_silent() {}
        drop(links);
        settle().await;
        // Its right to connect may end while nobody can be told.
        other.connection.revoke("the right has ended");
        let _links = connect(&[&a, &b]);
        assert_eq!(agent.next().await, (Kind::Disconnected, leaves, 0));
        sleep(KEPT).await;
        assert!(agent.is_silent() && client.is_silent());
        // Tunnels of that time work.
        client.announce(4);
        assert_eq!(agent.next().await, (Kind::Node, stays, 4));
    });
}

#[test]
fn peers_of_a_dead_server_are_lost_after_a_while() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let links = connect(&[&a, &b]);
        let mut agent = Raw::agent(&a);
        let id = Uuid::new_v4();
        let client = Raw::client(&b, id);
        client.announce(2);
        assert_eq!(agent.next().await, (Kind::Node, id, 2));
        drop(links);
        settle().await;
        assert!(agent.is_silent());
        sleep(KEPT).await;
        assert_eq!(agent.next().await, (Kind::Lost, id, 0));
        assert_eq!(a.hub().remote_peers(), 0);
    });
}

/// The agent's server dies. The agent connects to another one, and what the user has open goes on.
#[test]
fn connections_outlive_the_death_of_a_server() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let links = connect(&[&a, &b]);
        let agent = a.network.agent(AGENT);
        let client = b.network.client_of(AGENT);
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
        let (near, far) = connection(&agent, &client, 22).await;
        drop(links);
        // A load balancer sends the agent to the other server.
        agent.moves_to(&b.network);
        exchange(near, far, 1 << 20).await;
        // The coordinator follows; nobody is left at the dead server.
        sleep(KEPT).await;
        assert_eq!((b.hub().peers(), b.hub().remote_peers()), (2, 0));
    });
}

#[test]
fn silent_server_is_given_up() {
    paused(async {
        let a = Server::new();
        // Takes bytes and never answers after the handshake.
        let (near, far) = tokio::io::duplex(256 << 10);
        let (wire_near, wire_far) = tokio::io::duplex(256 << 10);
        let b = Server::new();
        let (mesh, other) = (b.mesh.clone(), b.mesh.own());
        let accepted = tokio::spawn(async move { mesh.accept(wire_far, |_| {}).await });
        let wire = tokio::spawn(async move {
            let (mut from_a, mut to_a) = tokio::io::split(far);
            let (mut from_b, mut to_b) = tokio::io::split(wire_near);
            let up = tokio::io::copy(&mut from_a, &mut to_b);
            let down = tokio::io::copy(&mut from_b, &mut to_a);
            let ended = timeout(Duration::from_secs(20), async { tokio::join!(up, down) }).await;
            assert!(ended.is_err());
            // From now on nothing passes, and nothing ends.
            std::future::pending::<()>().await;
        });
        let mesh = a.mesh.clone();
        let ended = timeout(Duration::from_secs(60), mesh.dial(near, other)).await.unwrap();
        assert!(matches!(ended, Err(Error::Silent)), "{ended:?}");
        assert_eq!(a.mesh.counts().dialled, 0);
        let ended = timeout(Duration::from_secs(120), accepted).await.unwrap().unwrap();
        assert!(matches!(ended, Err(Error::Silent)), "{ended:?}");
        assert_eq!(b.mesh.counts().accepted, 0);
        wire.abort();
    });
}

#[test]
fn server_without_the_secret_is_refused() {
    paused(async {
        let (a, stranger) = (Server::new(), Server::with_secret("guess"));
        let _agent = Raw::agent(&a);
        for (dials, accepts) in [(&stranger, &a), (&a, &stranger)] {
            let (near, far) = tokio::io::duplex(256 << 10);
            let (mesh, other) = (dials.mesh.clone(), accepts.mesh.own());
            let dialled = async move { mesh.dial(near, other).await };
            let accepted = accepts.mesh.accept(far, |_| panic!("it has not proven the secret"));
            let (dialled, accepted) = tokio::join!(dialled, accepted);
            assert!(matches!(accepted, Err(Error::Secret)), "{accepted:?}");
            assert!(matches!(dialled, Err(Error::Secret | Error::Closed | Error::Io(_))), "{dialled:?}");
        }
        assert_eq!(stranger.hub().remote_peers(), 0, "it hears nothing");
        assert_eq!(a.hub().remote_peers(), 0);
    });
}

#[test]
fn wrong_address_is_told() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let dial = async |from: &Server, to: &Server, expected: Uuid| {
            let (near, far) = tokio::io::duplex(256 << 10);
            let mesh = to.mesh.clone();
            tokio::spawn(async move { mesh.accept(far, |_| {}).await });
            timeout(LONG, from.mesh.dial(near, expected)).await.unwrap()
        };
        let ended = dial(&a, &b, Uuid::from_u128(1)).await;
        assert!(matches!(ended, Err(Error::OtherServer(id)) if id == b.mesh.own()), "{ended:?}");
        let ended = dial(&a, &a, b.mesh.own()).await;
        assert!(matches!(ended, Err(Error::Itself)), "{ended:?}");
    });
}

#[test]
fn packets_go_to_the_relay_of_their_receiver_and_not_further() {
    paused(async {
        let servers = [Server::new(), Server::new(), Server::new()];
        let _links = connect(&servers.iter().collect::<Vec<_>>());
        let [a, b, c] = servers.each_ref().map(|server| server.network.relay());
        let (mut ann, mut bob) = (Client::new(&a).await, Client::new(&b).await);
        settle().await;
        ann.packet(bob.key, b"hello").await;
        assert_eq!(bob.recv().await, Some(Owned::Packet(ann.key, b"hello".to_vec())));
        bob.packet(ann.key, b"back").await;
        assert_eq!(ann.recv().await, Some(Owned::Packet(bob.key, b"back".to_vec())));
        assert_eq!((a.counts().remote_packets, b.counts().remote_packets), (1, 1));
        assert_eq!((c.counts().packets, c.counts().remote_clients), (0, 2));
        // Nobody has this key.
        let nobody = NodePrivate::generate().public();
        ann.packet(nobody, b"hello").await;
        assert_eq!(ann.recv().await, Some(Owned::Gone(nobody, GoneReason::NotHere)));
        // Whoever has sent packets is reported when it leaves.
        let key = bob.key;
        drop(bob);
        assert_eq!(ann.recv().await, Some(Owned::Gone(key, GoneReason::Disconnected)));
        ann.packet(key, b"hello").await;
        assert_eq!(ann.recv().await, Some(Owned::Gone(key, GoneReason::NotHere)));
    });
}

#[test]
fn node_at_two_relays_receives_where_it_was_active_last() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let links = connect(&[&a, &b]);
        let (relay_a, relay_b) = (a.network.relay(), b.network.relay());
        let bob = NodePrivate::generate();
        let mut ann = Client::new(&relay_a).await;
        let mut old = Client::with(&relay_a, &bob, 1 << 20).await;
        settle().await;
        let mut new = Client::with(&relay_b, &bob, 1 << 20).await;
        settle().await;
        ann.packet(bob.public(), b"1").await;
        assert_eq!(new.recv().await, Some(Owned::Packet(ann.key, b"1".to_vec())), "the newest");
        old.packet(ann.key, b"x").await;
        assert_eq!(ann.recv().await, Some(Owned::Packet(bob.public(), b"x".to_vec())));
        settle().await;
        ann.packet(bob.public(), b"2").await;
        assert_eq!(old.recv().await, Some(Owned::Packet(ann.key, b"2".to_vec())), "the last to send");
        new.packet(ann.key, b"y").await;
        ann.recv().await;
        settle().await;
        // Without the other server, the connection here is the only one.
        drop(links);
        settle().await;
        ann.packet(bob.public(), b"3").await;
        assert_eq!(old.recv().await, Some(Owned::Packet(ann.key, b"3".to_vec())));
    });
}

#[test]
fn nodes_of_a_lost_server_are_unknown() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let links = connect(&[&a, &b]);
        let (mut ann, bob) = (Client::new(&a.network.relay()).await, Client::new(&b.network.relay()).await);
        settle().await;
        assert_eq!(a.network.relay().counts().remote_clients, 1);
        drop(links);
        settle().await;
        assert_eq!(a.network.relay().counts().remote_clients, 0);
        ann.packet(bob.key, b"hello").await;
        assert_eq!(ann.recv().await, Some(Owned::Gone(bob.key, GoneReason::NotHere)));
    });
}

#[test]
fn idle_servers_only_ask_whether_the_others_are_there() {
    paused(async {
        let (a, b) = (Server::new(), Server::new());
        let _links = connect(&[&a, &b]);
        let _agents: Vec<_> = (1..=100)
            .map(|number| {
                let id = Uuid::from_u128(number);
                Raw::new(&a, id, Authorization::Agent(id))
            })
            .collect();
        settle().await;
        assert_eq!(b.hub().remote_peers(), 100);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!((b.hub().remote_peers(), a.mesh.counts().dialled, b.mesh.counts().accepted), (100, 1, 1));
    });
}
