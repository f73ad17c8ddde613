//! Measures the network in one process: one TCP stream through the relay over loopback, and what an idle connection to the relay
//! and an idle peer cost. With two servers, the agent is connected to the relay of the other one.
//!
//!     cargo run --release -p coder-tailnet --example throughput [MEGABYTES] [IDLE] [SERVERS]
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for developers")]

use std::io;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coder_domain::secret::Secret;
use coder_tailnet::address;
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::Relay;
use coder_tailnet::derp::client;
use coder_tailnet::derp::relay::Config as RelayConfig;
use coder_tailnet::key::{DiscoPrivate, NodePrivate};
use coder_tailnet::mesh::Mesh;
use coder_tailnet::node::{BoxedFuture, Config, Dialer, Node};
use coder_tailnet::peer::PeerConfig;
use coder_wire::bytes::BoxedStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

struct Loopback(u16);

impl Dialer for Loopback {
    fn dial(&self, _: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        Box::pin(async move {
            let io = TcpStream::connect(("127.0.0.1", self.0)).await?;
            io.set_nodelay(true)?;
            Ok(Box::new(io) as BoxedStream)
        })
    }
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Processor time of this process in seconds, which other programs on the machine do not change.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program may have blanks. Times are in hundredths.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// A relay on loopback, and its port.
async fn relay() -> (Relay, u16) {
    let relay = Relay::new(NodePrivate::generate(), RelayConfig::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = relay.clone();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            io.set_nodelay(true).unwrap();
            let relay = serving.clone();
            tokio::spawn(async move { drop(relay.serve(io).await) });
        }
    });
    (relay, port)
}

/// Connects two servers over loopback.
async fn connect(relays: [&Relay; 2]) {
    let mesh =
        relays.map(|relay| Mesh::new(Uuid::new_v4(), Secret::new("secret"), relay.clone(), Hub::default()));
    for (from, to) in [(&mesh[0], &mesh[1]), (&mesh[1], &mesh[0])] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        near.set_nodelay(true).unwrap();
        let (from, to, other) = (from.clone(), to.clone(), to.own());
        tokio::spawn(async move { drop(to.accept(far, |_| {}).await) });
        tokio::spawn(async move { drop(from.dial(near, other).await) });
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap());
    let size = arguments.next().unwrap_or(500) << 20;
    let idle = arguments.next().unwrap_or(1000);
    let servers = arguments.next().unwrap_or(1);
    let (relay, port) = relay().await;
    let (mut other, mut agent_port) = (None, port);
    if servers > 1 {
        let (second, port) = self::relay().await;
        connect([&relay, &second]).await;
        (other, agent_port) = (Some(second), port);
    }
    let (agent_id, client_id) = (Uuid::new_v4(), Uuid::new_v4());
    let agent = Node::start(Config::agent(agent_id, 999, Arc::new(Loopback(agent_port))));
    let user = Node::start(Config::client(999, Arc::new(Loopback(port))));
    for node in [&agent, &user] {
        node.home_relay().wait_for(|is_up| *is_up).await.unwrap();
    }
    agent.set_peer(PeerConfig::from_message(client_id, &user.message()).unwrap());
    user.set_peer(PeerConfig::from_message(agent_id, &agent.message()).unwrap());
    let to = SocketAddrV6::new(address::of(agent_id), 80, 0, 0);
    let pong = user.wait_reachable(*to.ip(), Duration::from_secs(10)).await.unwrap();
    println!("ping {:?}", pong.latency);

    // Before the transfer, whose memory would be used again.
    let cost = |before: u64| resident().saturating_sub(before) / idle.max(1) as u64;
    let before = resident();
    let mut clients = Vec::new();
    for _ in 0..idle {
        let mut io = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        client::connect(&mut io, &NodePrivate::generate()).await.unwrap();
        clients.push(io);
    }
    println!("idle connection of the relay: {} bytes (both ends)", cost(before));
    let before = resident();
    for _ in 0..idle {
        let id = Uuid::new_v4();
        agent.set_peer(PeerConfig {
            id,
            key: NodePrivate::generate().public(),
            disco: DiscoPrivate::generate().public(),
            region: 999,
            addresses: vec![address::of(id)],
        });
    }
    println!("idle peer of a node: {} bytes", cost(before));

    let mut port_80 = agent.listen(80).unwrap();
    let reading = tokio::spawn(async move {
        let mut stream = port_80.accept().await.unwrap();
        let mut buffer = vec![0; 64 << 10];
        let mut got = 0;
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            got += count;
        }
        got
    });
    let mut stream = user.connect(to).await.unwrap();
    let block = vec![7; 64 << 10];
    let (started, worked) = (Instant::now(), processor());
    for _ in 0..size / block.len() {
        stream.write_all(&block).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    let got = reading.await.unwrap();
    let seconds = started.elapsed().as_secs_f64();
    println!("{} MiB in {seconds:.2} s: {:.0} Mbit/s", got >> 20, got as f64 * 8.0 / seconds / 1e6);
    let worked = processor() - worked;
    println!(
        "{worked:.2} s of processor time for both nodes and the relay: {:.0} Mbit/s for each processor",
        got as f64 * 8.0 / worked / 1e6
    );
    let dropped: u64 =
        [Some(&relay), other.as_ref()].into_iter().flatten().map(|relay| relay.counts().dropped).sum();
    println!("dropped by the relays: {dropped}");
}
