//! Every port without a server of our own: connections and datagrams go to the same port on loopback (agent 3.8).

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use coder_tailnet::node::{Incoming, Listener, UdpSocket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Bytes that are copied at once.
const BUFFER_BYTES: usize = 64 << 10;
/// UDP flows at once; further ones are dropped.
const MAX_FLOWS: usize = 1024;
/// Silence that ends a UDP flow.
const UDP_IDLE: Duration = Duration::from_secs(120);
/// Datagrams that wait in each direction of a flow.
const QUEUED_DATAGRAMS: usize = 64;
/// Longest datagram of a local service; longer ones do not fit into the tunnel.
const MAX_DATAGRAM_BYTES: usize = 2048;

/// Connects to a port on loopback, IPv4 first.
pub(crate) async fn connect_local(port: u16) -> io::Result<TcpStream> {
    let stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => stream,
        Err(_) => TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await?,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Copies in both directions until both have ended.
pub(crate) async fn copy(
    mut one: impl AsyncRead + AsyncWrite + Unpin,
    mut other: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER_BYTES, BUFFER_BYTES).await.map(drop)
}

/// Forwards connections until the node is closed.
pub(crate) async fn tcp(mut listener: Listener) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            incoming = listener.incoming() => match incoming {
                Some(incoming) => drop(tasks.spawn(forward(incoming))),
                None => return,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn forward(incoming: Incoming) {
    let port = incoming.local_addr().port();
    // Dropping it refuses the connection: the user sees what a local client would see.
    let Ok(mut local) = connect_local(port).await else { return };
    let mut stream = incoming.accept();
    let copied =
        tokio::io::copy_bidirectional_with_sizes(&mut stream, &mut local, BUFFER_BYTES, BUFFER_BYTES).await;
    if let Err(error) = copied {
        tracing::debug!(port, %error, "a forwarded connection broke");
        // An orderly end would say that all bytes have arrived.
        stream.abort();
    }
}

type Flow = (SocketAddrV6, SocketAddrV6);

/// Forwards datagrams until the node is closed.
pub(crate) async fn udp(mut socket: UdpSocket) {
    let mut flows: HashMap<Flow, mpsc::Sender<bytes::Bytes>> = HashMap::new();
    let (answers, mut answered) = mpsc::channel::<(Flow, Vec<u8>)>(QUEUED_DATAGRAMS);
    let mut tasks: JoinSet<Flow> = JoinSet::new();
    loop {
        tokio::select! {
            datagram = socket.recv() => {
                let Some(datagram) = datagram else { return };
                let flow = (datagram.source, datagram.destination);
                if !flows.contains_key(&flow) {
                    if flows.len() >= MAX_FLOWS {
                        continue;
                    }
                    let (sender, receiver) = mpsc::channel(QUEUED_DATAGRAMS);
                    flows.insert(flow, sender);
                    let answers = answers.clone();
                    tasks.spawn(async move {
                        if let Err(error) = forward_datagrams(flow, receiver, answers).await {
                            tracing::debug!(port = flow.1.port(), %error, "datagrams cannot be forwarded");
                        }
                        flow
                    });
                }
                if let Some(sender) = flows.get(&flow) {
                    // Datagrams may be lost.
                    drop(sender.try_send(datagram.text));
                }
            }
            Some(((source, destination), text)) = answered.recv() => {
                drop(socket.send(destination, source, &text));
            }
            Some(ended) = tasks.join_next() => {
                if let Ok(flow) = ended {
                    flows.remove(&flow);
                }
            }
        }
    }
}

async fn forward_datagrams(
    flow: Flow,
    mut incoming: mpsc::Receiver<bytes::Bytes>,
    answers: mpsc::Sender<(Flow, Vec<u8>)>,
) -> io::Result<()> {
    let local = Arc::new(tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
    local.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, flow.1.port()))).await?;
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let next = async {
            tokio::select! {
                text = incoming.recv() => text.map(Some),
                received = local.recv(&mut buffer) => {
                    // Nothing listens; the next datagram may find somebody.
                    let Ok(count) = received else { return Some(None) };
                    drop(answers.try_send((flow, buffer[..count].to_vec())));
                    Some(None)
                }
            }
        };
        match tokio::time::timeout(UDP_IDLE, next).await {
            Ok(Some(Some(text))) => drop(local.send(&text).await),
            Ok(Some(None)) => {}
            Ok(None) | Err(_) => return Ok(()),
        }
    }
}
