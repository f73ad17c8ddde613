//! The multiplexer alone against the Go library, both ways: flow control under load in both directions at once, half
//! closes, resets of what does not fit, GoAway, pings.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coder_wire::mux::{Error, Session, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, split};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::harness::{GoServer, Server, content, go_client};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// More than any window, so that credit is used up and returned again and again.
const TRANSFER_BYTES: usize = 3 << 20;

/// Sends back what comes on every stream, and ends each when the peer has.
async fn echo(session: Session) {
    let mut streams = JoinSet::new();
    while let Ok(stream) = session.accept().await {
        streams.spawn(echoes(stream));
    }
    while let Some(ended) = streams.join_next().await {
        ended.unwrap();
    }
}

async fn echoes(stream: Stream) {
    let (mut reader, mut writer) = split(stream);
    copy(&mut reader, &mut writer).await.unwrap();
    writer.shutdown().await.unwrap();
}

async fn echoed(session: &Session, size: usize) {
    let (mut reader, mut writer) = split(session.open().await.unwrap());
    let writing = async {
        writer.write_all(&content(size)).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let reading = async { reader.read_to_end(&mut received).await.unwrap() };
    timeout(WAIT_LIMIT, async { tokio::join!(writing, reading) }).await.unwrap();
    assert!(received == content(size), "{} of {size} bytes, or others", received.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_streams_of_ours_carry_data_in_both_directions_at_once() {
    let Some(mut server) = GoServer::start() else { return };
    let session = server.join("/echo").await;
    let mut running = JoinSet::new();
    for _ in 0..8 {
        let session = session.clone();
        running.spawn(async move { echoed(&session, TRANSFER_BYTES).await });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    session.ping().await.unwrap();
    session.close().await;
    let report = server.report();
    for count in ["resets_in", "resets_out", "goaways_in"] {
        assert_eq!(report[count], 0, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_streams_of_go_carry_data_in_both_directions_at_once() {
    let server = Server::raw(echo).await;
    let Some(report) = go_client(&server.url, &format!("echo={TRANSFER_BYTES}")).await else { return };
    for count in ["resets_in", "resets_out", "goaways_in"] {
        assert_eq!(report[count], 0, "{report}");
    }
    assert_eq!(server.open_streams().await, 0);
}

/// The Go library lets four wait here and resets the rest; a reset is final for its stream and no harm to the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_go_end_single_streams() {
    let Some(mut server) = GoServer::start() else { return };
    let session = server.join("/full").await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(session.open().await.unwrap());
    }
    session.ping().await.unwrap();
    let mut resets = 0;
    for stream in &mut streams {
        match timeout(Duration::from_millis(100), stream.read_u8()).await {
            Err(_) => {}
            Ok(read) => {
                let error = read.unwrap_err();
                assert!(matches!(Error::inside(&error), Some(Error::Reset)), "{error}");
                resets += 1;
            }
        }
    }
    assert_eq!(resets, 6);
    assert!(session.end().is_none());
    drop(streams);
    session.close().await;
    let report = server.report();
    assert_eq!((&report["resets_out"], &report["resets_in"]), (&6.into(), &0.into()), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_handles_our_resets() {
    let server = Server::raw(|session| async move { drop(session.closed().await) }).await;
    // 256 may wait to be accepted.
    let Some(report) = go_client(&server.url, "full=44").await else { return };
    assert_eq!((&report["resets_in"], &report["resets_out"]), (&44.into(), &0.into()), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_go_continue_after_its_goaway() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&ends);
    let server = Server::raw(move |session| {
        let noted = Arc::clone(&noted);
        async move {
            // The first frame of this scenario is the GoAway; the stream comes after it.
            let stream = session.accept().await.unwrap();
            let opened = session.open().await.map(drop);
            noted.lock().unwrap().push(opened);
            echoes(stream).await;
            session.closed().await;
        }
    })
    .await;
    if go_client(&server.url, "goaway").await.is_none() {
        return;
    }
    let ends = ends.lock().unwrap();
    assert!(matches!(ends[..], [Err(Error::GoAway)]), "{ends:?}");
}
