//! A peer with keys that count, and without manners: garbage in the place of datagrams, and garbage inside its own tunnel.

use std::net::Ipv6Addr;

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use coder_tailnet::derp::client;
use coder_tailnet::derp::frame::{Decoder, Error as FrameError, Frame};
use coder_tailnet::key::{DiscoPrivate, NodePrivate, NodePublic};
use coder_tailnet::node::Dialer as _;
use coder_tailnet::peer::PeerConfig;
use coder_tailnet::{address, disco, tsmp};
use coder_wire::bytes::BoxedStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::node::{AGENT, connection, exchange, pair};
use super::rig::{Network, Peer, paused};

const SECRET: [u8; 32] = [7; 32];
const ID: Uuid = Uuid::from_u128(7);
/// Longer than the longest datagram that is read.
const LONG: usize = 2100;
const ROUNDS: usize = 3000;
const TCP: u8 = 6;
const UDP: u8 = 17;

struct Attacker {
    relay: BoxedStream,
    decoder: Decoder,
    tunnel: Tunn,
    target: NodePublic,
    state: u64,
}

impl Attacker {
    async fn start(network: &Network, agent: &Peer) -> Self {
        let private = NodePrivate::from_bytes(SECRET);
        agent.node.set_peer(PeerConfig {
            id: ID,
            key: private.public(),
            disco: DiscoPrivate::from_bytes(SECRET).public(),
            region: 999,
            addresses: vec![address::of(ID)],
        });
        let mut relay = network.dial(999).await.unwrap();
        client::connect(&mut relay, &private).await.unwrap();
        let target = NodePublic::from_binary(&agent.node.message().key).unwrap();
        let tunnel =
            Tunn::new(StaticSecret::from(SECRET), PublicKey::from(*target.as_bytes()), None, None, 1, None);
        Self { relay, decoder: Decoder::default(), tunnel, target, state: 0x9e37_79b9_7f4a_7c15 }
    }

    /// The same in every run.
    fn dice(&mut self, sides: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 33).unwrap() % sides
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.dice(256)).unwrap()).collect()
    }

    async fn send(&mut self, packet: &[u8]) {
        let mut out = Vec::new();
        Frame::SendPacket { to: self.target, packet }.encode(&mut out);
        self.relay.write_all(&out).await.unwrap();
    }

    /// Encrypts an IP packet.
    async fn send_inside(&mut self, packet: &[u8]) {
        let mut space = vec![0; packet.len() + 200];
        let TunnResult::WriteToNetwork(datagram) = self.tunnel.encapsulate(packet, &mut space) else {
            panic!("nothing to send")
        };
        let datagram = datagram.to_vec();
        self.send(&datagram).await;
    }

    /// Reads datagrams until `is_it` accepts what one means to the tunnel. Answers of the tunnel are sent.
    async fn receive(&mut self, is_it: impl Fn(&TunnResult<'_>) -> bool) {
        loop {
            let mut piece = [0; 4096];
            let count = self.relay.read(&mut piece).await.unwrap();
            assert!(count > 0, "the relay ended the connection");
            let mut datagrams = Vec::new();
            let decoded = self.decoder.decode::<FrameError>(&piece[..count], |frame| {
                if let Frame::RecvPacket { packet, .. } = frame {
                    datagrams.push(packet.to_vec());
                }
                Ok(())
            });
            decoded.unwrap();
            for datagram in datagrams {
                let mut space = vec![0; datagram.len() + 200];
                let result = self.tunnel.decapsulate(None, &datagram, &mut space);
                let is_over = is_it(&result);
                if let TunnResult::WriteToNetwork(answer) = result {
                    let answer = answer.to_vec();
                    self.send(&answer).await;
                }
                if is_over {
                    return;
                }
            }
        }
    }

    /// The first packet inside begins the handshake.
    async fn shake_hands(&mut self) {
        self.send_inside(&[0x60]).await;
        self.receive(|result| matches!(result, TunnResult::WriteToNetwork(_))).await;
    }

    /// The agent's tunnel with this peer works.
    async fn is_answered(&mut self) {
        let ping = tsmp::Message::Ping([9; 8]).encode();
        self.send_inside(&ip(address::of(ID), address::of(AGENT), tsmp::PROTOCOL, &ping)).await;
        let pong = tsmp::Message::Pong([9; 8]).encode();
        self.receive(
            |result| matches!(result, TunnResult::WriteToTunnelV6(packet, _) if packet.ends_with(&pong)),
        )
        .await;
    }
}

fn ip(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [0x60, 0, 0, 0, high, low, protocol, 64];
    [&head[..], &source.octets(), &destination.octets(), payload].concat()
}

#[test]
fn garbage_in_the_place_of_datagrams_is_dropped() {
    paused(async {
        let network = Network::new();
        let (agent, user) = pair(&network).await;
        let mut attacker = Attacker::start(&network, &agent).await;
        let (near, far) = connection(&agent, &user, 22).await;
        let attack = async {
            for round in 0..ROUNDS {
                let length = attacker.dice(LONG);
                let mut datagram = attacker.bytes(length);
                match round % 3 {
                    // Each kind of WireGuard's messages, also of the right length.
                    0 => {
                        let kind = attacker.dice(6);
                        datagram.resize([148, 92, 64, 32, 0, length][kind], 0);
                        datagram.splice(..datagram.len().min(4), [u8::try_from(kind).unwrap() + 1, 0, 0, 0]);
                    }
                    1 => drop(datagram.splice(..datagram.len().min(disco::MAGIC.len()), disco::MAGIC)),
                    _ => {}
                }
                attacker.send(&datagram).await;
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(attack, exchange(near, far, 1 << 20));
        attacker.shake_hands().await;
        attacker.is_answered().await;
    });
}

#[test]
fn garbage_inside_a_tunnel_is_dropped() {
    paused(async {
        let network = Network::new();
        let (agent, user) = pair(&network).await;
        let mut attacker = Attacker::start(&network, &agent).await;
        let (own, to) = (address::of(ID), address::of(AGENT));
        let _listener = agent.node.listen(80).unwrap();
        let (near, far) = connection(&agent, &user, 22).await;
        attacker.shake_hands().await;
        let attack = async {
            for _ in 0..ROUNDS {
                let protocol = [TCP, UDP, tsmp::PROTOCOL, 58, 0][attacker.dice(5)];
                let length = attacker.dice(80);
                let mut payload = attacker.bytes(length);
                if attacker.dice(2) == 0 {
                    // To a port that somebody listens to, and with flags in the usual places.
                    payload.resize(payload.len().max(20), 0);
                    payload[2..4].copy_from_slice(&80_u16.to_be_bytes());
                    payload[12] = 0x50;
                }
                let mut packet = ip(own, to, protocol, &payload);
                for _ in 0..attacker.dice(3) {
                    let at = attacker.dice(packet.len());
                    packet[at] ^= 1 << attacker.dice(8);
                }
                let end = packet.len() - attacker.dice(packet.len()).min(attacker.dice(40));
                attacker.send_inside(&packet[..end]).await;
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(attack, exchange(near, far, 1 << 20));
        attacker.is_answered().await;
    });
}
