//! The bytes of the Tailnet messages, written by hand from the numbers of their fields (agent 3.1).

use coder_tailnet::messages::coordinate_request::{Disconnect, ReadyForHandshake, Tunnel, UpdateSelf};
use coder_tailnet::messages::coordinate_response::PeerUpdate;
use coder_tailnet::messages::coordinate_response::peer_update::Kind;
use coder_tailnet::messages::derp_map::region::Node as DerpNode;
use coder_tailnet::messages::derp_map::{HomeParams, Region};
use coder_tailnet::messages::{
    CoordinateRequest, CoordinateResponse, DerpMap, Node, RefreshResumeTokenResponse, TelemetryRequest,
};
use prost::Message;

/// A field with a length.
fn bytes(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 0x80);
    [&[number << 3 | 2, length], content].concat()
}

/// A field with a small number.
fn int(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// A field with a double.
fn double(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1], &value.to_le_bytes()[..]].concat()
}

fn check<M: Message + Default + PartialEq>(message: &M, expected: &[Vec<u8>]) {
    assert_eq!(message.encode_to_vec(), expected.concat());
    assert!(M::decode(&*expected.concat()).unwrap() == *message);
}

#[test]
fn node() {
    let node = Node {
        id: 1,
        as_of: Some(prost_types::Timestamp { seconds: 2, nanos: 3 }),
        key: b"np".to_vec(),
        disco: "d".to_owned(),
        preferred_derp: 4,
        derp_latency: [("5".to_owned(), 0.5)].into(),
        derp_forced_websocket: [(6, "w".to_owned())].into(),
        addresses: vec!["a".to_owned()],
        allowed_ips: vec!["i".to_owned()],
        endpoints: vec!["e".to_owned()],
    };
    let expected = [
        int(1, 1),
        bytes(2, [int(1, 2), int(2, 3)].concat()),
        bytes(3, "np"),
        bytes(4, "d"),
        int(5, 4),
        bytes(6, [bytes(1, "5"), double(2, 0.5)].concat()),
        bytes(7, [int(1, 6), bytes(2, "w")].concat()),
        bytes(8, "a"),
        bytes(9, "i"),
        bytes(10, "e"),
    ];
    check(&node, &expected);
}

#[test]
fn requests_and_responses() {
    let request = CoordinateRequest {
        update_self: Some(UpdateSelf { node: Some(Node { id: 1, ..Node::default() }) }),
        disconnect: Some(Disconnect {}),
        add_tunnel: Some(Tunnel { id: vec![3] }),
        remove_tunnel: Some(Tunnel { id: vec![4] }),
        ready_for_handshake: vec![ReadyForHandshake { id: vec![5] }],
    };
    let expected = [
        bytes(1, bytes(1, int(1, 1))),
        bytes(2, ""),
        bytes(3, bytes(1, [3])),
        bytes(4, bytes(1, [4])),
        bytes(5, bytes(1, [5])),
    ];
    check(&request, &expected);
    for (kind, number) in
        [(Kind::Node, 1), (Kind::Disconnected, 2), (Kind::Lost, 3), (Kind::ReadyForHandshake, 4)]
    {
        let update = PeerUpdate {
            id: vec![1],
            node: Some(Node { id: 2, ..Node::default() }),
            kind: kind.into(),
            reason: "r".to_owned(),
        };
        let response = CoordinateResponse { peer_updates: vec![update], error: "e".to_owned() };
        let update = [bytes(1, [1]), bytes(2, int(1, 2)), int(3, number), bytes(4, "r")].concat();
        check(&response, &[bytes(1, update), bytes(2, "e")]);
    }
}

#[test]
fn derp_map() {
    let node = DerpNode {
        name: "n".to_owned(),
        region_id: 2,
        host_name: "h".to_owned(),
        cert_name: "c".to_owned(),
        ipv4: "4".to_owned(),
        ipv6: "6".to_owned(),
        stun_port: 7,
        stun_only: true,
        derp_port: 9,
        insecure_for_tests: true,
        force_http: true,
        stun_test_ip: "s".to_owned(),
        can_port_80: true,
    };
    let node_bytes = [
        bytes(1, "n"),
        int(2, 2),
        bytes(3, "h"),
        bytes(4, "c"),
        bytes(5, "4"),
        bytes(6, "6"),
        int(7, 7),
        int(8, 1),
        int(9, 9),
        int(10, 1),
        int(11, 1),
        bytes(12, "s"),
        int(13, 1),
    ];
    let region = Region {
        region_id: 1,
        embedded_relay: true,
        region_code: "c".to_owned(),
        region_name: "n".to_owned(),
        avoid: true,
        nodes: vec![node],
    };
    let region_bytes =
        [int(1, 1), int(2, 1), bytes(3, "c"), bytes(4, "n"), int(5, 1), bytes(6, node_bytes.concat())];
    let map = DerpMap {
        home_params: Some(HomeParams { region_score: [(1, 1.5)].into() }),
        regions: [(1, region)].into(),
    };
    let expected = [
        bytes(1, bytes(1, [int(1, 1), double(2, 1.5)].concat())),
        bytes(2, [int(1, 1), bytes(2, region_bytes.concat())].concat()),
    ];
    check(&map, &expected);
}

#[test]
fn resume_tokens_and_telemetry() {
    let token = RefreshResumeTokenResponse {
        token: "t".to_owned(),
        refresh_in: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        expires_at: Some(prost_types::Timestamp { seconds: 2, nanos: 0 }),
    };
    check(&token, &[bytes(1, "t"), bytes(2, int(1, 1)), bytes(3, int(1, 2))]);
    check(&TelemetryRequest { events: vec![vec![7]] }, &[bytes(1, [7])]);
}
