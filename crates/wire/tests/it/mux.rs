//! The multiplexer against hand-written frames and against itself, on a paused clock where time matters.

use std::time::Duration;

use coder_wire::drpc;
use coder_wire::mux::frame::{Flags, HEADER, Header, Kind};
use coder_wire::mux::{Config, Error, STREAM_WINDOW, Session};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;

const WAIT_LIMIT: Duration = Duration::from_secs(20);

fn pair() -> (Session, Session) {
    let (near, far) = tokio::io::duplex(64 << 10);
    (Session::client(near, Config::default()), Session::server(far, Config::default()))
}

/// Our server, and the bare connection of its peer.
fn bare() -> (DuplexStream, Session) {
    let (near, far) = tokio::io::duplex(1 << 20);
    (near, Session::server(far, Config::default()))
}

async fn send(io: &mut DuplexStream, kind: Kind, flags: Flags, stream: u32, length: u32) {
    io.write_all(&Header::new(kind, flags, stream, length).encode()).await.unwrap();
}

/// The next frame's header, its payload skipped.
async fn next(io: &mut DuplexStream) -> Header {
    let mut head = [0; HEADER];
    timeout(WAIT_LIMIT, io.read_exact(&mut head)).await.unwrap().unwrap();
    let header = Header::decode(&head).unwrap();
    if header.kind == Kind::Data {
        io.read_exact(&mut vec![0; header.length as usize]).await.unwrap();
    }
    header
}

const fn header(kind: Kind, flags: Flags, stream: u32, length: u32) -> Header {
    Header::new(kind, flags, stream, length)
}

#[tokio::test]
async fn a_new_stream_is_acknowledged_at_once_although_nobody_accepts() {
    let (mut peer, _session) = bare();
    send(&mut peer, Kind::WindowUpdate, Flags::SYN, 1, 0).await;
    assert_eq!(next(&mut peer).await, header(Kind::WindowUpdate, Flags::ACK, 1, 0));
    send(&mut peer, Kind::Data, Flags::SYN, 3, 0).await;
    assert_eq!(next(&mut peer).await, header(Kind::WindowUpdate, Flags::ACK, 3, 0));
}

#[tokio::test]
async fn a_dropped_stream_sends_one_fin_and_discards_what_still_arrives() {
    let (mut peer, session) = bare();
    send(&mut peer, Kind::WindowUpdate, Flags::SYN, 1, 0).await;
    next(&mut peer).await;
    drop(session.accept().await.unwrap());
    assert_eq!(next(&mut peer).await, header(Kind::WindowUpdate, Flags::FIN, 1, 0));
    for _ in 0..3 {
        send(&mut peer, Kind::Data, Flags::NONE, 1, STREAM_WINDOW / 2).await;
        peer.write_all(&vec![0; STREAM_WINDOW as usize / 2]).await.unwrap();
        assert_eq!(next(&mut peer).await, header(Kind::WindowUpdate, Flags::NONE, 1, STREAM_WINDOW / 2));
    }
    assert_eq!(session.open_streams(), 1);
    send(&mut peer, Kind::WindowUpdate, Flags::FIN, 1, 0).await;
    send(&mut peer, Kind::Ping, Flags::SYN, 0, 77).await;
    assert_eq!(next(&mut peer).await, header(Kind::Ping, Flags::ACK, 0, 77), "no second FIN, no reset");
    assert_eq!(session.open_streams(), 0);
}

#[tokio::test]
async fn shutting_down_twice_sends_one_fin() {
    let (mut peer, session) = bare();
    send(&mut peer, Kind::WindowUpdate, Flags::SYN, 1, 0).await;
    next(&mut peer).await;
    let mut stream = session.accept().await.unwrap();
    stream.shutdown().await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    assert_eq!(next(&mut peer).await, header(Kind::WindowUpdate, Flags::FIN, 1, 0));
    send(&mut peer, Kind::Ping, Flags::SYN, 0, 1).await;
    assert_eq!(next(&mut peer).await, header(Kind::Ping, Flags::ACK, 0, 1));
}

#[tokio::test]
async fn a_half_closed_stream_still_carries_the_other_direction() {
    let (client, server) = pair();
    let mut near = client.open().await.unwrap();
    let mut far = server.accept().await.unwrap();
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"question");
    far.write_all(&[5; 200_000]).await.unwrap();
    drop(far);
    received.clear();
    near.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), 200_000);
}

#[tokio::test]
async fn sending_beyond_the_credit_ends_the_session() {
    let (mut peer, session) = bare();
    send(&mut peer, Kind::WindowUpdate, Flags::SYN, 1, 0).await;
    next(&mut peer).await;
    send(&mut peer, Kind::Data, Flags::NONE, 1, STREAM_WINDOW + 1).await;
    assert_eq!(next(&mut peer).await, header(Kind::GoAway, Flags::NONE, 0, 1));
    assert!(matches!(session.closed().await, Error::Protocol(_)));
}

#[tokio::test]
async fn our_own_credit_is_respected() {
    let (mut peer, session) = bare();
    send(&mut peer, Kind::WindowUpdate, Flags::SYN, 1, 0).await;
    next(&mut peer).await;
    let mut stream = session.accept().await.unwrap();
    let writing = tokio::spawn(async move {
        stream.write_all(&vec![1; 1 << 20]).await.unwrap();
        stream
    });
    let mut received = 0;
    while received < STREAM_WINDOW {
        received += next(&mut peer).await.length;
    }
    assert_eq!(received, STREAM_WINDOW, "not one byte more");
    send(&mut peer, Kind::Ping, Flags::SYN, 0, 5).await;
    assert_eq!(next(&mut peer).await.kind, Kind::Ping, "nothing follows without credit");
    assert!(!writing.is_finished());
    send(&mut peer, Kind::WindowUpdate, Flags::NONE, 1, 1 << 20).await;
    while received < 1 << 20 {
        received += next(&mut peer).await.length;
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back_and_no_other_stream() {
    let (client, server) = pair();
    let mut slow = client.open().await.unwrap();
    let unread = server.accept().await.unwrap();
    let mut taken = 0;
    // The window and the stream's own buffer fill, then the writer waits.
    while let Ok(count) = timeout(Duration::from_millis(100), slow.write(&[0; 8192])).await {
        taken += count.unwrap();
        assert!(taken <= STREAM_WINDOW as usize + (64 << 10), "{taken} bytes were taken from the writer");
    }
    assert_eq!(taken, STREAM_WINDOW as usize + (64 << 10));
    let mut other = client.open().await.unwrap();
    other.write_all(b"through").await.unwrap();
    other.shutdown().await.unwrap();
    let mut received = Vec::new();
    server.accept().await.unwrap().read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"through");
    drop(unread);
}

#[tokio::test]
async fn a_stream_with_much_to_send_does_not_starve_another() {
    let (client, server) = pair();
    let mut much = client.open().await.unwrap();
    let mut sink = server.accept().await.unwrap();
    let flood = tokio::spawn(async move { while much.write_all(&[0; 65536]).await.is_ok() {} });
    let drain = tokio::spawn(async move { while sink.read(&mut [0; 65536]).await.is_ok_and(|n| n > 0) {} });
    for _ in 0..20 {
        let mut little = client.open().await.unwrap();
        little.write_all(b"x").await.unwrap();
        let mut far = server.accept().await.unwrap();
        assert_eq!(timeout(WAIT_LIMIT, far.read_u8()).await.unwrap().unwrap(), b'x');
    }
    assert!(!flood.is_finished());
    client.close().await;
    flood.await.unwrap();
    drain.await.unwrap();
}

#[tokio::test]
async fn a_reset_ends_the_stream_and_is_final() {
    let (mut peer, session) = bare();
    send(&mut peer, Kind::WindowUpdate, Flags::SYN, 1, 0).await;
    next(&mut peer).await;
    let mut stream = session.accept().await.unwrap();
    send(&mut peer, Kind::WindowUpdate, Flags::RST, 1, 0).await;
    let error = stream.read_u8().await.unwrap_err();
    assert!(matches!(Error::inside(&error), Some(Error::Reset)));
    assert!(!drpc::Error::from(Error::Reset).is_retryable());
    drop(stream);
    assert_eq!(session.open_streams(), 0);
    assert!(session.end().is_none());
}

#[tokio::test]
async fn frames_of_unknown_streams_are_dropped() {
    let (mut peer, session) = bare();
    send(&mut peer, Kind::Data, Flags::NONE, 9, 3).await;
    peer.write_all(b"abc").await.unwrap();
    send(&mut peer, Kind::WindowUpdate, Flags::FIN, 11, 0).await;
    send(&mut peer, Kind::Ping, Flags::SYN, 0, 4).await;
    assert_eq!(next(&mut peer).await, header(Kind::Ping, Flags::ACK, 0, 4));
    assert!(session.end().is_none());
}

#[tokio::test]
async fn streams_beyond_the_backlog_are_refused() {
    let (mut peer, session) = bare();
    for index in 0..257 {
        send(&mut peer, Kind::WindowUpdate, Flags::SYN, 2 * index + 1, 0).await;
        let flags = if index < 256 { Flags::ACK } else { Flags::RST };
        assert_eq!(next(&mut peer).await, header(Kind::WindowUpdate, flags, 2 * index + 1, 0));
    }
    assert_eq!(session.open_streams(), 256);
}

#[tokio::test]
async fn bad_frames_end_the_session() {
    for bytes in [
        [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        header(Kind::WindowUpdate, Flags::SYN, 2, 0).encode(),
        header(Kind::WindowUpdate, Flags::SYN, 0, 0).encode(),
        header(Kind::Data, Flags::NONE, 5, u32::MAX).encode(),
        header(Kind::GoAway, Flags::NONE, 0, 2).encode(),
    ] {
        let (mut peer, session) = bare();
        peer.write_all(&bytes).await.unwrap();
        let end = timeout(WAIT_LIMIT, session.closed()).await.unwrap();
        assert!(matches!(end, Error::Frame(_) | Error::Protocol(_) | Error::PeerError(2)), "{end:?}");
    }
}

#[tokio::test]
async fn frames_may_be_split_at_every_offset() {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&header(Kind::WindowUpdate, Flags::SYN, 1, 0).encode());
    bytes.extend_from_slice(&header(Kind::Data, Flags::NONE, 1, 5).encode());
    bytes.extend_from_slice(b"hello");
    bytes.extend_from_slice(&header(Kind::Data, Flags::FIN, 1, 2).encode());
    bytes.extend_from_slice(b"!!");
    let whole = |pieces: Vec<Vec<u8>>| async move {
        let (mut peer, session) = bare();
        for piece in pieces {
            peer.write_all(&piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut received = Vec::new();
        session.accept().await.unwrap().read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"hello!!");
    };
    for cut in 0..bytes.len() {
        whole(vec![bytes[..cut].to_vec(), bytes[cut..].to_vec()]).await;
    }
    whole(bytes.chunks(1).map(<[u8]>::to_vec).collect()).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_lives_for_hours() {
    let (client, server) = pair();
    let mut near = client.open().await.unwrap();
    let mut far = server.accept().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10 * 3600)).await;
    far.write_all(b"job").await.unwrap();
    let mut received = [0; 3];
    near.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"job");
    assert!(client.end().is_none() && server.end().is_none());
}

#[tokio::test(start_paused = true)]
async fn pings_leave_every_30_s_and_silence_ends_the_session_10_s_later() {
    let (mut peer, session) = bare();
    let start = tokio::time::Instant::now();
    for round in 1..=3 {
        let ping = next_forever(&mut peer).await;
        assert_eq!((ping.kind, ping.flags, ping.length), (Kind::Ping, Flags::SYN, round - 1));
        assert_eq!(start.elapsed().as_secs(), u64::from(round) * 30);
        if round < 3 {
            send(&mut peer, Kind::Ping, Flags::ACK, 0, ping.length).await;
        }
    }
    assert!(matches!(session.closed().await, Error::Silent));
    assert_eq!(start.elapsed().as_secs(), 100);
}

async fn next_forever(io: &mut DuplexStream) -> Header {
    let mut head = [0; HEADER];
    io.read_exact(&mut head).await.unwrap();
    Header::decode(&head).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_never_acknowledged_ends_the_session_after_75_s() {
    let (mut peer, far) = tokio::io::duplex(1 << 20);
    let session = Session::client(far, Config::default());
    let start = tokio::time::Instant::now();
    let _stream = session.open().await.unwrap();
    let answering = tokio::spawn(async move {
        let mut head = [0; HEADER];
        while peer.read_exact(&mut head).await.is_ok() {
            let received = Header::decode(&head).unwrap();
            if received.kind == Kind::Ping && received.flags == Flags::SYN {
                send(&mut peer, Kind::Ping, Flags::ACK, 0, received.length).await;
            }
        }
    });
    assert!(matches!(session.closed().await, Error::OpenTimeout));
    assert_eq!(start.elapsed().as_secs(), 75);
    answering.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_stream_is_reset_after_5_min() {
    let (client, server) = pair();
    let near = client.open().await.unwrap();
    let far = server.accept().await.unwrap();
    drop(near);
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(client.open_streams(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(client.open_streams(), 0);
    drop(far);
    assert_eq!(server.open_streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn open_waits_while_256_streams_are_unacknowledged() {
    let (mut peer, far) = tokio::io::duplex(1 << 20);
    let session = Session::client(far, Config::default());
    let mut streams = Vec::new();
    for _ in 0..256 {
        streams.push(session.open().await.unwrap());
    }
    assert!(timeout(Duration::from_secs(1), session.open()).await.is_err());
    send(&mut peer, Kind::WindowUpdate, Flags::ACK, 1, 0).await;
    timeout(Duration::from_secs(1), session.open()).await.unwrap().unwrap();
}

#[tokio::test]
async fn closing_flushes_what_was_written() {
    let (client, server) = pair();
    let mut near = client.open().await.unwrap();
    near.write_all(&[3; 40_000]).await.unwrap();
    near.shutdown().await.unwrap();
    let mut far = server.accept().await.unwrap();
    client.close().await;
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), 40_000);
    assert!(matches!(server.closed().await, Error::Ended));
    assert!(matches!(client.open().await, Err(Error::Closed)));
}

#[tokio::test]
async fn dropping_the_last_session_closes_it() {
    let (client, server) = pair();
    let copy = client.clone();
    drop(client);
    copy.ping().await.unwrap();
    drop(copy);
    assert!(matches!(timeout(WAIT_LIMIT, server.closed()).await.unwrap(), Error::Ended));
}

#[tokio::test]
async fn dropping_the_last_session_flushes_what_was_written() {
    // The connection takes the frames in many parts.
    let (near, far) = tokio::io::duplex(1024);
    let client = Session::client(near, Config::default());
    let server = Session::server(far, Config::default());
    let mut near = client.open().await.unwrap();
    near.write_all(&[3; 40_000]).await.unwrap();
    near.shutdown().await.unwrap();
    drop((near, client));
    let mut received = Vec::new();
    let mut far = timeout(WAIT_LIMIT, server.accept()).await.unwrap().unwrap();
    timeout(WAIT_LIMIT, far.read_to_end(&mut received)).await.unwrap().unwrap();
    assert_eq!(received.len(), 40_000);
}

/// Only new streams are refused.
#[tokio::test]
async fn a_peer_that_goes_away_without_an_error_does_not_end_the_session() {
    let (mut peer, session) = bare();
    send(&mut peer, Kind::GoAway, Flags::NONE, 0, 0).await;
    // The answer shows that what came before was processed.
    send(&mut peer, Kind::Ping, Flags::SYN, 0, 7).await;
    assert_eq!(next(&mut peer).await, header(Kind::Ping, Flags::ACK, 0, 7));
    assert!(session.end().is_none());
    assert!(matches!(session.open().await, Err(Error::GoAway)));
}

#[tokio::test]
async fn a_flood_of_pings_is_bounded_by_the_reader() {
    let (near, far) = tokio::io::duplex(4096);
    let (mut near, session) = (near, Session::server(far, Config::default()));
    let ping = header(Kind::Ping, Flags::SYN, 0, 1).encode().repeat(100);
    let mut sent = 0;
    // The peer reads nothing: soon nothing of it is read either.
    while let Ok(result) = timeout(Duration::from_millis(100), near.write(&ping[sent % ping.len()..])).await {
        sent += result.unwrap();
        assert!(sent < 200_000, "{sent} bytes of pings were taken");
    }
    assert!(session.end().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn garbage_never_panics_and_never_hangs(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut peer, session) = bare();
            peer.write_all(&bytes).await.unwrap();
            drop(peer);
            timeout(WAIT_LIMIT, session.closed()).await.unwrap();
        });
    }

    #[test]
    fn headers_survive(flags: u16, stream: u32, length: u32, kind in 0..4_usize) {
        let kind = [Kind::Data, Kind::WindowUpdate, Kind::Ping, Kind::GoAway][kind];
        let header = Header::new(kind, Flags(flags), stream, length);
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

#[tokio::test]
async fn a_ping_ends_with_its_own_answer_only() {
    use futures_util::FutureExt as _;
    let (mut peer, session) = bare();
    let (mut first, mut second) = (Box::pin(session.ping()), Box::pin(session.ping()));
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    for value in [0, 1] {
        assert_eq!(next(&mut peer).await, header(Kind::Ping, Flags::SYN, 0, value));
    }
    // An answer to nothing, then the second, and a ping of the peer whose answer proves that both were read.
    for value in [7, 1] {
        send(&mut peer, Kind::Ping, Flags::ACK, 0, value).await;
    }
    send(&mut peer, Kind::Ping, Flags::SYN, 0, 99).await;
    assert_eq!(next(&mut peer).await, header(Kind::Ping, Flags::ACK, 0, 99));
    second.now_or_never().expect("it was answered").unwrap();
    assert!(first.as_mut().now_or_never().is_none());
    send(&mut peer, Kind::Ping, Flags::ACK, 0, 0).await;
    timeout(WAIT_LIMIT, first).await.unwrap().unwrap();
}

#[tokio::test]
async fn sixteen_pings_may_wait_and_dropped_ones_do_not_count() {
    use futures_util::FutureExt as _;
    let (_peer, session) = bare();
    let mut waiting: Vec<_> = (0..16).map(|_| Box::pin(session.ping())).collect();
    assert!(waiting.iter_mut().all(|ping| ping.as_mut().now_or_never().is_none()));
    assert!(matches!(session.ping().now_or_never(), Some(Err(Error::Silent))));
    waiting.pop();
    let mut again = Box::pin(session.ping());
    assert!(again.as_mut().now_or_never().is_none());
    assert!(matches!(session.ping().now_or_never(), Some(Err(Error::Silent))));
}

#[tokio::test]
async fn each_end_has_ids_of_its_own() {
    let (client, server) = pair();
    for (client_id, server_id) in [(1, 2), (3, 4)] {
        let (near, far) = (client.open().await.unwrap(), server.open().await.unwrap());
        assert_eq!((near.id(), far.id()), (client_id, server_id));
        assert_eq!(server.accept().await.unwrap().id(), client_id);
        assert_eq!(client.accept().await.unwrap().id(), server_id);
    }
}

#[tokio::test]
async fn closing_waits_for_a_peer_that_reads_slowly() {
    let (near, far) = tokio::io::duplex(1024);
    let client = Session::client(near, Config::default());
    let server = Session::server(far, Config::default());
    let mut near = client.open().await.unwrap();
    near.write_all(&[3; 40_000]).await.unwrap();
    near.shutdown().await.unwrap();
    let mut far = timeout(WAIT_LIMIT, server.accept()).await.unwrap().unwrap();
    client.close().await;
    let mut received = Vec::new();
    timeout(WAIT_LIMIT, far.read_to_end(&mut received)).await.unwrap().unwrap();
    assert_eq!(received.len(), 40_000);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_5_s_for_a_peer_that_reads_nothing() {
    let (near, _peer) = tokio::io::duplex(1024);
    let session = Session::client(near, Config::default());
    let mut stream = session.open().await.unwrap();
    stream.write_all(&[3; 40_000]).await.unwrap();
    let start = tokio::time::Instant::now();
    session.close().await;
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(matches!(session.end(), Some(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_flush_ends_when_the_connection_has_taken_the_bytes() {
    let (near, mut peer) = tokio::io::duplex(1024);
    let session = Session::client(near, Config::default());
    let mut stream = session.open().await.unwrap();
    // More than is put together for one write to the connection.
    stream.write_all(&[3; 64 << 10]).await.unwrap();
    let mut flushing = tokio::spawn(async move { stream.flush().await });
    assert!(timeout(Duration::from_millis(50), &mut flushing).await.is_err(), "the peer has read nothing");
    let reading = tokio::spawn(async move { peer.read_exact(&mut [0; 64 << 10]).await.map(drop) });
    timeout(WAIT_LIMIT, flushing).await.unwrap().unwrap().unwrap();
    reading.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_session_is_shown_with_its_streams_and_its_end() {
    let (client, _server) = pair();
    let stream = client.open().await.unwrap();
    assert_eq!(format!("{client:?}"), "Session { streams: 1, end: None }");
    assert_eq!(format!("{stream:?}"), "Stream { id: 1, .. }");
    drop(stream);
    client.close().await;
    assert!(format!("{client:?}").contains("Closed"), "{client:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_takes_no_time_when_everything_has_left() {
    let (client, server) = pair();
    let stream = client.open().await.unwrap();
    server.accept().await.unwrap();
    let start = tokio::time::Instant::now();
    client.close().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(matches!(server.closed().await, Error::Ended));
    drop(stream);
}
