//! One function for each decoder of this crate: for any bytes it returns, and its result is consistent. `corpus` replays what
//! fuzzing found with them, and the targets of `fuzz/` call them.

use std::time::Duration;

use coder_tailnet::coordinator::{Authorization, Coordinator, Output};
use coder_tailnet::derp::frame::{Decoder, Error as FrameError};
use coder_tailnet::derp::relay::Config;
use coder_tailnet::derp::{DerpMap, Relay, client, upgrade};
use coder_tailnet::key::{DiscoPrivate, DiscoPublic, NodePrivate, NodePublic};
use coder_tailnet::messages::{CoordinateRequest, Node};
use coder_tailnet::peer::PeerConfig;
use coder_tailnet::{address, disco, tsmp};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

fn choice(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(first, rest)| (*first, rest))
}

/// Frames, in one piece and in many; what was read can be written and is the same.
pub(crate) fn derp(data: &[u8]) {
    let Some((first, bytes)) = choice(data) else { return };
    let decoded = |piece: usize| {
        let (mut decoder, mut frames, mut out) = (Decoder::default(), Vec::new(), Vec::new());
        let mut end = Ok(());
        for part in bytes.chunks(piece) {
            end = decoder.decode::<FrameError>(part, |frame| {
                frame.encode(&mut out);
                frames.push(format!("{frame:?}"));
                Ok(())
            });
            if end.is_err() {
                break;
            }
        }
        (frames, out, end)
    };
    let whole = decoded(bytes.len().max(1));
    assert_eq!(decoded(usize::from(first) + 1), whole, "pieces mean nothing");
    let mut again = Vec::new();
    let read = Decoder::default().decode::<FrameError>(&whole.1, |frame| {
        again.push(format!("{frame:?}"));
        Ok(())
    });
    assert_eq!(read, Ok(()));
    again.extend(whole.0.iter().filter(|frame| frame.starts_with("Unknown")).cloned());
    assert_eq!(again.len(), whole.0.len());
}

/// A client of a relay that sends these bytes after the handshake, or instead of it; everything ends.
pub(crate) fn derp_session(data: &[u8]) {
    let Some((first, bytes)) = choice(data) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let relay = Relay::new(NodePrivate::from_bytes([1; 32]), Config::default());
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let serving = relay.clone();
        let served = tokio::spawn(async move { serving.serve(far).await });
        if first & 1 == 1 {
            client::connect(&mut near, &NodePrivate::from_bytes([2; 32])).await.expect("it is ours");
        }
        near.write_all(bytes).await.expect("there is room");
        near.shutdown().await.expect("a pipe");
        let mut answer = Vec::new();
        let both = async { tokio::join!(served, near.read_to_end(&mut answer)) };
        let ended = tokio::time::timeout(Duration::from_secs(3600), both).await.expect("everything ends");
        drop(ended.0.expect("no panic"));
        // Each ping is answered, and a packet to itself comes back; nothing grows.
        assert!(answer.len() <= 4096 + 4 * bytes.len(), "{} bytes are answered", answer.len());
        assert_eq!(relay.counts().connections, 0);
    });
}

/// Disco: the packet, and the text of its box.
pub(crate) fn disco_packet(data: &[u8]) {
    if let Some((key, sealed)) = disco::split(data) {
        assert!(
            DiscoPrivate::from_bytes([1; 32])
                .shared(&key)
                .open(sealed)
                .is_none_or(|text| text.len() < data.len())
        );
    }
    if let Some(message) = disco::Message::decode(data) {
        assert_eq!(disco::Message::decode(&message.encode()), Some(message));
    }
}

/// TSMP.
pub(crate) fn tsmp_packet(data: &[u8]) {
    if let Some(message) = tsmp::Message::decode(data) {
        assert_eq!(tsmp::Message::decode(&message.encode()), Some(message));
    }
}

/// Texts: keys, addresses, DERP maps, answers to the upgrade.
pub(crate) fn tailnet_texts(data: &[u8]) {
    let Some((first, bytes)) = choice(data) else { return };
    let text = String::from_utf8_lossy(bytes);
    match first % 4 {
        0 => {
            if let Ok(key) = text.parse::<NodePublic>() {
                assert_eq!(key.to_string().parse(), Ok(key));
            }
            if let Ok(key) = text.parse::<DiscoPublic>() {
                assert_eq!(key.to_string().parse(), Ok(key));
            }
            let _ = NodePublic::from_binary(bytes);
        }
        1 => {
            if let Ok(found) = address::parse_prefix(&text) {
                assert_eq!(address::parse_prefix(&address::to_prefix(found)), Ok(found));
            }
        }
        2 => {
            if let Ok(map) = serde_json::from_str::<DerpMap>(&text) {
                let written = serde_json::to_string(&map).expect("it has only texts and numbers");
                let _ = (map.home(), map.to_message());
                let again: DerpMap = serde_json::from_str(&written).expect("what was written is read");
                // Scores are not compared: the last digit of a number may change.
                assert_eq!(again.regions, map.regions);
            }
        }
        _ => {
            for form in [upgrade::Form::Derp, upgrade::Form::WebSocket] {
                let _ = upgrade::check(bytes, form, "dGhlIHNhbXBsZSBub25jZQ==");
            }
        }
    }
}

/// Requests of two peers at the coordinator, each behind a length of two bytes; the first byte of each chooses the peer.
pub(crate) fn coordinate(data: &[u8]) {
    let (agent, client) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut coordinator = Coordinator::default();
    let (agent_connection, _) = coordinator.connect(agent, Authorization::Agent(agent));
    let (client_connection, _) = coordinator.connect(client, Authorization::Client(agent));
    let mut bytes = data;
    while let Some((&[chosen, low, high], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (one, rest) = rest.split_at(length);
        bytes = rest;
        if let Ok(node) = Node::decode(one) {
            let _ =
                PeerConfig::from_message(client, &node).map(|config| assert!(config.addresses.len() <= 8));
        }
        let Ok(request) = CoordinateRequest::decode(one) else { continue };
        let connection = if chosen & 1 == 0 { agent_connection } else { client_connection };
        let ready = request.ready_for_handshake.len();
        let outputs = coordinator.request(connection, request);
        assert!(outputs.len() <= 8 + ready, "{outputs:?}");
        for output in outputs {
            if let Output::Send(_, response) = output {
                assert!(response.encoded_len() <= 1 << 20);
            }
        }
    }
    assert!(coordinator.peers() <= 2);
}

/// Reads whatever bytes.
pub(crate) type Decode = fn(&[u8]);

/// Every decoder by the name of its corpus.
pub(crate) const DECODERS: [(&str, Decode); 6] = [
    ("derp", derp),
    ("derp-session", derp_session),
    ("disco", disco_packet),
    ("tsmp", tsmp_packet),
    ("tailnet-texts", tailnet_texts),
    ("coordinate", coordinate),
];
