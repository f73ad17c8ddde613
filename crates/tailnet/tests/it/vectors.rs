//! Bytes of the official engine (`interop/tailnet capture`): they are read, mean what is known of them, and are written again.

use std::path::Path;

use coder_tailnet::derp::DerpMap;
use coder_tailnet::derp::frame::{Decoder, Error, Frame, GoneReason};
use coder_tailnet::derp::handshake::{self, ClientInfo, ServerInfo};
use coder_tailnet::disco::{self, Message};
use coder_tailnet::key::{NodePrivate, NodePublic};
use coder_tailnet::tsmp;

/// The lines of a file that have bytes, with their direction.
fn read(name: &str) -> Vec<(char, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name).with_extension("hex");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (direction, digits) = line.split_at(2);
            (direction.chars().next().unwrap(), unhex(digits))
        })
        .collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<char> = digits.chars().collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&String::from_iter(pair), 16).unwrap()).collect()
}

fn private(seed: u8) -> NodePrivate {
    NodePrivate::from_bytes([seed; 32])
}

#[test]
fn keys() {
    let lines = read("keys");
    assert_eq!(lines.len(), 3);
    for (seed, (_, bytes)) in [1, 2, 0x42].into_iter().zip(lines) {
        let public = private(seed).public();
        assert_eq!(NodePublic::from_binary(&bytes), Ok(public));
        assert_eq!(public.to_binary(), bytes);
    }
}

#[test]
fn disco_messages() {
    let lines = read("disco");
    let transaction = *b"transaction!";
    let expected = [
        Message::Ping { transaction, node: Some(private(1).public()) },
        Message::Pong { transaction, source: disco::relay_source(999) },
        Message::CallMeMaybe,
    ];
    assert_eq!(lines.len(), expected.len());
    for (message, (_, bytes)) in expected.into_iter().zip(lines) {
        assert_eq!(Message::decode(&bytes), Some(message));
        // Official peers name version 1 and pad; what version 0 has comes first.
        let ours = message.encode();
        assert_eq!((ours[0], &ours[2..]), (bytes[0], &bytes[2..ours.len()]));
    }
}

#[test]
fn tsmp_pong() {
    let lines = read("tsmp");
    let pong = tsmp::Message::Pong([1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(tsmp::Message::decode(&lines[0].1), Some(pong));
    assert_eq!(pong.encode(), lines[0].1);
    assert!(lines[1].1.ends_with(&lines[0].1));
    assert_eq!(lines[1].1[6], tsmp::PROTOCOL);
}

#[test]
fn derp_session() {
    let (relay, client) = (private(1), private(2));
    let third = private(3).public();
    let (mut client_frames, mut relay_frames) = (Vec::new(), Vec::new());
    for (direction, bytes) in read("derp-session") {
        let mut decoder = Decoder::default();
        let decoded = decoder.decode::<Error>(&bytes, |frame| {
            let mut again = Vec::new();
            frame.encode(&mut again);
            let frames = if direction == '>' { &mut client_frames } else { &mut relay_frames };
            match frame {
                Frame::ServerKey(key) => assert_eq!(key, relay.public()),
                Frame::ClientInfo { key, sealed } => {
                    assert_eq!(key, client.public());
                    let info = handshake::open_client(&relay, &key, sealed);
                    assert_eq!(info, Ok(ClientInfo { version: 2, can_ack_pings: true }));
                }
                Frame::ServerInfo(sealed) => {
                    let info = handshake::open_server(&client, &relay.public(), sealed);
                    assert_eq!(info, Ok(ServerInfo { version: 2 }));
                }
                other => frames.push(format!("{other:?}")),
            }
            assert!(bytes.windows(again.len()).any(|window| window == again), "written as it was read");
            Ok(())
        });
        decoded.unwrap();
    }
    let expected = [
        Frame::NotePreferred(true),
        Frame::SendPacket { to: third, packet: b"hello" },
        Frame::Ping([1, 2, 3, 4, 5, 6, 7, 8]),
        Frame::SendPacket { to: private(4).public(), packet: b"nobody" },
        Frame::Pong([8, 7, 6, 5, 4, 3, 2, 1]),
    ];
    assert_eq!(client_frames, expected.map(|frame| format!("{frame:?}")));
    let expected = [
        Frame::RecvPacket { from: third, packet: b"answer" },
        Frame::Pong([1, 2, 3, 4, 5, 6, 7, 8]),
        Frame::PeerGone { peer: third, reason: GoneReason::Disconnected },
    ];
    assert_eq!(relay_frames, expected.map(|frame| format!("{frame:?}")));
}

#[test]
fn derp_map() {
    let text = String::from_utf8(read("derp-map").remove(0).1).unwrap();
    let map: DerpMap = serde_json::from_str(&text).unwrap();
    let again = serde_json::to_value(&map).unwrap();
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(&text).unwrap());
    assert!(map.regions[&999].nodes[0].can_port_80, "every field is known");
}
