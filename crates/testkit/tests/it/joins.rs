//! Joins over real sockets that end or stall at every byte, from the request line to the first call.

use std::time::Duration;

use coder_testkit::daemon::FakeDaemon;
use coder_testkit::server::TestServer;
use coder_testkit::stream::{Fault, FaultyStream};
use coder_testkit::wait::{WAIT_LIMIT, eventually, settled};
use coder_wire::daemon::Client;
use coder_wire::mux::{Config, Session};
use coder_wire::ws::handshake;
use http::{HeaderMap, Uri};

use crate::counters::{Counters, connect, request, rows};

/// The longest time until the server ends a silent connection: two keepalive pings, the wait for their answer, and the
/// closing handshake.
const JOIN_TIMEOUT: Duration = Duration::from_secs(100);
const CLOCK_STEP: Duration = Duration::from_secs(5);

/// A bound on the bytes that a join writes.
const MAX_JOIN_BYTES: usize = 3000;

/// A join and a first call over a connection that breaks after this many written bytes. Returns whether they succeeded.
async fn attempt(server: &TestServer, uri: &Uri, headers: &HeaderMap, bytes: usize, fault: Fault) -> bool {
    let io = FaultyStream::new(connect(server).await, bytes, fault);
    let Ok(socket) = handshake::client(io, uri, headers).await else { return false };
    let daemon = FakeDaemon::over(socket);
    daemon.calls.acquire(std::future::ready(())).await.is_ok()
}

/// A join needs at least this many bytes.
async fn length(server: &TestServer, uri: &Uri, headers: &HeaderMap) -> usize {
    let step = 16;
    let mut tried = 0;
    while !attempt(server, uri, headers, tried + step, Fault::Cut).await {
        tried += step;
        assert!(tried < MAX_JOIN_BYTES, "the join never succeeds");
    }
    tried
}

/// Checks that other requests are answered and other daemons can join.
async fn goes_on(server: &TestServer) {
    server.owner.user("me").await.unwrap();
    let daemon = FakeDaemon::join_with_session(&server.owner, "other").await.unwrap();
    daemon.calls.acquire(std::future::ready(())).await.unwrap();
    daemon.leave().await;
}

#[tokio::test]
async fn a_join_cut_at_any_byte_leaves_nothing_behind() {
    let server = TestServer::start().await.unwrap();
    let (uri, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let mut bytes = 0;
    loop {
        let attempt = attempt(&server, &uri, &headers, bytes, Fault::Cut);
        let is_through = tokio::time::timeout(WAIT_LIMIT, attempt).await.unwrap();
        before.restored(&server, &format!("cut after {bytes} bytes")).await;
        if is_through {
            break;
        }
        if bytes % 100 == 0 {
            goes_on(&server).await;
        }
        bytes += 1;
        assert!(bytes < MAX_JOIN_BYTES, "the join never succeeds");
    }
    assert!(bytes > 300, "request, WebSocket, multiplexer and call are longer than {bytes} bytes");
    goes_on(&server).await;
    let mut rows = rows(&server).await;
    rows.sort();
    assert_eq!(rows, ["d", "other"], "one name, one row, however often it was tried");
    server.stop().await.unwrap();
}

/// Moves the clock, and gives the sockets real time to react.
pub(crate) async fn pass(server: &TestServer, time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    settled(|| Counters::of(server)).await;
}

/// The clock is moved by hand when all of them are stalled, so that no limit of the server has to be shortened.
#[tokio::test]
async fn joins_that_stall_at_any_byte_are_ended_in_time() {
    let server = TestServer::start().await.unwrap();
    let (uri, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let length = length(&server, &uri, &headers).await;
    let mut stalled = tokio::task::JoinSet::new();
    for bytes in 0..length {
        let io = FaultyStream::new(connect(&server).await, bytes, Fault::Stall);
        let (uri, headers) = (uri.clone(), headers.clone());
        stalled.spawn(async move {
            if let Ok(socket) = handshake::client(io, &uri, &headers).await {
                // This side never ends the connection, so that the server has to.
                let never = Duration::from_secs(1 << 20);
                let config = Config { keepalive_interval: never, open_timeout: never, ..Config::default() };
                let daemon = FakeDaemon { calls: Client::new(Session::client(socket, config)) };
                daemon.calls.acquire(std::future::pending()).await.ok();
            }
            std::future::pending::<()>().await;
        });
    }
    let hanging = stalled.len();
    // Each has its connection at the server: as a request under way, or as a session.
    eventually("all hang", || server.handle.app.lifecycle.running() >= hanging).await;
    goes_on(&server).await;
    let app = &server.handle.app;
    let is_over = || app.scheduler.connected().is_empty() && app.lifecycle.running() <= before.tasks();
    let mut passed = Duration::ZERO;
    while !is_over() {
        assert!(
            passed < JOIN_TIMEOUT,
            "of {hanging} stalled joins {:?} is left after {passed:?}",
            Counters::of(&server)
        );
        pass(&server, CLOCK_STEP).await;
        passed += CLOCK_STEP;
    }
    goes_on(&server).await;
    stalled.shutdown().await;
    // Unsent bytes of this side are discarded.
    for _ in 0..4 {
        pass(&server, CLOCK_STEP).await;
    }
    before.restored(&server, "after the stalled joins").await;
    server.stop().await.unwrap();
}
