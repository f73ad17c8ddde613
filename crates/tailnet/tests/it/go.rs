//! The engine inside official agents and clients, through our relay against our node, in both directions.

use std::net::SocketAddrV6;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coder_domain::secret::Secret;
use coder_requirements::Requirement;
use coder_tailnet::address;
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::Relay;
use coder_tailnet::derp::relay::Config as RelayConfig;
use coder_tailnet::derp::upgrade::{self, Form};
use coder_tailnet::key::NodePrivate;
use coder_tailnet::mesh::{self, Mesh};
use coder_tailnet::node::{BoxedFuture, Config, Dialer, Node, PingKind};
use coder_tailnet::peer::PeerConfig;
use coder_wire::bytes::BoxedStream;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use super::rig::content;

const AGENT: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);
const LONG: Duration = Duration::from_secs(60);

/// A relay behind HTTP on loopback, as the server mounts it.
struct HttpRelay {
    relay: Relay,
    port: u16,
    websockets: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for HttpRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpRelay {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let relay = Relay::new(NodePrivate::generate(), RelayConfig::default());
        let websockets = Arc::new(AtomicUsize::new(0));
        let (served, counted) = (relay.clone(), Arc::clone(&websockets));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((io, _)) = listener.accept().await {
                io.set_nodelay(true).unwrap();
                connections.spawn(serve(io, served.clone(), Arc::clone(&counted)));
            }
        });
        Self { relay, port, websockets, task }
    }

    /// Connects two of them, as servers on one database are.
    fn connect(&self, other: &Self) -> JoinSet<Result<(), mesh::Error>> {
        let [one, two] = [self, other].map(|server| {
            Mesh::new(Uuid::new_v4(), Secret::new("secret"), server.relay.clone(), Hub::default())
        });
        let mut connections = JoinSet::new();
        for (from, to) in [(one.clone(), two.clone()), (two, one)] {
            let (near, far) = tokio::io::duplex(256 << 10);
            let other = to.own();
            connections.spawn(async move { to.accept(far, |_| {}).await });
            connections.spawn(async move { from.dial(near, other).await });
        }
        connections
    }
}

async fn serve(mut io: TcpStream, relay: Relay, websockets: Arc<AtomicUsize>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = io.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("GET /derp/latency-check ") {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if io.write_all(answer).await.is_err() {
                return;
            }
            continue;
        }
        assert!(head.starts_with("GET /derp "), "{head}");
        let pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let headers: HeaderMap = pairs
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect();
        let (form, answer) = upgrade::answer(&headers, &relay.public_key()).unwrap();
        if form == Form::WebSocket {
            websockets.fetch_add(1, Ordering::Relaxed);
        }
        let mut text = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in &answer {
            text += &format!("{name}: {}\r\n", value.to_str().unwrap());
        }
        if io.write_all(format!("{text}\r\n").as_bytes()).await.is_ok() {
            let _ = relay.serve(upgrade::server_stream(form, io)).await;
        }
        return;
    }
}

/// Dials the relay over HTTP.
struct HttpDialer(u16, Form);

impl Dialer for HttpDialer {
    fn dial(&self, _: i32) -> BoxedFuture<'_, std::io::Result<BoxedStream>> {
        Box::pin(async move {
            let io = TcpStream::connect(("127.0.0.1", self.0)).await?;
            io.set_nodelay(true)?;
            let uri: Uri = format!("http://127.0.0.1:{}/derp", self.0).parse().unwrap();
            upgrade::client(io, &uri, &HeaderMap::new(), self.1).await.map_err(std::io::Error::other)
        })
    }
}

/// The Go program as a node.
struct GoNode {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    config: PeerConfig,
}

impl GoNode {
    /// None when there is no Go.
    async fn start() -> Option<Self> {
        let go = coder_requirements::program(Requirement::Go)?;
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop-tailnet");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/tailnet");
        let build =
            Command::new(go).args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status();
        assert!(build.await.unwrap().success(), "go build in interop/tailnet failed");
        let mut child = Command::new(&program)
            .arg("node")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let hello: Value = serde_json::from_str(&output.next_line().await.unwrap().unwrap()).unwrap();
        let text = |name: &str| hello[name].as_str().unwrap().to_owned();
        let config = PeerConfig {
            id: Uuid::from_u128(9),
            key: text("key").parse().unwrap(),
            disco: text("disco").parse().unwrap(),
            region: 999,
            addresses: vec![text("address").parse().unwrap()],
        };
        Some(Self { _child: child, input, output, config })
    }

    async fn run(&mut self, command: Value) {
        self.input.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let line = tokio::time::timeout(3 * LONG, self.output.next_line()).await.expect("an answer in time");
        let answer: Value = serde_json::from_str(&line.unwrap().expect("an answer")).unwrap();
        assert_eq!(answer["error"], "", "{command}");
    }
}

/// Echoes on one port until the node is closed.
fn echo(node: &Node, port: u16) -> JoinHandle<()> {
    let mut listener = node.listen(port).unwrap();
    tokio::spawn(async move {
        while let Some(stream) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                    let _ = writer.shutdown().await;
                }
            });
        }
    })
}

/// Runs the Go node against ours, with the relay in one of its forms.
async fn both_directions(form: Form) {
    let relay = HttpRelay::start().await;
    nodes_reach_each_other(form, &relay, &relay).await;
}

/// Runs the Go node at one relay, and ours at another or the same.
async fn nodes_reach_each_other(form: Form, relay: &HttpRelay, of_ours: &HttpRelay) {
    let Some(mut go) = GoNode::start().await else { return };
    let node = Node::start(Config::agent(AGENT, 999, Arc::new(HttpDialer(of_ours.port, form))));
    node.home_relay().wait_for(|is_up| *is_up).await.unwrap();
    node.set_peer(go.config.clone());
    let message = node.message();
    let own = PeerConfig::from_message(AGENT, &message).unwrap();
    let setup = json!({
        "Do": "setup", "Port": relay.port, "WebSocket": form == Form::WebSocket,
        "Peer": { "Key": own.key.to_string(), "Disco": own.disco.to_string(), "Address": address::of(AGENT) },
    });
    go.run(setup).await;
    assert_eq!(relay.websockets.load(Ordering::Relaxed) > 0, form == Form::WebSocket);

    // What official clients do before they connect, and what `coder ping` does.
    go.run(json!({ "Do": "tsmp" })).await;
    go.run(json!({ "Do": "disco" })).await;
    let _echo = echo(&node, 22);
    for bytes in [0, 1, 100_000, 8 << 20] {
        go.run(json!({ "Do": "dial", "Port": 22, "Bytes": bytes })).await;
    }
    let mut udp = node.bind_udp_any().unwrap();
    let answering = async {
        let datagram = udp.recv().await.unwrap();
        udp.send(datagram.destination, datagram.source, &datagram.text).unwrap();
    };
    tokio::join!(answering, go.run(json!({ "Do": "udp", "Port": 53 })));

    // The other direction: what a server does to an official agent.
    let remote = go.config.addresses[0];
    node.wait_reachable(remote, LONG).await.unwrap();
    node.ping(remote, PingKind::Disco, LONG).await.unwrap();
    let mut stream = node.connect(SocketAddrV6::new(remote, 7, 0, 0)).await.unwrap();
    let data = content(4 << 20);
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let mut got = Vec::new();
    let send = async {
        writer.write_all(&data).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let ((), read) = tokio::join!(send, reader.read_to_end(&mut got));
    read.unwrap();
    assert!(got == data);

    // New keys, asked for by either side's other end.
    node.rekey(go.config.id);
    node.wait_reachable(remote, LONG).await.unwrap();
    go.run(json!({ "Do": "dial", "Port": 22, "Bytes": 100_000 })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn official_engine_reaches_our_node_and_is_reached() {
    both_directions(Form::Derp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn official_engine_over_websockets() {
    both_directions(Form::WebSocket).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn official_engine_reaches_a_node_at_another_server() {
    let (one, two) = (HttpRelay::start().await, HttpRelay::start().await);
    let _connections = one.connect(&two);
    nodes_reach_each_other(Form::Derp, &one, &two).await;
}
