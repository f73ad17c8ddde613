//! The agent's node on the overlay network, in this process, and what listens on its ports.

use std::future::Future;
use std::io;
use std::sync::Arc;

use coder_domain::ids::AgentId;
use coder_server::App;
use coder_tailnet::controller::Controller;
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::derp::Relay;
use coder_tailnet::node::{BoxedFuture, Config, Dialer, Node, TcpStream};
use coder_tailnet::peer::Role;
use coder_wire::bytes::BoxedStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The region of a server's own relay.
pub(super) const REGION: i32 = 999;

/// Connects to a relay without a socket.
pub(super) struct InMemory(pub(super) Relay);

impl Dialer for InMemory {
    fn dial(&self, _region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        let (relay, (ours, theirs)) = (self.0.clone(), tokio::io::duplex(64 << 10));
        tokio::spawn(async move { relay.serve(theirs).await });
        Box::pin(async { Ok(Box::new(ours) as BoxedStream) })
    }
}

/// An agent's node, which is connected to the relay and the coordinator of a server. It ends with this value.
pub(super) struct AgentNode {
    node: Node,
    tasks: JoinSet<()>,
}

impl AgentNode {
    pub(super) fn join(app: &App, agent: AgentId) -> Self {
        let dialer = Arc::new(InMemory(app.network.relay.clone()));
        let node = Node::start(Config::agent(agent.0, REGION, dialer));
        let mut controller = Controller::new(node.clone(), Role::Agent);
        let hub = app.network.hub.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (connection, mut responses) = hub.connect(agent.0, Authorization::Agent(agent.0));
            let (requests, mut outgoing) = mpsc::channel(32);
            let forward = async {
                while let Some(request) = outgoing.recv().await {
                    connection.request(request);
                }
            };
            tokio::select! {
                _ = controller.run(&requests, &mut responses) => {}
                () = forward => {}
            }
        });
        Self { node, tasks }
    }

    /// Peers now.
    pub(super) fn peers(&self) -> usize {
        self.node.peers()
    }

    /// The key by which others know the node.
    pub(super) fn key(&self) -> Vec<u8> {
        self.node.message().key
    }

    /// Serves each connection to a port.
    pub(super) fn serve<F>(&mut self, port: u16, serve: impl Fn(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut listener = self.node.listen(port).unwrap();
        self.tasks.spawn(async move {
            while let Some(stream) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    }
}

/// Reads the head of a request or response; none at the end.
pub(super) async fn read_head(io: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// An app of the workspace: `/cookies` sets headers of all kinds, `/raw` changes to a protocol that sends everything back,
/// `/nothing` ends the connection, and all others get the head of their request back.
pub(super) async fn web_app(mut io: TcpStream) {
    while let Some(head) = read_head(&mut io).await {
        let path = head.split(' ').nth(1).unwrap();
        let answer = match path.split('?').next().unwrap() {
            "/cookies" => "HTTP/1.1 201 Created\r\nSet-Cookie: a=1\r\nSet-Cookie: coder_session_token=evil\r\n\
                Service-Worker-Allowed: /\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept, origin\r\nKeep-Alive: timeout=9\r\n\
                Content-Length: 2\r\n\r\nhi"
                .to_owned(),
            "/raw" => {
                io.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n").await.unwrap();
                let (mut output, mut input) = tokio::io::split(io);
                let _ = tokio::io::copy(&mut output, &mut input).await;
                return;
            }
            "/nothing" => return,
            _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()),
        };
        if io.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
