//! Peers that disconnect, send invalid bytes or do not read: the session ends, no resources are left, and other
//! sessions continue.

use coder_domain::ids::{KeyId, UserId};
use coder_domain::tags::TagSet;
use coder_server::App;
use coder_server::provisioning::session::Session;
use coder_store::daemons::{self, NewDaemon};
use coder_testkit::daemon::FakeDaemon;
use coder_testkit::server::TestServer;
use coder_testkit::stream::{Fault, FaultyStream};
use coder_testkit::wait::{WAIT_LIMIT, eventually};
use coder_wire::ws::Socket;
use tokio::io::{AsyncWriteExt, DuplexStream};

/// The server's end of a WebSocket after its upgrade. The test has the other end.
async fn session(app: &App) -> DuplexStream {
    let join = NewDaemon {
        organization_id: app.default_organization,
        name: "d".to_owned(),
        key_id: KeyId::USER_AUTH,
        provisioners: vec!["terraform".to_owned()],
        tags: TagSet::canonical(UserId::NIL, []),
        version: String::new(),
        api_version: "1.14".to_owned(),
    };
    let id = daemons::upsert(&mut app.store.single().await.unwrap(), &join, app.now()).await.unwrap();
    let (near, far) = tokio::io::duplex(64 << 10);
    let session = Session::new(app.clone(), id, &join, "http://coder.test".to_owned());
    app.lifecycle.spawn("session", session.run(Socket::server(near)));
    far
}

async fn until_gone(app: &App) {
    eventually("nobody is left", || app.scheduler.connected().is_empty() && app.scheduler.size() == (0, 0))
        .await;
}

#[tokio::test]
async fn a_connection_cut_at_any_byte_leaves_nothing_behind() {
    let server = TestServer::start().await.unwrap();
    let app = &server.handle.app;
    let mut bytes = 0;
    loop {
        let far = session(app).await;
        let daemon = FakeDaemon::over(Socket::client(FaultyStream::new(far, bytes, Fault::Cut)));
        let exchange = daemon.calls.acquire(std::future::ready(()));
        let outcome = tokio::time::timeout(WAIT_LIMIT, exchange).await.unwrap();
        drop(daemon);
        until_gone(app).await;
        if outcome.is_ok() {
            break;
        }
        bytes += 1;
        assert!(bytes < 2000, "the exchange never succeeds");
    }
    assert!(bytes > 50, "the cut was before the end at least so often: {bytes}");
}

#[tokio::test]
async fn nonsense_ends_the_session() {
    let server = TestServer::start().await.unwrap();
    let app = &server.handle.app;
    let mut seed = 1_u64;
    for round in 0..50 {
        let mut far = session(app).await;
        let noise: Vec<u8> = (0..512)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                seed.to_be_bytes()[0]
            })
            .collect();
        // Every other round it is wrapped in a valid WebSocket frame, so that it reaches the layer below.
        if round % 2 == 0 {
            let mut socket = Socket::client(far);
            socket.write_all(&noise).await.ok();
            socket.flush().await.ok();
        } else {
            far.write_all(&noise).await.ok();
        }
        until_gone(app).await;
    }
}
