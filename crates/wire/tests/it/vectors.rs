//! Captured bytes decode, mean what their comments say, and encode again to the same bytes.

use coder_requirements::Requirement;
use std::path::Path;
use std::sync::LazyLock;

use coder_wire::drpc::frame::{self as drpc, FrameError};
use coder_wire::messages::{provisioner, provisionerd};
use coder_wire::mux::frame as mux;
use coder_wire::ws;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};

struct Vector {
    name: String,
    lines: Vec<Line>,
}

enum Line {
    Comment(String),
    Bytes(char, Vec<u8>),
}

/// Our own vectors, and the reference captures where they are present.
fn vectors() -> Vec<Vector> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = manifest.join("tests/vectors");
    let mut all = read(&own);
    assert!(all.len() >= 68, "vectors are missing; run interop capture");
    if let Some(reference) = coder_requirements::directory(Requirement::ProtocolCaptures) {
        all.extend(read(&reference));
    }
    all
}

fn read(folder: &Path) -> Vec<Vector> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "hex"));
    paths.sort();
    paths.iter().map(|path| Vector { name: path.display().to_string(), lines: lines(path) }).collect()
}

fn lines(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let mark = line.chars().next()?;
        let rest = line[1..].trim();
        Some(if mark == '#' { Line::Comment(rest.to_owned()) } else { Line::Bytes(mark, unpack(rest)) })
    };
    text.lines().filter_map(line).collect()
}

/// Hexadecimal in groups; `61*1000` is a run.
fn unpack(text: &str) -> Vec<u8> {
    let group = |group: &str| match group.split_once('*') {
        Some((byte, count)) => hex::decode(byte).unwrap().repeat(count.parse().unwrap()),
        None => hex::decode(group).unwrap(),
    };
    text.split_whitespace().flat_map(group).collect()
}

impl Vector {
    fn is(&self, kind: &str) -> bool {
        Path::new(&self.name).file_name().unwrap().to_str().unwrap().starts_with(kind)
    }

    fn bytes(&self, direction: char) -> Vec<u8> {
        let bytes = |line: &Line| match line {
            Line::Bytes(mark, bytes) if *mark == direction => bytes.clone(),
            _ => Vec::new(),
        };
        self.lines.iter().flat_map(bytes).collect()
    }

    /// The JSON form of a message in the comments.
    fn json(&self) -> serde_json::Value {
        let comments = self.lines.iter().filter_map(|line| match line {
            Line::Comment(text) => Some(text.as_str()),
            Line::Bytes(..) => None,
        });
        let json: String = comments.skip_while(|text| !text.starts_with('{')).collect();
        serde_json::from_str(&json).unwrap()
    }

    fn comment(&self, start: &str) -> &str {
        let found = self.lines.iter().find_map(|line| match line {
            Line::Comment(text) => text.strip_prefix(start),
            Line::Bytes(..) => None,
        });
        found.unwrap().trim()
    }
}

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = protox::compile(["provisionerd.proto"], [proto]).unwrap();
    DescriptorPool::decode(files.encode_to_vec().as_slice()).unwrap()
});

/// Decodes with the generated type and encodes again.
fn through(name: &str, bytes: &[u8]) -> Vec<u8> {
    fn with<M: Message + Default>(bytes: &[u8]) -> Vec<u8> {
        M::decode(bytes).unwrap().encode_to_vec()
    }
    let codec = match name {
        "provisionerd.AcquiredJob" => with::<provisionerd::AcquiredJob>,
        "provisionerd.CompletedJob" => with::<provisionerd::CompletedJob>,
        "provisionerd.FailedJob" => with::<provisionerd::FailedJob>,
        "provisionerd.CommitQuotaRequest" => with::<provisionerd::CommitQuotaRequest>,
        "provisionerd.CommitQuotaResponse" => with::<provisionerd::CommitQuotaResponse>,
        "provisionerd.FileRequest" => with::<provisionerd::FileRequest>,
        "provisionerd.UpdateJobRequest" => with::<provisionerd::UpdateJobRequest>,
        "provisionerd.UpdateJobResponse" => with::<provisionerd::UpdateJobResponse>,
        "provisioner.Agent" => with::<provisioner::Agent>,
        "provisioner.FileUpload" => with::<provisioner::FileUpload>,
        "provisioner.Metadata" => with::<provisioner::Metadata>,
        "provisioner.Request" => with::<provisioner::Request>,
        "provisioner.Resource" => with::<provisioner::Resource>,
        "provisioner.Response" => with::<provisioner::Response>,
        "provisioner.RichParameter" => with::<provisioner::RichParameter>,
        "provisioner.Timing" => with::<provisioner::Timing>,
        other => panic!("no codec for {other}"),
    };
    codec(bytes)
}

fn json(name: &str, bytes: &[u8]) -> serde_json::Value {
    let message = DynamicMessage::decode(POOL.get_message_by_name(name).unwrap(), bytes).unwrap();
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(true);
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}

#[test]
fn messages_decode_to_their_json() {
    let all: Vec<_> = vectors().into_iter().filter(|vector| vector.is("proto-")).collect();
    assert!(all.len() >= 39);
    for vector in all {
        let name = vector.comment("message:");
        let bytes = vector.bytes('=');
        assert_eq!(json(name, &bytes), vector.json(), "{}", vector.name);
        let again = through(name, &bytes);
        assert_eq!(json(name, &again), vector.json(), "{} encoded again", vector.name);
        assert_eq!(again.len(), bytes.len(), "{}", vector.name);
    }
}

#[test]
fn the_decoder_decides_like_the_go_reader() {
    for vector in vectors().into_iter().filter(|vector| vector.is("drpc-frames")) {
        let mut expected = None;
        for line in &vector.lines {
            match line {
                Line::Comment(text) => expected = text.strip_prefix("expect:").or(expected),
                Line::Bytes(_, bytes) => check_case(expected.take().unwrap(), bytes, &vector.name),
            }
        }
    }
}

fn check_case(expected: &str, bytes: &[u8], name: &str) {
    let (packets, end) = drpc::parse(bytes);
    let mut rest = expected.trim();
    for packet in &packets {
        let (head, tail) = rest.strip_prefix("packet(").unwrap().split_once(')').unwrap();
        let fields: Vec<_> = head.split(',').collect();
        let data = if fields[4].ends_with("bytes") {
            format!("{} bytes", packet.data.len())
        } else {
            hex::encode(&packet.data)
        };
        let numbers =
            [u64::from(packet.kind.0), packet.stream, packet.message].map(|number| number.to_string());
        let received =
            [&numbers[0], &numbers[1], &numbers[2], &packet.control.to_string(), &data].map(String::clone);
        assert_eq!(received.as_slice(), fields.as_slice(), "{name}: {expected}");
        rest = tail.trim();
    }
    let fits = match end {
        Ok(()) => rest == "eof",
        Err(FrameError::Order { .. }) => rest.contains("order"),
        Err(FrameError::KindChange { .. }) => rest.contains("kind"),
        Err(FrameError::Varint { .. }) => rest.contains("varint") || rest.contains("number"),
        Err(FrameError::TooLarge { .. }) => false,
    };
    assert!(fits, "{name}: {expected}: {end:?}");
}

#[test]
fn calls_encode_again_to_the_same_bytes() {
    let is_call = |vector: &Vector| vector.is("drpc-") && !vector.is("drpc-frames");
    for vector in vectors().into_iter().filter(is_call) {
        for side in ['>', '<'] {
            let bytes = vector.bytes(side);
            check_packets(&bytes, &vector.name);
        }
    }
}

fn check_packets(bytes: &[u8], name: &str) {
    let (packets, end) = drpc::parse(bytes);
    assert_eq!(end, Ok(()), "{name}");
    let mut again = Vec::new();
    for packet in &packets {
        drpc::encode(&mut again, packet.kind, packet.control, (packet.stream, packet.message), &packet.data);
    }
    assert!(again == bytes, "{name} encodes differently");
}

#[test]
fn calls_decode_to_the_same_packets_in_single_bytes() {
    for vector in vectors().into_iter().filter(|vector| vector.is("drpc-") && !vector.is("drpc-frames")) {
        for side in ['>', '<'] {
            let bytes = vector.bytes(side);
            let mut decoder = drpc::Decoder::default();
            let mut packets = Vec::new();
            for byte in &bytes {
                packets.extend(decoder.decode(&mut &[*byte][..]).unwrap());
            }
            assert_eq!(packets, drpc::parse(&bytes).0, "{}", vector.name);
        }
    }
}

#[test]
fn sessions_encode_again_to_the_same_bytes() {
    for vector in vectors().into_iter().filter(|vector| vector.is("yamux-")) {
        for side in ['>', '<'] {
            check_session(&vector.bytes(side), &vector.name);
        }
    }
}

/// Checks frames, and the packets inside the streams. Returns the number of frames.
fn check_session(bytes: &[u8], name: &str) -> usize {
    let (frames, rest) = mux::parse(bytes).unwrap();
    assert!(rest.is_empty(), "{name}");
    let mut again = Vec::new();
    let mut streams = std::collections::BTreeMap::<u32, Vec<u8>>::new();
    for (header, payload) in &frames {
        again.extend_from_slice(&header.encode());
        again.extend_from_slice(payload);
        if header.kind == mux::Kind::Data {
            streams.entry(header.stream).or_default().extend_from_slice(payload);
        }
    }
    assert!(again == bytes, "{name} encodes differently");
    for payload in streams.values() {
        check_packets(payload, name);
    }
    frames.len()
}

#[test]
fn socket_bytes_are_a_session() {
    let all: Vec<_> = vectors().into_iter().filter(|vector| vector.is("ws-session")).collect();
    for vector in all {
        for (side, masked) in [('>', true), ('<', false)] {
            let bytes = vector.bytes(side);
            let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            if !masked {
                let (status, headers) = ws::handshake::parse(&bytes[..head]).unwrap();
                assert_eq!(status, 101);
                assert!(headers.contains_key("sec-websocket-accept"));
            }
            let mut rest = bytes[head..].to_vec();
            let mut controls = Vec::new();
            let count = ws::frame::Decoder::new(masked).decode(&mut rest, &mut controls).unwrap();
            assert_eq!(controls, [ws::frame::Control::Close(1000)], "{}", vector.name);
            assert!(check_session(&rest[..count], &vector.name) >= 3, "{}", vector.name);
        }
    }
}
