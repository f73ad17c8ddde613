//! The relay and hostile or careless clients, without nodes.

use std::time::Duration;

use coder_tailnet::derp::frame::{Decoder, Error as FrameError, Frame, GoneReason, kind};
use coder_tailnet::derp::handshake::{self, ClientInfo};
use coder_tailnet::derp::relay::{Config, Error};
use coder_tailnet::derp::{PACKET, Relay, client};
use coder_tailnet::disco;
use coder_tailnet::key::{NodePrivate, NodePublic};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

use super::rig::paused;

/// A client that a test drives frame by frame.
pub(crate) struct Client {
    io: DuplexStream,
    pub(crate) key: NodePublic,
    decoder: Decoder,
    frames: std::collections::VecDeque<Owned>,
    served: JoinHandle<Result<(), Error>>,
}

/// A frame that a client received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owned {
    Packet(NodePublic, Vec<u8>),
    Gone(NodePublic, GoneReason),
    Ping([u8; 8]),
    Pong([u8; 8]),
    KeepAlive,
    Restarting(Duration),
}

fn relay(config: Config) -> Relay {
    Relay::new(NodePrivate::generate(), config)
}

fn open(relay: &Relay, buffer: usize) -> (DuplexStream, JoinHandle<Result<(), Error>>) {
    let (near, far) = tokio::io::duplex(buffer);
    let relay = relay.clone();
    (near, tokio::spawn(async move { relay.serve(far).await }))
}

impl Client {
    pub(crate) async fn new(relay: &Relay) -> Self {
        Self::with(relay, &NodePrivate::generate(), 1 << 20).await
    }

    pub(crate) async fn with(relay: &Relay, private: &NodePrivate, buffer: usize) -> Self {
        let (mut io, served) = open(relay, buffer);
        assert_eq!(client::connect(&mut io, private).await.unwrap(), relay.public_key());
        // The relay lists a client in the same step in which it has answered.
        assert!(relay.is_connected(&private.public()));
        Self { io, key: private.public(), decoder: Decoder::default(), frames: Default::default(), served }
    }

    async fn send(&mut self, frame: Frame<'_>) {
        let mut out = Vec::new();
        frame.encode(&mut out);
        self.io.write_all(&out).await.unwrap();
    }

    pub(crate) async fn packet(&mut self, to: NodePublic, packet: &[u8]) {
        self.send(Frame::SendPacket { to, packet }).await;
    }

    /// The next frame; none when the relay closed the connection.
    pub(crate) async fn recv(&mut self) -> Option<Owned> {
        let mut bytes = vec![0; 64 << 10];
        while self.frames.is_empty() {
            let count = self.io.read(&mut bytes).await.unwrap();
            if count == 0 {
                return None;
            }
            let frames = &mut self.frames;
            let add = |frame: Frame<'_>| {
                frames.push_back(match frame {
                    Frame::RecvPacket { from, packet } => Owned::Packet(from, packet.to_vec()),
                    Frame::PeerGone { peer, reason } => Owned::Gone(peer, reason),
                    Frame::Ping(data) => Owned::Ping(data),
                    Frame::Pong(data) => Owned::Pong(data),
                    Frame::KeepAlive => Owned::KeepAlive,
                    Frame::Restarting { reconnect_in, .. } => Owned::Restarting(reconnect_in),
                    other => panic!("{other:?}"),
                });
                Ok(())
            };
            self.decoder.decode::<FrameError>(&bytes[..count], add).unwrap();
        }
        self.frames.pop_front()
    }
}

#[test]
fn packets_reach_the_destination_and_name_the_sender() {
    paused(async {
        let relay = relay(Config::default());
        let (mut ann, mut bob) = (Client::new(&relay).await, Client::new(&relay).await);
        let longest = vec![7; PACKET];
        for packet in [&b"hello"[..], b"", &longest] {
            ann.packet(bob.key, packet).await;
            assert_eq!(bob.recv().await, Some(Owned::Packet(ann.key, packet.to_vec())));
        }
        let counts = relay.counts();
        assert_eq!((counts.clients, counts.packets, counts.bytes), (2, 3, 5 + PACKET as u64));
    });
}

#[test]
fn packet_over_the_limit_ends_the_connection() {
    paused(async {
        let relay = relay(Config::default());
        let mut ann = Client::new(&relay).await;
        ann.io.write_all(&[kind::SEND_PACKET, 0, 1, 0, 65]).await.unwrap();
        let error = ann.served.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Frame(FrameError::TooLong { .. })), "{error}");
        assert_eq!(relay.counts().connections, 0);
    });
}

#[test]
fn frames_of_a_relay_are_refused_and_unknown_ones_are_skipped() {
    paused(async {
        let relay = relay(Config::default());
        let mut ann = Client::new(&relay).await;
        ann.io.write_all(&[0x77, 0, 0, 0, 3, 1, 2, 3]).await.unwrap();
        ann.send(Frame::Ping(*b"12345678")).await;
        assert_eq!(ann.recv().await, Some(Owned::Pong(*b"12345678")));
        let from = ann.key;
        ann.send(Frame::RecvPacket { from, packet: b"" }).await;
        assert!(matches!(ann.served.await.unwrap(), Err(Error::Unexpected)));
    });
}

#[test]
fn unknown_destination_is_reported_at_a_limited_rate() {
    paused(async {
        let relay = relay(Config::default());
        let mut ann = Client::new(&relay).await;
        for number in 1..100 {
            ann.packet(NodePublic::from_bytes([number; 32]), b"x").await;
        }
        ann.send(Frame::Ping([0; 8])).await;
        let mut notified = 0;
        while let Some(Owned::Gone(_, reason)) = ann.recv().await {
            assert_eq!(reason, GoneReason::NotHere);
            notified += 1;
        }
        assert_eq!((notified, relay.counts().unknown), (3, 99));
    });
}

#[test]
fn receivers_are_notified_that_a_client_is_gone() {
    paused(async {
        let relay = relay(Config::default());
        let (mut ann, mut bob) = (Client::new(&relay).await, Client::new(&relay).await);
        let mut eve = Client::new(&relay).await;
        let ann_key = ann.key;
        ann.packet(bob.key, b"x").await;
        bob.recv().await;
        drop(ann);
        assert_eq!(bob.recv().await, Some(Owned::Gone(ann_key, GoneReason::Disconnected)));
        eve.send(Frame::Ping([1; 8])).await;
        assert_eq!(eve.recv().await, Some(Owned::Pong([1; 8])), "others are not notified");
        assert!(!relay.is_connected(&ann_key));
    });
}

#[test]
fn connection_that_sent_last_receives() {
    paused(async {
        let relay = relay(Config::default());
        let private = NodePrivate::generate();
        let mut sender = Client::new(&relay).await;
        let mut first = Client::with(&relay, &private, 1 << 20).await;
        let mut second = Client::with(&relay, &private, 1 << 20).await;
        sender.packet(first.key, b"1").await;
        assert_eq!(
            second.recv().await,
            Some(Owned::Packet(sender.key, b"1".to_vec())),
            "the newest at first"
        );
        first.packet(sender.key, b"x").await;
        sender.recv().await;
        sender.packet(first.key, b"2").await;
        assert_eq!(first.recv().await, Some(Owned::Packet(sender.key, b"2".to_vec())));
        drop(first);
        while relay.counts().connections > 2 {
            tokio::task::yield_now().await;
        }
        sender.packet(second.key, b"3").await;
        assert_eq!(second.recv().await, Some(Owned::Packet(sender.key, b"3".to_vec())));
    });
}

#[test]
fn key_that_connects_too_often_loses_its_oldest_connection() {
    paused(async {
        let relay = relay(Config { connections_per_key: 2, ..Config::default() });
        let private = NodePrivate::generate();
        let oldest = Client::with(&relay, &private, 1 << 20).await;
        let _others =
            (Client::with(&relay, &private, 1 << 20).await, Client::with(&relay, &private, 1 << 20).await);
        assert!(matches!(oldest.served.await.unwrap(), Err(Error::Replaced)));
    });
}

#[test]
fn silent_connections_end_at_each_step_of_the_handshake() {
    paused(async {
        let relay = relay(Config::default());
        // Reads nothing, so that not even the first frame can be written.
        let (_stuck, stuck) = open(&relay, 1);
        let (_silent, silent) = open(&relay, 1 << 10);
        let (mut half, halved) = open(&relay, 1 << 10);
        half.write_all(&[kind::CLIENT_INFO, 0, 0, 0, 200, 1, 2, 3]).await.unwrap();
        let started = tokio::time::Instant::now();
        for served in [stuck, silent, halved] {
            assert!(matches!(served.await.unwrap(), Err(Error::HandshakeTimeout)));
        }
        assert_eq!(started.elapsed().as_secs(), 10);
        assert_eq!(relay.counts().connections, 0);
    });
}

#[test]
fn ten_thousand_silent_connections_are_refused_or_end() {
    paused(async {
        let relay = relay(Config { connections: 9000, ..Config::default() });
        let all: Vec<_> = (0..10_000).map(|_| open(&relay, 64)).collect();
        let (mut refused, mut late) = (0, 0);
        for (_, served) in all {
            match served.await.unwrap() {
                Err(Error::Full) => refused += 1,
                Err(Error::HandshakeTimeout) => late += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((refused, late, relay.counts().connections), (1000, 9000, 0));
    });
}

#[test]
fn idle_client_that_answers_pings_stays_and_one_that_does_not_ends() {
    paused(async {
        let relay = relay(Config::default());
        let (mut good, mut dead) = (Client::new(&relay).await, Client::new(&relay).await);
        for _ in 0..10 {
            assert_eq!(good.recv().await, Some(Owned::KeepAlive));
            let Some(Owned::Ping(data)) = good.recv().await else { panic!("a ping follows") };
            good.send(Frame::Pong(data)).await;
        }
        while dead.recv().await.is_some() {}
        assert!(matches!(dead.served.await.unwrap(), Err(Error::Silent)));
        assert!(relay.is_connected(&good.key));
    });
}

#[test]
fn old_client_without_pings_stays() {
    paused(async {
        let relay = relay(Config::default());
        let private = NodePrivate::generate();
        let (mut io, served) = open(&relay, 1 << 16);
        let mut hello = vec![0; 45];
        io.read_exact(&mut hello).await.unwrap();
        let info = ClientInfo { version: handshake::VERSION, can_ack_pings: false };
        let sealed = handshake::seal(&private, &relay.public_key(), &info);
        let mut out = Vec::new();
        Frame::ClientInfo { key: private.public(), sealed: &sealed }.encode(&mut out);
        io.write_all(&out).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!served.is_finished() && relay.is_connected(&private.public()));
    });
}

#[test]
fn client_that_reads_nothing_ends_and_bounds_what_waits_for_it() {
    paused(async {
        let config = Config { queue_packets: 100, ..Config::default() };
        let relay = relay(config);
        let mut ann = Client::new(&relay).await;
        let stuck = Client::with(&relay, &NodePrivate::generate(), 1 << 10).await;
        for _ in 0..5000 {
            ann.packet(stuck.key, &[4; 1300]).await;
        }
        ann.send(Frame::Ping([0; 8])).await;
        ann.recv().await;
        let counts = relay.counts();
        assert!(counts.dropped >= 5000 - 100 - 60, "{counts:?}");
        assert!(matches!(stuck.served.await.unwrap(), Err(Error::Stalled)));
        ann.send(Frame::Ping([1; 8])).await;
        assert_eq!(ann.recv().await, Some(Owned::Pong([1; 8])), "the sender goes on");
    });
}

#[test]
fn flood_of_one_sender_does_not_starve_another() {
    paused(async {
        let relay = relay(Config { queue_packets: 64, ..Config::default() });
        let (mut flood, mut quiet) = (Client::new(&relay).await, Client::new(&relay).await);
        let mut receiver = Client::with(&relay, &NodePrivate::generate(), 4 << 10).await;
        for _ in 0..1000 {
            flood.packet(receiver.key, &[4; 1300]).await;
        }
        for _ in 0..5 {
            quiet.packet(receiver.key, b"quiet").await;
        }
        for client in [&mut flood, &mut quiet] {
            client.send(Frame::Ping([0; 8])).await;
            client.recv().await;
        }
        let mut heard = 0;
        while heard < 5 {
            match receiver.recv().await {
                Some(Owned::Packet(from, _)) if from == quiet.key => heard += 1,
                Some(_) => {}
                None => panic!("the connection ended"),
            }
        }
    });
}

#[test]
fn disco_passes_a_full_queue() {
    paused(async {
        let relay = relay(Config { queue_packets: 64, ..Config::default() });
        let mut ann = Client::new(&relay).await;
        let mut bob = Client::with(&relay, &NodePrivate::generate(), 4 << 10).await;
        for _ in 0..1000 {
            ann.packet(bob.key, &[4; 1300]).await;
        }
        let ping = [&disco::MAGIC[..], &[1; 64]].concat();
        ann.packet(bob.key, &ping).await;
        ann.send(Frame::Ping([0; 8])).await;
        ann.recv().await;
        let mut before = 0;
        while bob.recv().await != Some(Owned::Packet(ann.key, ping.clone())) {
            before += 1;
        }
        // What was already gathered for the wire.
        assert!(before <= 60, "{before} packets came before it");
    });
}

#[test]
fn clients_that_read_nothing_leave_room_for_those_that_read() {
    paused(async {
        let relay = relay(Config { shared_queue_bytes: 1 << 20, ..Config::default() });
        let mut flood = Client::new(&relay).await;
        let mut stuck = Vec::new();
        for _ in 0..30 {
            stuck.push(Client::with(&relay, &NodePrivate::generate(), 1 << 10).await);
        }
        for client in &stuck {
            for _ in 0..40 {
                flood.packet(client.key, &[4; 10_000]).await;
            }
        }
        flood.send(Frame::Ping([0; 8])).await;
        flood.recv().await;
        let (mut ann, mut bob) = (Client::new(&relay).await, Client::new(&relay).await);
        for mark in 0..20 {
            ann.packet(bob.key, &[mark; 10_000]).await;
            assert_eq!(bob.recv().await, Some(Owned::Packet(ann.key, vec![mark; 10_000])));
        }
    });
}

#[test]
fn bytes_for_all_clients_are_bounded() {
    paused(async {
        let relay = relay(Config { shared_queue_bytes: 1 << 20, ..Config::default() });
        let mut ann = Client::new(&relay).await;
        let mut stuck = Vec::new();
        for _ in 0..10 {
            stuck.push(Client::with(&relay, &NodePrivate::generate(), 1 << 10).await);
        }
        for client in &stuck {
            for _ in 0..40 {
                ann.packet(client.key, &[4; 10_000]).await;
            }
        }
        ann.send(Frame::Ping([0; 8])).await;
        ann.recv().await;
        let dropped = relay.counts().dropped;
        // 4 MB were sent. For the first, all of it waits; for the last, a tenth of one MiB. Each has taken what it writes at once.
        assert!((80..=200).contains(&dropped), "{dropped}");
        drop(stuck);
        while relay.counts().connections > 1 {
            tokio::task::yield_now().await;
        }
        let mut bob = Client::new(&relay).await;
        ann.packet(bob.key, &[4; 10_000]).await;
        assert!(
            matches!(bob.recv().await, Some(Owned::Packet(..))),
            "what the ended ones kept is free again"
        );
    });
}

#[test]
fn stolen_key_is_refused() {
    paused(async {
        let relay = relay(Config::default());
        let (victim, thief) = (NodePrivate::generate(), NodePrivate::generate());
        let (mut io, served) = open(&relay, 1 << 16);
        let info = ClientInfo { version: handshake::VERSION, can_ack_pings: false };
        let sealed = handshake::seal(&thief, &relay.public_key(), &info);
        let mut out = Vec::new();
        Frame::ClientInfo { key: victim.public(), sealed: &sealed }.encode(&mut out);
        io.write_all(&out).await.unwrap();
        let error = served.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Handshake(handshake::Error::Key(key)) if key == victim.public()));
    });
}

#[test]
fn restart_is_announced() {
    paused(async {
        let relay = relay(Config::default());
        let mut ann = Client::new(&relay).await;
        relay.restart(Duration::from_millis(10), Duration::from_secs(30));
        assert_eq!(ann.recv().await, Some(Owned::Restarting(Duration::from_millis(10))));
        assert_eq!(ann.recv().await, None);
        let (mut late, served) = open(&relay, 1 << 16);
        assert!(matches!(served.await.unwrap(), Err(Error::Restarting)));
        let mut rest = Vec::new();
        late.read_to_end(&mut rest).await.unwrap();
    });
}

#[test]
fn relay_that_does_not_have_its_key_is_refused() {
    paused(async {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        let (named, actual) = (NodePrivate::generate(), NodePrivate::generate());
        let private = NodePrivate::generate();
        let fake = async {
            let mut out = Vec::new();
            Frame::ServerKey(named.public()).encode(&mut out);
            let info = handshake::ServerInfo { version: handshake::VERSION };
            let sealed = handshake::seal(&actual, &private.public(), &info);
            Frame::ServerInfo(&sealed).encode(&mut out);
            far.write_all(&out).await.unwrap();
        };
        let (result, ()) = tokio::join!(client::connect(&mut near, &private), fake);
        assert!(matches!(result, Err(client::Error::Handshake(handshake::Error::Key(_)))), "{result:?}");
    });
}
