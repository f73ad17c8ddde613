//! Nodes that reach each other through a relay and a coordinator, without faults.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coder_tailnet::address;
use coder_tailnet::key::{DiscoPrivate, NodePrivate};
use coder_tailnet::node::{Config, Error, Node, PingKind, TcpStream, UDP_TEXT};
use coder_tailnet::peer::PeerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::rig::{Network, Peer, content, paused};

pub(crate) const AGENT: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);
const LONG: Duration = Duration::from_secs(60);

fn agent_port(port: u16) -> SocketAddrV6 {
    SocketAddrV6::new(address::of(AGENT), port, 0, 0)
}

/// An agent and a client that reach each other.
pub(crate) async fn pair(network: &Network) -> (Peer, Peer) {
    let agent = network.agent(AGENT);
    let client = network.client_of(AGENT);
    client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
    (agent, client)
}

/// A connection from the client to a port of the agent, both ends.
pub(crate) async fn connection(agent: &Peer, client: &Peer, port: u16) -> (TcpStream, TcpStream) {
    let mut listener = agent.node.listen(port).unwrap();
    let accept = async { listener.accept().await.unwrap() };
    let (near, far) = tokio::join!(client.node.connect(agent_port(port)), accept);
    (near.unwrap(), far)
}

/// Sends `size` bytes each way at once, and checks that they arrive, ends included.
pub(crate) async fn exchange(near: TcpStream, far: TcpStream, size: usize) {
    let data = content(size);
    let talk = async |stream: TcpStream| {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut got = Vec::new();
        let send = async {
            writer.write_all(&data).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let ((), read) = tokio::join!(send, reader.read_to_end(&mut got));
        assert!(read.is_ok(), "{read:?} after {} bytes at {:?}", got.len(), tokio::time::Instant::now());
        assert!(got == data, "what arrived differs");
    };
    tokio::join!(talk(near), talk(far));
}

#[test]
fn tcp_carries_bytes_both_ways() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let (near, far) = connection(&agent, &client, 22).await;
        assert_eq!((near.peer_addr(), far.local_addr()), (agent_port(22), agent_port(22)));
        assert_eq!(near.local_addr(), far.peer_addr());
        exchange(near, far, 3 << 20).await;
    });
}

#[test]
fn server_dials_an_agent_by_its_second_address() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let mut listener = agent.node.listen(1).unwrap();
        let to = SocketAddrV6::new(address::of_agent(AGENT)[1], 1, 0, 0);
        let (near, far) = tokio::join!(client.node.connect(to), listener.accept());
        exchange(near.unwrap(), far.unwrap(), 1000).await;
    });
}

#[test]
fn agent_reaches_its_client() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let (near, _far) = connection(&agent, &client, 22).await;
        let mut listener = client.node.listen(80).unwrap();
        let to = SocketAddrV6::new(*near.local_addr().ip(), 80, 0, 0);
        let (back, taken) = tokio::join!(agent.node.connect(to), listener.accept());
        exchange(back.unwrap(), taken.unwrap(), 1000).await;
    });
}

#[test]
fn half_close_works_both_ways() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        for client_first in [true, false] {
            let (near, far) = connection(&agent, &client, 22).await;
            let (mut first, mut second) = if client_first { (near, far) } else { (far, near) };
            first.write_all(b"request").await.unwrap();
            first.shutdown().await.unwrap();
            let mut got = Vec::new();
            second.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"request");
            // The other direction is open for as long as anybody likes.
            tokio::time::sleep(Duration::from_secs(600)).await;
            let answer = content(300_000);
            let answered = async {
                second.write_all(&answer).await.unwrap();
                second.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let ((), read) = tokio::join!(answered, first.read_to_end(&mut got));
            read.unwrap();
            assert!(got == answer);
            assert_eq!(first.write(b"x").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        }
    });
}

#[test]
fn port_without_listener_refuses() {
    paused(async {
        let (_agent, client) = pair(&Network::new()).await;
        let refused = client.node.connect(agent_port(80)).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Connect(error) if error.kind() == std::io::ErrorKind::ConnectionRefused)
        );
        let nobody = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0, 0);
        assert!(matches!(client.node.connect(nobody).await, Err(Error::NoPeer(_))));
    });
}

#[test]
fn connection_is_answered_only_when_it_is_accepted() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let mut any = agent.node.listen_any().unwrap();
        let connect = async |port| client.node.connect(agent_port(port)).await;
        let decide = async {
            let refused = any.incoming().await.unwrap();
            assert_eq!(refused.local_addr(), agent_port(8080));
            // As long as it takes to see that nothing listens behind it.
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(refused);
        };
        let (result, ()) = tokio::join!(connect(8080), decide);
        assert!(matches!(result, Err(Error::Connect(_))), "{result:?}");
        let accept = async {
            let incoming = any.incoming().await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            incoming.accept()
        };
        let started = tokio::time::Instant::now();
        let (near, far) = tokio::join!(connect(8081), accept);
        assert!(started.elapsed() >= Duration::from_secs(5));
        exchange(near.unwrap(), far, 1000).await;
        assert!(matches!(agent.node.listen_any(), Err(Error::PortInUse(0))));
    });
}

#[test]
fn repeated_request_for_a_connection_is_one_connection() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let mut listener = agent.node.listen(80).unwrap();
        let connecting = client.node.connect(agent_port(80));
        let slow = async {
            let incoming = listener.incoming().await.unwrap();
            // The client asks again each second, then ever less often.
            tokio::time::sleep(Duration::from_secs(20)).await;
            let stream = incoming.accept();
            let second = tokio::time::timeout(LONG, listener.incoming()).await;
            assert!(second.is_err(), "one request is one connection: {second:?}");
            stream
        };
        let (near, far) = tokio::join!(connecting, slow);
        exchange(near.unwrap(), far, 1000).await;
    });
}

#[test]
fn dropped_stream_resets_when_something_was_not_read() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let (mut near, mut far) = connection(&agent, &client, 80).await;
        near.write_all(b"unread").await.unwrap();
        let mut first = [0];
        far.read_exact(&mut first).await.unwrap();
        drop(far);
        let error = near.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let (mut near, far) = connection(&agent, &client, 81).await;
        drop(far);
        assert_eq!(near.read(&mut [0; 10]).await.unwrap(), 0, "all was read: a normal end");
    });
}

#[test]
fn finished_connections_leave_nothing() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        for _ in 0..20 {
            let (near, far) = connection(&agent, &client, 80).await;
            exchange(near, far, 10_000).await;
        }
        let (near, far) = connection(&agent, &client, 80).await;
        drop(near);
        drop(far);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(agent.node.activity(client.id).connections, 0);
        assert_eq!(client.node.activity(AGENT).connections, 0);
    });
}

#[test]
fn many_connections_at_once() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let mut listener = agent.node.listen(80).unwrap();
        let echo = tokio::spawn(async move {
            while let Some(stream) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                    writer.shutdown().await.unwrap();
                });
            }
        });
        let mut talks = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let node = client.node.clone();
            talks.spawn(async move {
                let mut stream = node.connect(agent_port(80)).await.unwrap();
                let data = content(5000);
                stream.write_all(&data).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await.unwrap();
                assert!(got == data);
            });
        }
        while let Some(talk) = talks.join_next().await {
            talk.unwrap();
        }
        echo.abort();
    });
}

#[test]
fn udp_reaches_ports_and_the_rest() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let mut dns = agent.node.bind_udp(53).unwrap();
        let mut rest = agent.node.bind_udp_any().unwrap();
        let mut near = client.node.bind_udp(5000).unwrap();
        let source = SocketAddrV6::new(client.node.source_for(*agent_port(53).ip()).unwrap(), 5000, 0, 0);
        near.send(source, agent_port(53), b"query").unwrap();
        near.send(source, agent_port(54), b"other").unwrap();
        let query = dns.recv().await.unwrap();
        assert_eq!(
            (query.source, query.destination, &query.text[..]),
            (source, agent_port(53), &b"query"[..])
        );
        let other = rest.recv().await.unwrap();
        assert_eq!((other.destination, &other.text[..]), (agent_port(54), &b"other"[..]));
        rest.send(other.destination, other.source, &content(UDP_TEXT)).unwrap();
        assert_eq!(near.recv().await.unwrap().text.len(), UDP_TEXT);
        assert!(near.send(source, agent_port(53), &content(UDP_TEXT + 1)).is_err());
        assert!(near.send(agent_port(5000), agent_port(53), b"x").is_err(), "a foreign source");
        assert!(matches!(agent.node.bind_udp(53), Err(Error::PortInUse(53))));
        drop(dns);
        assert!(agent.node.bind_udp(53).is_ok());
    });
}

#[test]
fn pings_are_answered() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        for kind in [PingKind::Tsmp, PingKind::Disco] {
            client.node.ping(address::of(AGENT), kind, LONG).await.unwrap();
            let back = client.node.source_for(address::of(AGENT)).unwrap();
            agent.node.ping(back, kind, LONG).await.unwrap();
        }
        agent.node.remove_peer(client.id);
        for kind in [PingKind::Tsmp, PingKind::Disco] {
            let result = client.node.ping(address::of(AGENT), kind, Duration::from_secs(3)).await;
            assert!(matches!(result, Err(Error::Timeout(_))), "{result:?}");
        }
    });
}

#[test]
fn packets_with_a_foreign_source_are_dropped() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let mut rest = agent.node.bind_udp_any().unwrap();
        let near = client.node.bind_udp(5000).unwrap();
        let own = SocketAddrV6::new(client.node.source_for(address::of(AGENT)).unwrap(), 5000, 0, 0);
        near.send(own, agent_port(9), b"before").unwrap();
        assert_eq!(rest.recv().await.unwrap().text, "before");
        // The agent knows the client by another address: what comes from this one is somebody else's.
        let message = client.node.message();
        let mut config = PeerConfig::from_message(client.id, &message).unwrap();
        config.addresses = vec![address::of(Uuid::from_u128(77))];
        agent.node.set_peer(config.clone());
        near.send(own, agent_port(9), b"spoofed").unwrap();
        tokio::time::sleep(LONG).await;
        config.addresses = vec![*own.ip()];
        agent.node.set_peer(config);
        near.send(own, agent_port(9), b"after").unwrap();
        assert_eq!(rest.recv().await.unwrap().text, "after");
    });
}

#[test]
fn second_peer_does_not_take_over_an_address() {
    paused(async {
        let (_agent, client) = pair(&Network::new()).await;
        let thief = PeerConfig {
            id: Uuid::from_u128(5),
            key: NodePrivate::generate().public(),
            disco: DiscoPrivate::generate().public(),
            region: 999,
            addresses: vec![address::of(AGENT)],
        };
        client.node.set_peer(thief);
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
    });
}

#[test]
fn other_key_ends_the_connections_of_a_peer() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let (mut near, _far) = connection(&agent, &client, 80).await;
        let mut message = agent.node.message();
        message.key = NodePrivate::generate().public().to_binary();
        client.node.set_peer(PeerConfig::from_message(AGENT, &message).unwrap());
        let error = near.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn port_is_reached_once_the_peer_is_known_by_its_newest_key() {
    paused(async {
        let network = Network::new();
        let client = network.client_of(AGENT);
        let node = client.node.clone();
        let reaching = tokio::spawn(async move { node.reach(agent_port(22)).await });
        tokio::task::yield_now().await;
        // The process that the agent was before.
        let killed = Node::start(Config::agent(AGENT, 999, Arc::new(network.clone()))).message();
        client.node.set_peer(PeerConfig::from_message(AGENT, &killed).unwrap());
        tokio::time::sleep(LONG).await;
        assert!(!reaching.is_finished());
        let agent = network.agent(AGENT);
        let mut listener = agent.node.listen(22).unwrap();
        let far = listener.accept().await.unwrap();
        let near = reaching.await.unwrap().unwrap();
        exchange(near, far, 1000).await;
    });
}

/// A client speaks first, so that the coordinator may know it before its relay does.
#[test]
fn client_is_announced_while_it_connects_to_its_relay() {
    paused(async {
        let network = Network::new();
        let agent = network.agent(AGENT);
        let mut listener = agent.node.listen(22).unwrap();
        agent.node.home_relay().wait_for(|is_up| *is_up).await.unwrap();
        network.faults.refuses.store(true, Ordering::Relaxed);
        let client = network.client_of(AGENT);
        while agent.node.peers() == 0 || client.node.peers() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        network.faults.refuses.store(false, Ordering::Relaxed);
        let (near, far) = tokio::join!(client.node.connect(agent_port(22)), listener.accept());
        exchange(near.unwrap(), far.unwrap(), 1000).await;
    });
}

#[test]
fn destination_can_be_removed_and_added_again() {
    paused(async {
        let (_agent, client) = pair(&Network::new()).await;
        client.handle().remove_destination(AGENT).await;
        while client.node.peers() > 0 {
            tokio::task::yield_now().await;
        }
        client.handle().add_destination(AGENT).await;
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
    });
}

#[test]
fn closed_node_ends_everything() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (mut near, far) = connection(&agent, &client, 80).await;
        let mut listener = client.node.listen(7).unwrap();
        let mut socket = client.node.bind_udp(7).unwrap();
        client.kill();
        while network.hub.peers() > 1 {
            tokio::task::yield_now().await;
        }
        assert!(near.read(&mut [0; 10]).await.is_err());
        assert!(listener.accept().await.is_none());
        assert!(socket.recv().await.is_none());
        drop(far);
    });
}

#[test]
fn transfer_to_one_peer_does_not_hold_up_another() {
    paused(async {
        let network = Network::new();
        let (agent, first) = pair(&network).await;
        let second = network.client_of(AGENT);
        second.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
        let (mut sink, mut source) = connection(&agent, &first, 80).await;
        let (mut near, mut far) = connection(&agent, &second, 81).await;
        network.faults.speed.store(1 << 20, Ordering::Relaxed);
        let transfer = tokio::spawn(async move {
            let data = content(1 << 20);
            while source.write_all(&data).await.is_ok() {}
        });
        let reading = tokio::spawn(async move { tokio::io::copy(&mut sink, &mut tokio::io::sink()).await });
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let sent = tokio::time::Instant::now();
            far.write_all(b"x").await.unwrap();
            near.read_exact(&mut [0]).await.unwrap();
            longest = longest.max(sent.elapsed());
        }
        // What is in the outbox and on the wire takes a second. Without turns it would wait until the transfer rests.
        assert!(longest < Duration::from_secs(5), "{longest:?}");
        transfer.abort();
        reading.abort();
    });
}

#[test]
fn slow_reader_holds_the_writer_back() {
    paused(async {
        let (agent, client) = pair(&Network::new()).await;
        let (mut near, mut far) = connection(&agent, &client, 80).await;
        let data = content(8 << 20);
        let writing = tokio::spawn(async move {
            near.write_all(&data).await.unwrap();
            near.shutdown().await.unwrap();
        });
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(!writing.is_finished(), "two buffers of one MiB are in between");
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert!(got == content(8 << 20));
        writing.await.unwrap();
    });
}
