//! The resources that a server and its runtime hold now, and joins with hand-written bytes.

use coder_api::client::DaemonFilter;
use coder_testkit::server::TestServer;
use coder_testkit::wait::{WAIT_LIMIT, eventually, settled};
use http::{HeaderMap, HeaderValue, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The counters that show leaked resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Tracked tasks of the server: connections, sessions, background tasks.
    tasks: usize,
    /// Sessions of daemons.
    sessions: usize,
    /// Waiting daemons, and their groups.
    waiting: (usize, usize),
    /// All tasks of the runtime, including drivers of connections.
    alive: usize,
}

impl Counters {
    pub(crate) fn of(server: &TestServer) -> Self {
        let app = &server.handle.app;
        Self {
            tasks: app.lifecycle.running(),
            sessions: app.scheduler.connected().len(),
            waiting: app.scheduler.size(),
            alive: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        }
    }

    pub(crate) const fn tasks(self) -> usize {
        self.tasks
    }

    /// The counters after they have settled: a client of the setup may still be closing.
    pub(crate) async fn at_rest(server: &TestServer) -> Self {
        settled(|| Self::of(server)).await
    }

    /// Waits until the server holds no more than this.
    #[track_caller]
    pub(crate) fn restored(self, server: &TestServer, what: &str) -> impl Future<Output = ()> {
        eventually(what, move || {
            let now = Self::of(server);
            let kept = now.tasks > self.tasks || now.sessions > self.sessions || now.alive > self.alive;
            !kept && now.waiting == self.waiting
        })
    }
}

/// Names of the daemons that have a row.
pub(crate) async fn rows(server: &TestServer) -> Vec<String> {
    let organization = server.owner.my_organizations().await.unwrap()[0].id;
    let filter = DaemonFilter { limit: Some(1000), offline: true, ..DaemonFilter::default() };
    let daemons = server.owner.daemons(organization, &filter).await.unwrap();
    daemons.into_iter().map(|daemon| daemon.name).collect()
}

/// The URL at which daemons join.
pub(crate) const PATH: &str =
    "/api/v2/organizations/default/provisionerdaemons/serve?name=d&provisioner=terraform&version=1.14";

pub(crate) async fn connect(server: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// URL and headers of a join with the owner's session.
pub(crate) async fn request(server: &TestServer) -> (Uri, HeaderMap) {
    let token = server.owner.create_session_key().await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("coder-session-token", HeaderValue::from_str(token.expose()).unwrap());
    (format!("{}{PATH}", server.url()).parse().unwrap(), headers)
}

/// A connection after the 101 response. The test writes everything after it.
pub(crate) async fn joined(server: &TestServer, headers: &HeaderMap) -> TcpStream {
    let mut stream = connect(server).await;
    let mut head = format!(
        "GET {PATH} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    );
    for (name, value) in headers {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    stream.write_all((head + "\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tokio::time::timeout(WAIT_LIMIT, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream
}
