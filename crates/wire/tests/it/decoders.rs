//! One function for each decoder of this crate: it ends for any bytes, and its results are consistent. `corpus` replays the
//! findings of fuzzing, and the targets of `fuzz/` call these functions.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use coder_wire::daemon::{Limits, Service, serve, serve_stream};
use coder_wire::drpc::frame::{self, FrameError, Packet};
use coder_wire::drpc::{MAX_MESSAGE_SIZE, Status};
use coder_wire::extension::{self, Extensions, StateTransfer, messages as ext};
use coder_wire::file;
use coder_wire::messages::coder::agent::v2 as agent;
use coder_wire::messages::{provisioner as pb, provisionerd as pd};
use coder_wire::mux;
use coder_wire::mux::frame::{HEADER, Header, Kind};
use coder_wire::transfer::Transfer as _;
use coder_wire::ws::frame::{Control, Decoder};
use coder_wire::ws::{Error, Socket, handshake};
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// The first byte chooses, the rest is what a peer sends.
fn choice(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(first, rest)| (*first, rest))
}

/// WebSocket frames of a client or a server, in one piece and in many.
pub(crate) fn websocket(data: &[u8]) {
    let Some((first, bytes)) = choice(data) else { return };
    let (masked, piece) = (first & 1 == 1, usize::from(first >> 1) + 1);
    let decoded = |piece: usize| {
        let mut decoder = Decoder::new(masked);
        let (mut payload, mut controls) = (Vec::new(), Vec::new());
        let mut bytes = bytes.to_vec();
        for part in bytes.chunks_mut(piece) {
            let sent = part.len();
            match decoder.decode(part, &mut controls) {
                Ok(count) => {
                    assert!(count <= sent, "no payload from nowhere");
                    payload.extend_from_slice(&part[..count]);
                }
                Err(error) => return (payload, controls, Err::<(), Error>(error)),
            }
            if matches!(controls.last(), Some(Control::Close(_))) {
                break;
            }
        }
        (payload, controls, Ok(()))
    };
    let whole = decoded(bytes.len().max(1));
    for control in &whole.1 {
        assert!(!matches!(control, Control::Ping(payload) if payload.len() > 125));
    }
    let (payload, controls, end) = decoded(piece);
    assert_eq!((&controls, end), (&whole.1, whole.2), "pieces mean nothing");
    // A violation discards the payload of its chunk.
    assert!(if end.is_ok() { payload == whole.0 } else { whole.0.is_empty() });
}

/// Headers of the multiplexer.
pub(crate) fn yamux(data: &[u8]) {
    let Ok((frames, rest)) = mux::frame::parse(data) else { return };
    let length = |(header, payload): &(Header, &[u8])| {
        assert!(header.kind == Kind::Data || payload.is_empty());
        assert_eq!(Header::decode(&header.encode()), Ok(*header));
        HEADER + payload.len()
    };
    assert_eq!(frames.iter().map(length).sum::<usize>() + rest.len(), data.len(), "no byte is lost");
}

/// Packets of calls, in one piece and in many; what was read can be written and is the same.
pub(crate) fn drpc(data: &[u8]) {
    let Some((first, bytes)) = choice(data) else { return };
    let _ = Status::decode(bytes);
    let limit = [64, 1024, 1 << 16, MAX_MESSAGE_SIZE][usize::from(first & 3)];
    let piece = usize::from(first >> 2) + 1;
    let decoded = |piece: usize| {
        let mut decoder = frame::Decoder::new(limit);
        let mut packets: Vec<Packet> = Vec::new();
        for mut part in bytes.chunks(piece) {
            loop {
                match decoder.decode(&mut part) {
                    Ok(Some(packet)) => packets.push(packet),
                    Ok(None) => break,
                    Err(FrameError::TooLarge { size, .. }) if size <= 16 * limit as u64 => {}
                    Err(error) => return (packets, Err(error)),
                }
            }
        }
        (packets, Ok(()))
    };
    let (packets, end) = decoded(bytes.len().max(1));
    assert_eq!(decoded(piece), (packets.clone(), end), "pieces mean nothing");
    let total: usize = packets.iter().map(|packet| packet.data.len()).sum();
    assert!(total <= bytes.len() && packets.iter().all(|packet| packet.data.len() <= limit));
    let mut written = Vec::new();
    for packet in &packets {
        let ids = (packet.stream, packet.message);
        frame::encode(&mut written, packet.kind, packet.control, ids, &packet.data);
    }
    assert_eq!(frame::parse(&written), (packets, Ok(())));
}

/// A message that decodes is a value: it can be shown, and what is written of it is the same message.
fn message<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    let _ = format!("{message:?}");
    let written = message.encode_to_vec();
    let again = M::decode(&*written).expect("what was written is read");
    // Not compared as values: NaN differs from itself.
    assert_eq!(again.encode_to_vec(), written);
}

/// Every message that a daemon or a server reads from the other, of both services.
pub(crate) fn messages(data: &[u8]) {
    const ALL: &[fn(&[u8])] = &[
        message::<pd::AcquiredJob>,
        message::<pd::CancelAcquire>,
        message::<pd::CommitQuotaRequest>,
        message::<pd::CommitQuotaResponse>,
        message::<pd::UpdateJobRequest>,
        message::<pd::UpdateJobResponse>,
        message::<pd::FailedJob>,
        message::<pd::CompletedJob>,
        message::<pd::FileRequest>,
        message::<pb::FileUpload>,
        message::<ext::AttachRequest>,
        message::<ext::AttachResponse>,
        message::<ext::HoldRequest>,
        message::<ext::HoldResponse>,
        message::<ext::LogsRequest>,
        message::<ext::LogsResponse>,
        message::<ext::JournalPiece>,
        message::<ext::JournalReceipt>,
        message::<ext::SlotsReport>,
        message::<ext::SlotsReceipt>,
        message::<ext::ProgramReport>,
        message::<ext::ProgramReceipt>,
        message::<ext::NotificationsRequest>,
        message::<ext::Notification>,
        uploaded,
        journal,
        message::<agent::Manifest>,
        message::<agent::UpdateStartupRequest>,
        message::<agent::UpdateLifecycleRequest>,
        message::<agent::UpdateStatsRequest>,
        message::<agent::BatchUpdateAppHealthRequest>,
        message::<agent::BatchUpdateMetadataRequest>,
        message::<agent::BatchCreateLogsRequest>,
        message::<agent::WorkspaceAgentScriptCompletedRequest>,
        message::<agent::PushResourcesMonitoringUsageRequest>,
        message::<agent::ReportConnectionRequest>,
        message::<agent::CreateSubAgentRequest>,
        message::<agent::DeleteSubAgentRequest>,
        message::<agent::ReportBoundaryLogsRequest>,
    ];
    let Some((first, bytes)) = choice(data) else { return };
    ALL[usize::from(first) % ALL.len()](bytes);
}

/// Messages behind a length of two bytes each.
fn several<M: Message + Default>(mut bytes: &[u8]) -> impl Iterator<Item = M> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (one, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        bytes = rest;
        M::decode(one).ok()
    })
}

fn uploaded(bytes: &[u8]) {
    const LIMIT: usize = 1 << 16;
    let mut receiver = file::Receiver::new(LIMIT);
    for message in several::<pb::FileUpload>(bytes) {
        match receiver.take(message) {
            Ok(None) => {}
            Ok(Some(file)) => {
                assert!(file.data.len() <= LIMIT && file.hash == file::hash(&file.data));
                return;
            }
            Err(error) => return drop(error.to_string()),
        }
    }
}

fn journal(bytes: &[u8]) {
    const LIMIT: usize = 1 << 16;
    let mut messages = several::<ext::JournalPiece>(bytes);
    let Some(first) = messages.next() else { return };
    let (mut transfer, header) = match StateTransfer::begin(first, LIMIT) {
        Ok(begun) => begun,
        Err(error) => return drop(error.to_string()),
    };
    assert!(header.token.len() <= extension::MAX_TOKEN_SIZE);
    let mut found = 0;
    for message in messages {
        match transfer.take(message) {
            Ok(data) => found += data.len(),
            Err(error) => return drop(error.to_string()),
        }
        assert!(found <= LIMIT);
        match transfer.is_complete() {
            Ok(false) => {}
            Ok(true) => return,
            Err(error) => return drop(error.to_string()),
        }
    }
}

/// A clock that only moves when nothing else can.
fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// The HTTP before a WebSocket, both sides, and the header of the extensions.
pub(crate) fn upgrade(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(64) {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    if let Ok(answer) = handshake::answer(&headers) {
        assert_eq!(answer.len(), 3, "nothing is agreed on that an official client does not expect");
    }
    let found = Extensions::from_headers(&headers);
    let said: HeaderMap =
        found.header().map(|value| (HeaderName::from_static(extension::HEADER), value)).into_iter().collect();
    assert_eq!(Extensions::from_headers(&said), found);

    let _ = handshake::parse(data);
    let uri = http::Uri::from_static("http://coder.test/serve?name=d");
    paused().block_on(async {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        near.write_all(data).await.expect("there is room");
        near.shutdown().await.expect("a pipe");
        if let Err(handshake::Error::Refused { body, .. }) = handshake::client(far, &uri, &headers).await {
            assert!(body.len() <= 1024, "no more of a refusal is kept");
        }
    });
}

/// Answers every call with an empty message.
struct EmptyService;

macro_rules! empty_answers {
    ($($call:ident($request:ty) -> $answer:ty;)+) => {$(
        async fn $call(&self, _: $request, _: CancellationToken) -> Result<$answer, Status> {
            Ok(<$answer>::default())
        }
    )+};
}

impl Service for EmptyService {
    type Upload = bytes::BytesMut;
    type Download = Option<Bytes>;

    async fn begin_upload(&self, _: &file::FileHeader) -> Result<Self::Upload, Status> {
        Ok(Self::Upload::default())
    }

    async fn upload_file(
        &self,
        _: file::FileHeader,
        _: Self::Upload,
        _: CancellationToken,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn download_file(
        &self,
        _: pd::FileRequest,
        _: CancellationToken,
    ) -> Result<(usize, [u8; 32], Self::Download), Status> {
        Ok((0, file::hash(b""), None))
    }

    async fn acquire(&self, call: &mut coder_wire::daemon::Acquire) -> Result<(), Status> {
        let _ = call.closed().await;
        Ok(())
    }

    empty_answers! {
        commit_quota(pd::CommitQuotaRequest) -> pd::CommitQuotaResponse;
        update_job(pd::UpdateJobRequest) -> pd::UpdateJobResponse;
        fail_job(pd::FailedJob) -> ();
        complete_job(pd::CompletedJob) -> ();
    }
}

/// A whole peer, at one of the layers: a client or a server of WebSockets, either end of the multiplexer, or a caller.
/// After its bytes the connection is cut, or falls silent; either ends everything.
pub(crate) fn session(data: &[u8]) {
    let Some((first, bytes)) = choice(data) else { return };
    let (layer, cut) = (first & 7, first & 8 != 0);
    paused().block_on(async {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let config = mux::Config::default();
        let running = tokio::spawn(async move {
            match layer {
                0 | 1 => {
                    let mut received = Vec::new();
                    let mut socket = if layer == 0 { Socket::server(far) } else { Socket::client(far) };
                    let _ = socket.read_to_end(&mut received).await;
                }
                2 => serve_stream(Box::new(far), std::sync::Arc::new(EmptyService), Limits::default()).await,
                3 => {
                    // A daemon: the peer answers its streams, and it reads the streams of the peer.
                    let session = mux::Session::client(far, config);
                    let client = coder_wire::daemon::Client::new(session.clone());
                    let call = async { drop(client.update_job(&pd::UpdateJobRequest::default()).await) };
                    let accept = async {
                        while let Ok(mut stream) = session.accept().await {
                            let _ = stream.read(&mut [0; 64]).await;
                        }
                    };
                    tokio::join!(call, accept);
                }
                4 => {
                    let session = mux::Session::server(Socket::server(far), config);
                    drop(serve(&session, std::sync::Arc::new(EmptyService), Limits::default()).await);
                }
                _ => {
                    let session = mux::Session::server(far, config);
                    drop(serve(&session, std::sync::Arc::new(EmptyService), Limits::default()).await);
                    assert_eq!(session.open_streams(), 0, "nothing is left of a session");
                }
            }
        });
        let mut answer = Vec::new();
        let talk = async {
            let sent = near.write_all(bytes).await;
            if cut || layer < 2 {
                let _ = near.shutdown().await;
            }
            sent
        };
        let _ = talk.await;
        // A peer that reads, but sends nothing more, times out in the end.
        let reading = async { drop(near.read_to_end(&mut answer).await) };
        let both = async { tokio::join!(running, reading) };
        let (ran, ()) = tokio::time::timeout(Duration::from_secs(3600), both).await.expect("everything ends");
        ran.expect("no panic");
        let most = 4096 + 64 * bytes.len();
        assert!(answer.len() <= most, "{} bytes are answered to {}", answer.len(), bytes.len());
    });
}

/// Reads arbitrary bytes.
pub(crate) type Decode = fn(&[u8]);

/// Every decoder by the name of its corpus.
pub(crate) const DECODERS: [(&str, Decode); 6] = [
    ("websocket", websocket),
    ("yamux", yamux),
    ("drpc", drpc),
    ("messages", messages),
    ("upgrade", upgrade),
    ("session", session),
];
