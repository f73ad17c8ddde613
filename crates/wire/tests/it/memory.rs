//! Bounds on the memory that a peer can occupy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coder_wire::budget::Budget;
use coder_wire::daemon::{Client, Limits, serve, serve_stream};
use coder_wire::drpc::frame::{self, Kind as PacketKind};
use coder_wire::file::CHUNK_SIZE;
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd::{Log, UpdateJobRequest};
use coder_wire::mux::frame::{Flags, Header, Kind};
use coder_wire::mux::{Config, STREAM_WINDOW, Session};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, timeout};

use super::harness::{REFUSED_LENGTH, Script, content, in_memory};

const WAIT_LIMIT: Duration = Duration::from_secs(20);
const MIB: usize = 1 << 20;

/// A session whose unread bytes count against a budget, and the bare connection of its peer.
fn accounted(budget: &Budget) -> (DuplexStream, Session) {
    let (near, far) = tokio::io::duplex(MIB);
    (near, Session::accounted(far, Config::default(), Budget::new(2 * MIB).account(1), &budget.account(1)))
}

#[tokio::test]
async fn a_file_is_refused_by_its_header() {
    let script = Script::new(None);
    let (session, serving) = in_memory(&script);
    let client = Client::new(session);
    let kind = DataUploadType::UploadTypeModuleFiles;
    let refused = client.upload_file(kind, content(REFUSED_LENGTH)).await.unwrap_err();
    assert!(refused.to_string().contains("not now"), "{refused}");
    // The same connection continues, and the service received nothing of the refused file.
    client.upload_file(kind, content(10)).await.unwrap();
    script.noted("uploaded 10").await;
    assert!(!script.has_noted(&format!("uploaded {REFUSED_LENGTH}")));
    client.session().close().await;
    serving.await.unwrap();
}

#[tokio::test]
async fn large_messages_of_one_connection_take_turns() {
    let budget = Budget::new(2 * MIB);
    let (near, far) = tokio::io::duplex(MIB);
    let unread = Budget::new(64 * MIB);
    let session = Session::accounted(far, Config::default(), budget.account(1), &unread.account(1));
    let script = Script::new(None);
    let serving = tokio::spawn(async move { serve(&session, script, Limits::default()).await });
    let client = Client::new(Session::client(near, Config::default()));
    let calls = (0..16).map(|_| {
        let client = client.clone();
        let readme: Bytes = vec![1; 3 * MIB].into();
        tokio::spawn(async move {
            client.update_job(&UpdateJobRequest { readme, ..UpdateJobRequest::default() }).await.unwrap()
        })
    });
    for call in calls.collect::<Vec<_>>() {
        let answer = timeout(WAIT_LIMIT, call).await.unwrap().unwrap();
        assert_eq!(answer.variable_values[0].value, (3 * MIB).to_string());
    }
    // One message may exceed the budget, or none would ever fit.
    let peak = budget.take_peak();
    assert!((3 * MIB..=2 * MIB + 6 * 4 * MIB).contains(&peak), "{peak}");
    client.session().close().await;
    serving.await.unwrap();
    assert_eq!((budget.used(), unread.used()), (0, 0));
}

/// Opens streams without a reader, each with all the bytes that its credit allows.
async fn fill(mut peer: DuplexStream, streams: u32) -> DuplexStream {
    for id in (0..streams).map(|number| 2 * number + 1) {
        let data = Header::new(Kind::Data, Flags::SYN, id, STREAM_WINDOW).encode();
        if timeout(Duration::from_millis(500), async {
            peer.write_all(&data).await?;
            peer.write_all(&vec![7; STREAM_WINDOW as usize]).await
        })
        .await
        .is_err()
        {
            break;
        }
    }
    peer
}

#[tokio::test(start_paused = true)]
async fn unread_bytes_of_all_streams_are_bounded() {
    for (budget, most) in [(usize::MAX / 2, 16 * MIB + (64 << 10)), (2 * MIB, MIB + (256 << 10))] {
        let budget = Budget::new(budget);
        let (peer, session) = accounted(&budget);
        let _peer = fill(peer, 100).await;
        let unread = session.unread();
        assert!(unread > most / 2 && unread <= most, "{unread}");
        // Discarded bytes make room for further ones.
        let reading = tokio::spawn({
            let session = session.clone();
            async move {
                let mut found = 0;
                while let Ok(Ok(mut stream)) = timeout(Duration::from_secs(1), session.accept()).await {
                    let mut bytes = vec![0; STREAM_WINDOW as usize];
                    let read = timeout(Duration::from_secs(1), stream.read_exact(&mut bytes)).await;
                    found += read.map_or(0, |read| read.unwrap());
                }
                found
            }
        });
        assert!(reading.await.unwrap() > most, "reading goes on");
        assert!(session.unread() < STREAM_WINDOW as usize, "{}", session.unread());
    }
}

/// Nobody wakes a session that waits for memory of others: it tries again by itself.
#[tokio::test(start_paused = true)]
async fn a_session_that_got_no_memory_is_read_on_when_there_is_some() {
    let budget = Budget::new(2 * MIB);
    let mut other = budget.account(2).reserve();
    other.grow(2 * MIB).await;
    let (peer, session) = accounted(&budget);
    let filling = tokio::spawn(fill(peer, 4));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let little = session.unread();
    assert!(little < STREAM_WINDOW as usize, "{little}");
    drop(other);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(session.unread() > little, "{little} bytes as before");
    filling.await.unwrap();
}

#[tokio::test]
async fn a_download_reserves_two_chunks() {
    let budget = Budget::new(64 * MIB);
    let (near, far) = tokio::io::duplex(MIB);
    let session = Session::accounted(far, Config::default(), budget.account(1), &budget.account(2));
    let script = Script::new(None);
    let serving = tokio::spawn(async move { serve(&session, script, Limits::default()).await });
    let client = Client::new(Session::client(near, Config::default()));
    let kind = DataUploadType::UploadTypeModuleFiles;
    assert_eq!(client.download_file("3000000", kind).await.unwrap().len(), 3_000_000);
    client.session().close().await;
    serving.await.unwrap();
    assert_eq!((budget.take_peak(), budget.used()), (2 * CHUNK_SIZE, 0));
}

#[tokio::test]
async fn a_message_of_too_many_elements_is_not_decoded() {
    let script = Script::new(None);
    let (session, serving) = in_memory(&script);
    let client = Client::new(session);
    let update =
        |lines| UpdateJobRequest { logs: vec![Log::default(); lines], ..UpdateJobRequest::default() };
    client.update_job(&update(100_000)).await.unwrap();
    let refused = client.update_job(&update(100_001)).await.unwrap_err();
    assert!(refused.to_string().contains("100001 elements"), "{refused}");
    client.update_job(&update(1)).await.unwrap();
    client.session().close().await;
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_packet_times_out() {
    let (mut near, far) = tokio::io::duplex(64);
    let serving =
        tokio::spawn(serve_stream(Box::new(far), Arc::clone(&Script::new(None)), Limits::default()));
    let mut bytes = Vec::new();
    frame::encode(
        &mut bytes,
        PacketKind::INVOKE,
        false,
        (1, 1),
        b"/provisionerd.ProvisionerDaemon/UpdateJob",
    );
    frame::encode(&mut bytes, PacketKind::MESSAGE, false, (1, 2), &vec![0; MIB]);
    let start = Instant::now();
    for byte in bytes.chunks(1024) {
        // Never silent for long, and never complete.
        if start.elapsed() < Duration::from_secs(3600) && near.write_all(byte).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(50)).await;
    }
    timeout(WAIT_LIMIT, serving).await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
}
