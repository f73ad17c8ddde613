//! The coordinator against a model that only knows the present: who is connected with which node, and which tunnels exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coder_tailnet::address::{self, LEGACY_AGENT};
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::coordinator::{Authorization, ConnectionId, Coordinator, Output};
use coder_tailnet::messages::coordinate_request::{Disconnect, ReadyForHandshake, Tunnel, UpdateSelf};
use coder_tailnet::messages::coordinate_response::peer_update::Kind;
use coder_tailnet::messages::{CoordinateRequest, Node};
use proptest::prelude::*;
use prost::Message as _;
use uuid::Uuid;

const PEERS: u128 = 4;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number + 1)
}

fn node(number: i64) -> Node {
    Node { id: number, preferred_derp: 999, ..Node::default() }
}

fn announce(node: Node) -> CoordinateRequest {
    CoordinateRequest { update_self: Some(UpdateSelf { node: Some(node) }), ..CoordinateRequest::default() }
}

fn tunnel(to: Uuid) -> Option<Tunnel> {
    Some(Tunnel { id: to.as_bytes().to_vec() })
}

fn add(to: Uuid) -> CoordinateRequest {
    CoordinateRequest { add_tunnel: tunnel(to), ..CoordinateRequest::default() }
}

fn remove(to: Uuid) -> CoordinateRequest {
    CoordinateRequest { remove_tunnel: tunnel(to), ..CoordinateRequest::default() }
}

fn ready(to: Uuid) -> CoordinateRequest {
    CoordinateRequest {
        ready_for_handshake: vec![ReadyForHandshake { id: to.as_bytes().to_vec() }],
        ..CoordinateRequest::default()
    }
}

fn disconnect() -> CoordinateRequest {
    CoordinateRequest { disconnect: Some(Disconnect {}), ..CoordinateRequest::default() }
}

#[derive(Debug, Clone)]
enum Step {
    Connect(u128),
    Lose(u128),
    Disconnect(u128),
    Announce(u128, i64),
    Add(u128, u128),
    Remove(u128, u128),
}

fn step() -> impl Strategy<Value = Step> {
    let peer = 0..PEERS;
    prop_oneof![
        peer.clone().prop_map(Step::Connect),
        peer.clone().prop_map(Step::Lose),
        peer.clone().prop_map(Step::Disconnect),
        (peer.clone(), 1..4_i64).prop_map(|(peer, node)| Step::Announce(peer, node)),
        (peer.clone(), peer.clone()).prop_map(|(from, to)| Step::Add(from, to)),
        (peer.clone(), peer).prop_map(|(from, to)| Step::Remove(from, to)),
    ]
}

/// The nodes that a connection was sent.
type View = BTreeMap<Uuid, Node>;

#[derive(Default)]
struct Model {
    coordinator: Coordinator,
    connections: BTreeMap<u128, ConnectionId>,
    views: BTreeMap<ConnectionId, View>,
    nodes: BTreeMap<u128, i64>,
    tunnels: BTreeSet<(u128, u128)>,
}

impl Model {
    fn run(&mut self, step: &Step) {
        let gone = |model: &mut Self, peer: u128| {
            model.nodes.remove(&peer);
            model.tunnels.retain(|(from, _)| *from != peer);
            if let Some(old) = model.connections.remove(&peer) {
                model.views.remove(&old);
            }
        };
        let outputs = match *step {
            Step::Connect(peer) => {
                gone(self, peer);
                let (connection, outputs) = self.coordinator.connect(id(peer), Authorization::Server);
                self.connections.insert(peer, connection);
                self.views.insert(connection, View::new());
                outputs
            }
            Step::Lose(peer) => {
                let Some(connection) = self.connections.get(&peer).copied() else { return };
                gone(self, peer);
                self.coordinator.lost(connection)
            }
            Step::Disconnect(peer) => {
                let Some(connection) = self.connections.get(&peer).copied() else { return };
                gone(self, peer);
                self.coordinator.request(connection, disconnect())
            }
            Step::Announce(peer, number) => {
                let Some(connection) = self.connections.get(&peer).copied() else { return };
                self.nodes.insert(peer, number);
                self.coordinator.request(connection, announce(node(number)))
            }
            Step::Add(from, to) => {
                let Some(connection) = self.connections.get(&from).copied() else { return };
                self.tunnels.insert((from, to));
                self.coordinator.request(connection, add(id(to)))
            }
            Step::Remove(from, to) => {
                let Some(connection) = self.connections.get(&from).copied() else { return };
                self.tunnels.remove(&(from, to));
                self.coordinator.request(connection, remove(id(to)))
            }
        };
        self.deliver(outputs);
    }

    fn deliver(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            let Output::Send(to, response) = output else { continue };
            // A connection that has just ended may be sent the reason; nobody reads it.
            let Some(view) = self.views.get_mut(&to) else { continue };
            assert_eq!(response.error, "");
            for update in response.peer_updates {
                let about = Uuid::from_slice(&update.id).unwrap();
                match update.kind() {
                    Kind::Node => {
                        let node = update.node.unwrap();
                        assert_ne!(view.insert(about, node.clone()), Some(node), "it was sent this before");
                    }
                    Kind::Lost | Kind::Disconnected => {
                        assert!(view.remove(&about).is_some(), "it was never sent the node of {about}");
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Every connection knows exactly the nodes at the other ends of its tunnels.
    fn check(&self) {
        for (peer, connection) in &self.connections {
            let mut expected = View::new();
            for (other, number) in &self.nodes {
                let ends = self.tunnels.contains(&(*peer, *other)) || self.tunnels.contains(&(*other, *peer));
                if ends {
                    expected.insert(id(*other), node(*number));
                }
            }
            assert_eq!(self.views[connection], expected, "what {peer} was sent");
        }
        assert_eq!(self.coordinator.peers(), self.connections.len());
    }
}

proptest! {
    #[test]
    fn every_peer_knows_the_nodes_behind_its_tunnels(steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::default();
        for step in &steps {
            model.run(step);
            model.check();
        }
    }
}

/// The updates that a connection is sent, and the error.
fn sent(outputs: &[Output], to: ConnectionId) -> (Vec<(Uuid, Kind)>, String) {
    let (mut updates, mut error) = (Vec::new(), String::new());
    for output in outputs {
        if let Output::Send(connection, response) = output
            && *connection == to
        {
            let found = response.peer_updates.iter();
            updates.extend(found.map(|update| (Uuid::from_slice(&update.id).unwrap(), update.kind())));
            error.push_str(&response.error);
        }
    }
    (updates, error)
}

const AGENT: u128 = 0;
const CLIENT: u128 = 1;

fn pair() -> (Coordinator, ConnectionId, ConnectionId) {
    let mut coordinator = Coordinator::default();
    let (agent, _) = coordinator.connect(id(AGENT), Authorization::Agent(id(AGENT)));
    let (client, _) = coordinator.connect(id(CLIENT), Authorization::Client(id(AGENT)));
    coordinator.request(agent, announce(node(1)));
    coordinator.request(client, announce(node(2)));
    (coordinator, agent, client)
}

#[test]
fn ready_for_handshake_reaches_the_client() {
    let (mut coordinator, agent, client) = pair();
    coordinator.request(client, add(id(AGENT)));
    let outputs = coordinator.request(agent, ready(id(CLIENT)));
    assert_eq!(sent(&outputs, client).0, [(id(AGENT), Kind::ReadyForHandshake)]);
}

#[test]
fn ready_for_handshake_without_a_tunnel_is_an_error_and_the_connection_stays() {
    let (mut coordinator, agent, _) = pair();
    let outputs = coordinator.request(agent, ready(id(CLIENT)));
    assert!(sent(&outputs, agent).1.starts_with("ready for handshake error"));
    assert_eq!(outputs.len(), 1);
    assert_eq!(coordinator.peers(), 2);
}

#[test]
fn second_connection_of_an_agent_ends_the_first_and_meets_its_clients() {
    let (mut coordinator, first, client) = pair();
    coordinator.request(client, add(id(AGENT)));
    let (second, outputs) = coordinator.connect(id(AGENT), Authorization::Agent(id(AGENT)));
    assert_eq!(sent(&outputs, first).1, "peer ID overwritten by new connection");
    assert!(outputs.contains(&Output::Close(first)));
    assert_eq!(sent(&outputs, client).0, [(id(AGENT), Kind::Lost)]);
    assert_eq!(sent(&outputs, second).0, [(id(CLIENT), Kind::Node)]);
    let outputs = coordinator.request(second, announce(node(3)));
    assert_eq!(sent(&outputs, client).0, [(id(AGENT), Kind::Node)]);
    assert_eq!(coordinator.request(first, announce(node(4))), [], "requests of the first one are ignored");
    assert_eq!(coordinator.lost(first), []);
}

#[test]
fn disconnect_reaches_partners_and_ends_the_stream() {
    let (mut coordinator, agent, client) = pair();
    coordinator.request(client, add(id(AGENT)));
    let outputs = coordinator.request(client, disconnect());
    assert_eq!(sent(&outputs, agent).0, [(id(CLIENT), Kind::Disconnected)]);
    assert_eq!(outputs.last(), Some(&Output::Close(client)));
}

#[test]
fn violations_end_the_connection() {
    let prefix = |address| Node { addresses: vec![address::to_prefix(address)], ..node(1) };
    let wide = Node { allowed_ips: vec!["fd7a:115c:a1e0::/48".to_owned()], ..node(1) };
    let many = Node { endpoints: vec![String::new(); 300], ..node(1) };
    let cases = [
        (Authorization::Agent(id(0)), add(id(1))),
        (Authorization::Agent(id(0)), announce(prefix(address::of(id(1))))),
        (Authorization::Agent(id(0)), announce(wide.clone())),
        (Authorization::Client(id(1)), add(id(2))),
        (Authorization::Client(id(1)), announce(wide)),
        (Authorization::Client(id(1)), announce(many)),
        (Authorization::Client(id(1)), ready(id(1))),
        (Authorization::ClientOf(Arc::new(|agent| agent == id(1))), add(id(2))),
        (
            Authorization::Server,
            CoordinateRequest { add_tunnel: Some(Tunnel { id: vec![1] }), ..disconnect() },
        ),
    ];
    for (authorization, request) in cases {
        let mut coordinator = Coordinator::default();
        let (connection, _) = coordinator.connect(id(0), authorization);
        let outputs = coordinator.request(connection, request.clone());
        assert!(sent(&outputs, connection).1.starts_with("authorization: "), "{request:?}: {outputs:?}");
        assert_eq!((outputs.last(), coordinator.peers()), (Some(&Output::Close(connection)), 0));
    }
}

#[test]
fn allowed_requests_are_taken() {
    let own = address::of_agent(id(0)).map(address::to_prefix);
    let legacy = Node { addresses: vec![address::to_prefix(LEGACY_AGENT)], ..node(1) };
    let both = Node { addresses: own.to_vec(), allowed_ips: own.to_vec(), ..node(1) };
    let random = Node { addresses: vec![address::to_prefix(address::of(Uuid::new_v4()))], ..node(1) };
    let cases = [
        (Authorization::Agent(id(0)), announce(legacy)),
        (Authorization::Agent(id(0)), announce(both)),
        (Authorization::Client(id(1)), announce(random)),
        (Authorization::Client(id(1)), add(id(1))),
        (Authorization::ClientOf(Arc::new(|agent| agent == id(1))), add(id(1))),
    ];
    for (authorization, request) in cases {
        let mut coordinator = Coordinator::default();
        let (connection, _) = coordinator.connect(id(0), authorization);
        assert_eq!(coordinator.request(connection, request), []);
        assert_eq!(coordinator.peers(), 1);
    }
}

#[test]
fn tunnels_of_a_client_are_bounded() {
    let mut coordinator = Coordinator::default();
    let (client, _) = coordinator.connect(id(0), Authorization::ClientOf(Arc::new(|_| true)));
    for number in 0..4096 {
        assert_eq!(coordinator.request(client, add(id(number + 1))), []);
    }
    let outputs = coordinator.request(client, add(id(5000)));
    assert!(sent(&outputs, client).1.starts_with("authorization: "));
}

#[tokio::test]
async fn connection_that_reads_nothing_is_dropped() {
    let hub = Hub::default();
    let (agent, _) = hub.connect(id(AGENT), Authorization::Agent(id(AGENT)));
    let (client, mut responses) = hub.connect(id(CLIENT), Authorization::Client(id(AGENT)));
    client.request(add(id(AGENT)));
    for number in 0..600 {
        agent.request(announce(node(number)));
    }
    assert_eq!(hub.peers(), 1);
    let mut read = 0;
    while responses.recv().await.is_some() {
        read += 1;
    }
    assert_eq!(read, 512, "it ends after what was sent before");
}

#[tokio::test]
async fn bytes_that_wait_for_a_connection_are_bounded() {
    let hub = Hub::default();
    let (agent, _agent_responses) = hub.connect(id(AGENT), Authorization::Agent(id(AGENT)));
    let (client, mut responses) = hub.connect(id(CLIENT), Authorization::Client(id(AGENT)));
    client.request(add(id(AGENT)));
    let large = |number: i64| Node { endpoints: vec!["x".repeat(500); 30], ..node(number) };
    // A peer that reads stays connected.
    for number in 0..100 {
        agent.request(announce(large(number)));
        client.sent(&responses.try_recv().unwrap());
    }
    for number in 0..100 {
        agent.request(announce(large(number)));
    }
    assert_eq!(hub.peers(), 1, "a peer that does not read is dropped");
    let waiting: usize = std::iter::from_fn(|| responses.try_recv().ok()).map(|one| one.encoded_len()).sum();
    assert!((200 << 10..=256 << 10).contains(&waiting), "{waiting}");
}

#[test]
fn nodes_are_bounded() {
    let mut coordinator = Coordinator::default();
    let (agent, _) = coordinator.connect(id(AGENT), Authorization::Agent(id(AGENT)));
    let large = Node { endpoints: vec!["x".repeat(500); 40], ..node(1) };
    let outputs = coordinator.request(agent, announce(large));
    assert!(sent(&outputs, agent).1.starts_with("authorization: the node is too large"));
}

#[tokio::test]
async fn dropped_connection_is_lost() {
    let hub = Hub::default();
    let (agent, _agent_responses) = hub.connect(id(AGENT), Authorization::Agent(id(AGENT)));
    let (client, mut responses) = hub.connect(id(CLIENT), Authorization::Client(id(AGENT)));
    client.request(add(id(AGENT)));
    agent.request(announce(node(1)));
    assert!(hub.has_node(id(AGENT)));
    drop(agent);
    let kinds: Vec<_> = std::iter::from_fn(|| responses.try_recv().ok())
        .flat_map(|response| response.peer_updates)
        .map(|update| update.kind())
        .collect();
    assert_eq!(kinds, [Kind::Node, Kind::Lost]);
}
