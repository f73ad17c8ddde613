//! A network in memory: a relay, nodes that reach it, and a wire between them that loses and reorders packets.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coder_tailnet::controller::{Controller, Handle};
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::Relay;
use coder_tailnet::derp::frame::{Decoder, Error as FrameError, Frame};
use coder_tailnet::derp::relay::Config as RelayConfig;
use coder_tailnet::disco;
use coder_tailnet::key::NodePrivate;
use coder_tailnet::node::{BoxedFuture, Config, Dialer, Node};
use coder_tailnet::peer::Role;
use coder_wire::bytes::BoxedStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// What happens to packets on their way to the relay, in parts of a thousand.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: AtomicU64,
    pub(crate) swapped: AtomicU64,
    pub(crate) doubled: AtomicU64,
    /// Bytes a second of each node to the relay; 0 for any number.
    pub(crate) speed: AtomicU64,
    /// The relay refuses connections.
    pub(crate) refuses: AtomicBool,
    dice: AtomicU64,
}

impl Faults {
    /// Whether something that happens to `parts` of a thousand packets happens to this one. The same in every run.
    fn happens(&self, parts: &AtomicU64) -> bool {
        let parts = parts.load(Ordering::Relaxed);
        let mut roll = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        roll = (roll ^ (roll >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        roll = (roll ^ (roll >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (roll ^ (roll >> 31)) % 1000 < parts
    }
}

/// The relay and the coordinator of one server. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    relay: Arc<std::sync::Mutex<Relay>>,
    pub(crate) hub: Hub,
    pub(crate) faults: Arc<Faults>,
    /// Connections to the relay, so that a test can cut them.
    connections: Arc<std::sync::Mutex<Vec<JoinHandle<()>>>>,
}

impl Network {
    pub(crate) fn new() -> Self {
        Self {
            relay: Arc::new(std::sync::Mutex::new(new_relay())),
            hub: Hub::default(),
            faults: Arc::default(),
            connections: Arc::default(),
        }
    }

    pub(crate) fn relay(&self) -> Relay {
        self.relay.lock().unwrap().clone()
    }

    /// The relay's process dies, and another with another key takes its place.
    pub(crate) fn restart_relay(&self) {
        *self.relay.lock().unwrap() = new_relay();
        self.cut_relay();
    }

    /// Every connection to the relay ends.
    pub(crate) fn cut_relay(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    pub(crate) fn agent(&self, id: Uuid) -> Peer {
        self.agent_at_relay_of(self, id)
    }

    /// An agent that is connected to the coordinator here and to the relay of another server.
    pub(crate) fn agent_at_relay_of(&self, other: &Self, id: Uuid) -> Peer {
        let node = Node::start(Config::agent(id, 999, Arc::new(other.clone())));
        Peer::start(self, other, node, id, Role::Agent, Authorization::Agent(id), None)
    }

    pub(crate) fn client_of(&self, agent: Uuid) -> Peer {
        self.client_at_relay_of(self, agent)
    }

    /// A client that is connected to the coordinator here and to the relay of another server.
    pub(crate) fn client_at_relay_of(&self, other: &Self, agent: Uuid) -> Peer {
        let node = Node::start(Config::client(999, Arc::new(other.clone())));
        Peer::start(
            self,
            other,
            node,
            Uuid::new_v4(),
            Role::Client,
            Authorization::Client(agent),
            Some(agent),
        )
    }
}

fn new_relay() -> Relay {
    Relay::new(NodePrivate::generate(), RelayConfig::default())
}

impl Dialer for Network {
    fn dial(&self, region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        assert_eq!(region, 999);
        Box::pin(async move {
            if self.faults.refuses.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (near, wire_near) = tokio::io::duplex(256 << 10);
            let (wire_far, far) = tokio::io::duplex(256 << 10);
            let (relay, faults) = (self.relay(), Arc::clone(&self.faults));
            let connection = tokio::spawn(async move {
                tokio::select! {
                    _ = relay.serve(far) => {}
                    () = wire(wire_near, wire_far, &faults) => {}
                }
            });
            self.connections.lock().unwrap().push(connection);
            Ok(Box::new(near) as BoxedStream)
        })
    }
}

/// Carries frames between a client and the relay.
async fn wire(client: DuplexStream, relay: DuplexStream, faults: &Faults) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_relay, mut to_relay) = tokio::io::split(relay);
    let up = async {
        let (mut decoder, mut held) = (Decoder::default(), Vec::new());
        let mut bytes = vec![0; 64 << 10];
        loop {
            let Ok(count @ 1..) = from_client.read(&mut bytes).await else { return };
            let speed = faults.speed.load(Ordering::Relaxed);
            if let Some(micros) = (count as u64 * 1_000_000).checked_div(speed) {
                tokio::time::sleep(Duration::from_micros(micros)).await;
            }
            let mut out = Vec::new();
            let decoded = decoder.decode::<FrameError>(&bytes[..count], |frame| {
                // Handshakes of WireGuard pass: their retries follow the machine's clock, which no test moves.
                let is_data = matches!(frame, Frame::SendPacket { packet, .. }
                    if packet.first() == Some(&4) || packet.starts_with(&disco::MAGIC));
                if !is_data {
                    frame.encode(&mut out);
                    return Ok(());
                }
                if faults.happens(&faults.lost) {
                    return Ok(());
                }
                if held.is_empty() && faults.happens(&faults.swapped) {
                    frame.encode(&mut held);
                    return Ok(());
                }
                frame.encode(&mut out);
                if faults.happens(&faults.doubled) {
                    frame.encode(&mut out);
                }
                out.append(&mut held);
                Ok(())
            });
            if decoded.is_err() || to_relay.write_all(&out).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_relay.read(&mut bytes).await {
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

/// A node that follows the coordinator.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) node: Node,
    pub(crate) id: Uuid,
    handle: Handle,
    controller: JoinHandle<()>,
    /// Where its relay is.
    relay: Network,
    /// The coordinator of its next stream.
    hub: watch::Sender<Hub>,
}

impl Peer {
    fn start(
        network: &Network,
        relay: &Network,
        node: Node,
        id: Uuid,
        role: Role,
        authorization: Authorization,
        destination: Option<Uuid>,
    ) -> Self {
        let mut controller = Controller::new(node.clone(), role);
        if let Some(agent) = destination {
            controller.add_destination(agent);
        }
        let handle = controller.handle();
        let (hub, mut hubs) = watch::channel(network.hub.clone());
        let controller = tokio::spawn(async move {
            loop {
                let hub = hubs.borrow_and_update().clone();
                let (connection, mut responses) = hub.connect(id, authorization.clone());
                let (sender, mut requests) = mpsc::channel(32);
                tokio::select! {
                    _ = hubs.changed() => {}
                    _ = controller.run(&sender, &mut responses) => {}
                    () = async { while let Some(request) = requests.recv().await { connection.request(request); } } => {}
                }
                drop(connection);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { node, id, handle, controller, relay: relay.clone(), hub }
    }

    /// Does not reach an agent any more, and reaches it again.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Its server is gone, and it connects to another one.
    pub(crate) fn moves_to(&self, other: &Network) {
        *self.relay.relay.lock().unwrap() = other.relay();
        self.relay.cut_relay();
        self.hub.send_replace(other.hub.clone());
    }

    /// The process ends without a word.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// A clock that only moves when nothing else can.
pub(crate) fn paused(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        tokio::time::timeout(Duration::from_secs(24 * 3600), test).await.expect("the test ends");
    });
}

/// Bytes that differ everywhere.
pub(crate) fn content(size: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..size).map(|_| next()).collect()
}
