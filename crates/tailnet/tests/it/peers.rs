//! When a node programs and forgets its peers.

use std::time::Duration;

use coder_tailnet::address;
use coder_tailnet::key::{DiscoPrivate, NodePrivate};
use coder_tailnet::messages::Node;
use coder_tailnet::messages::coordinate_response::PeerUpdate;
use coder_tailnet::messages::coordinate_response::peer_update::Kind;
use coder_tailnet::peer::{
    Action, Activity, LOST_TIMEOUT, LOST_TIMEOUT_CONNECTED, NodeError, PeerConfig, Peers, READY_TIMEOUT, Role,
};
use tokio::time::Instant;
use uuid::Uuid;

const PEER: Uuid = Uuid::from_u128(7);

fn node() -> Node {
    let address = address::to_prefix(address::of(PEER));
    Node {
        id: 7,
        key: NodePrivate::generate().public().to_binary(),
        disco: DiscoPrivate::generate().public().to_string(),
        preferred_derp: 999,
        addresses: vec![address.clone()],
        allowed_ips: vec![address],
        ..Node::default()
    }
}

fn update(kind: Kind, node: Option<&Node>) -> PeerUpdate {
    PeerUpdate { id: PEER.as_bytes().to_vec(), node: node.cloned(), kind: kind.into(), reason: String::new() }
}

fn config(node: &Node) -> PeerConfig {
    PeerConfig::from_message(PEER, node).unwrap()
}

fn client() -> Peers {
    let mut peers = Peers::new(Role::Client);
    peers.add_destination(PEER);
    peers
}

fn idle(_: Uuid) -> Activity {
    Activity::default()
}

#[test]
fn agent_configures_a_peer_at_once_and_answers_ready_for_each_node() {
    let (mut peers, now, node) = (Peers::new(Role::Agent), Instant::now(), node());
    let ready = Action::ReadyForHandshake(PEER);
    let first = peers.update(now, &update(Kind::Node, Some(&node)));
    assert_eq!(first, [Action::Set(config(&node)), ready.clone()]);
    let again = peers.update(now, &update(Kind::Node, Some(&node)));
    assert_eq!(again, [ready], "nothing changed, but the client may have missed the first message");
    assert_eq!(peers.update(now, &update(Kind::Disconnected, None)), [Action::Remove(PEER)]);
    assert_eq!(peers.update(now, &update(Kind::Disconnected, None)), []);
}

/// What it opened with its next connection to the coordinator would be refused, and the connection ended.
#[test]
fn agent_opens_no_tunnel_to_those_who_reach_it() {
    let mut agent = Peers::new(Role::Agent);
    agent.update(Instant::now(), &update(Kind::Node, Some(&node())));
    agent.lose_all(Instant::now());
    assert_eq!(agent.destinations().count(), 0);
    assert_eq!(client().destinations().count(), 1);
}

#[test]
fn client_waits_for_ready_for_handshake() {
    let (mut peers, now, node) = (client(), Instant::now(), node());
    assert_eq!(peers.update(now, &update(Kind::Node, Some(&node))), []);
    assert_eq!(peers.update(now, &update(Kind::ReadyForHandshake, None)), [Action::Set(config(&node))]);
    assert_eq!(peers.next_tick(idle), None);
}

#[test]
fn ready_for_handshake_may_come_before_the_node() {
    let (mut peers, now, node) = (client(), Instant::now(), node());
    assert_eq!(peers.update(now, &update(Kind::ReadyForHandshake, None)), []);
    assert_eq!(peers.update(now, &update(Kind::Node, Some(&node))), [Action::Set(config(&node))]);
}

#[test]
fn client_stops_waiting_for_ready_for_handshake() {
    let (mut peers, now, node) = (client(), Instant::now(), node());
    peers.update(now, &update(Kind::Node, Some(&node)));
    assert_eq!(peers.next_tick(idle), Some(now + READY_TIMEOUT));
    assert_eq!(peers.tick(now + READY_TIMEOUT - Duration::from_millis(1), idle), []);
    assert_eq!(peers.tick(now + READY_TIMEOUT, idle), [Action::Set(config(&node))]);
    assert_eq!(peers.tick(now + READY_TIMEOUT, idle), []);
}

#[test]
fn client_ignores_peers_that_it_did_not_ask_for() {
    let (mut peers, now) = (Peers::new(Role::Client), Instant::now());
    assert_eq!(peers.update(now, &update(Kind::Node, Some(&node()))), []);
    assert_eq!(peers.update(now, &update(Kind::ReadyForHandshake, None)), []);
    assert_eq!(peers.destinations().count(), 0);
}

#[test]
fn restarted_agent_is_programmed_after_its_own_message() {
    let (mut peers, now, old, new) = (client(), Instant::now(), node(), node());
    peers.update(now, &update(Kind::ReadyForHandshake, None));
    peers.update(now, &update(Kind::Node, Some(&old)));
    peers.update(now, &update(Kind::Lost, None));
    assert_eq!(
        peers.update(now, &update(Kind::Node, Some(&new))),
        [],
        "the message of the old process does not count"
    );
    assert_eq!(peers.update(now, &update(Kind::ReadyForHandshake, None)), [Action::Set(config(&new))]);
}

#[test]
fn changed_values_of_the_same_key_are_programmed_at_once() {
    let (mut peers, now, mut node) = (client(), Instant::now(), node());
    peers.update(now, &update(Kind::ReadyForHandshake, None));
    peers.update(now, &update(Kind::Node, Some(&node)));
    node.preferred_derp = 7;
    assert_eq!(peers.update(now, &update(Kind::Node, Some(&node))), [Action::Set(config(&node))]);
}

#[test]
fn lost_peer_is_kept_after_its_last_handshake() {
    let (mut peers, now, node) = (Peers::new(Role::Agent), Instant::now(), node());
    peers.update(now, &update(Kind::Node, Some(&node)));
    peers.update(now, &update(Kind::Lost, None));
    let last_handshake = now + Duration::from_secs(100);
    let activity = |_| Activity { last_handshake: Some(last_handshake), connections: 0 };
    assert_eq!(peers.next_tick(activity), Some(last_handshake + LOST_TIMEOUT));
    assert_eq!(peers.tick(last_handshake + LOST_TIMEOUT - Duration::from_millis(1), activity), []);
    let connected = |_| Activity { last_handshake: Some(last_handshake), connections: 1 };
    assert_eq!(peers.tick(last_handshake + LOST_TIMEOUT, connected), [], "a laptop may sleep for an hour");
    assert_eq!(peers.next_tick(connected), Some(last_handshake + LOST_TIMEOUT_CONNECTED));
    assert_eq!(peers.tick(last_handshake + LOST_TIMEOUT, activity), [Action::Remove(PEER)]);
    assert_eq!(peers.next_tick(activity), None);
}

#[test]
fn lost_peer_that_is_found_stays() {
    let (mut peers, now, node) = (Peers::new(Role::Agent), Instant::now(), node());
    peers.update(now, &update(Kind::Node, Some(&node)));
    peers.lose_all(now);
    assert_eq!(peers.next_tick(idle), Some(now + LOST_TIMEOUT));
    peers.update(now, &update(Kind::Node, Some(&node)));
    assert_eq!(peers.next_tick(idle), None);
    assert_eq!(peers.tick(now + LOST_TIMEOUT * 2, idle), []);
}

#[test]
fn destination_that_was_lost_can_be_found_again() {
    let (mut peers, now, node) = (client(), Instant::now(), node());
    peers.update(now, &update(Kind::Node, Some(&node)));
    peers.lose_all(now);
    assert_eq!(peers.tick(now + READY_TIMEOUT, idle), [], "it is not programmed while it is lost");
    peers.update(now, &update(Kind::Node, Some(&node)));
    assert_eq!(peers.update(now, &update(Kind::ReadyForHandshake, None)), [Action::Set(config(&node))]);
    peers.lose_all(now);
    assert_eq!(peers.tick(now + LOST_TIMEOUT, idle), [Action::Remove(PEER)]);
    assert_eq!(peers.destinations().collect::<Vec<_>>(), [PEER], "it is still wanted");
    assert_eq!(peers.remove_destination(PEER), None);
}

#[test]
fn unusable_nodes_are_ignored() {
    let zero = format!("discokey:{}", "00".repeat(32));
    type Change<'a> = &'a dyn Fn(&mut Node);
    let cases: [(NodeError, Change<'_>); 8] = [
        (NodeError::Key, &|node| node.key = vec![1; 32]),
        (NodeError::Key, &|node| node.key = [&b"np"[..], &[0; 32]].concat()),
        (NodeError::Disco, &|node| node.disco = String::new()),
        (NodeError::Disco, &|node| node.disco.clone_from(&zero)),
        (NodeError::Region, &|node| node.preferred_derp = 0),
        (NodeError::Addresses, &|node| node.allowed_ips = vec!["fd7a::/48".to_owned()]),
        (NodeError::Addresses, &|node| node.allowed_ips = vec!["10.0.0.1/32".to_owned()]),
        (NodeError::Addresses, &|node| node.allowed_ips = vec![node.allowed_ips[0].clone(); 9]),
    ];
    for (error, change) in cases {
        let mut node = node();
        change(&mut node);
        assert_eq!(PeerConfig::from_message(PEER, &node), Err(error));
        let mut peers = Peers::new(Role::Agent);
        assert_eq!(peers.update(Instant::now(), &update(Kind::Node, Some(&node))), []);
    }
}

#[test]
fn malformed_updates_are_ignored() {
    let mut peers = Peers::new(Role::Agent);
    let now = Instant::now();
    let short = PeerUpdate { id: vec![1; 15], ..update(Kind::Node, Some(&node())) };
    assert_eq!(peers.update(now, &short), []);
    assert_eq!(peers.update(now, &update(Kind::Node, None)), []);
    assert_eq!(peers.update(now, &update(Kind::Lost, None)), []);
    assert_eq!(peers.update(now, &PeerUpdate { kind: 77, ..update(Kind::Node, Some(&node())) }), []);
}
