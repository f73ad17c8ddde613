//! A TCP proxy on loopback that disconnects its connections on demand, at once or after a number of bytes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Bytes forwarded at once: few, so that a disconnect may happen in the middle of any message.
const CHUNK_SIZE: usize = 4096;

/// How both sides learn that their connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// By the normal end of the stream (FIN).
    Close,
    /// By a reset; bytes in flight are lost.
    Reset,
}

/// Remaining bytes without a limit.
const UNLIMITED: i64 = i64::MAX;

/// One connection through the proxy.
struct ProxiedConnection {
    /// Bytes that are still forwarded, in both directions together.
    remaining: AtomicI64,
    disconnect: Mutex<Disconnect>,
    closed: CancellationToken,
}

impl ProxiedConnection {
    fn new() -> Self {
        Self {
            remaining: AtomicI64::new(UNLIMITED),
            disconnect: Mutex::new(Disconnect::Close),
            closed: CancellationToken::new(),
        }
    }

    fn disconnect(&self, how: Disconnect, after: usize) {
        *self.disconnect.lock().unwrap_or_else(PoisonError::into_inner) = how;
        self.remaining.store(i64::try_from(after).unwrap_or(UNLIMITED), Ordering::SeqCst);
        if after == 0 {
            self.closed.cancel();
        }
    }

    /// How many of `bytes` are forwarded.
    fn forward(&self, bytes: usize) -> usize {
        let requested = i64::try_from(bytes).unwrap_or(UNLIMITED);
        let mut passed = 0;
        // The closure always has an answer.
        let _ = self.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| {
            passed = requested.min(remaining);
            Some(if remaining == UNLIMITED { remaining } else { remaining - passed })
        });
        usize::try_from(passed).unwrap_or_default()
    }
}

struct Shared {
    target: Mutex<SocketAddr>,
    connections: Mutex<Vec<Arc<ProxiedConnection>>>,
    /// The number of open connections.
    open: watch::Sender<usize>,
    disconnects: AtomicUsize,
}

/// A proxy. Dropping it ends its connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy for `target` on a free port.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            connections: Mutex::default(),
            open: watch::Sender::new(0),
            disconnects: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Connects further clients to another server.
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Waits for a connection through the proxy. False when there is none within `limit`.
    pub async fn connected(&self, limit: Duration) -> bool {
        let mut open = self.shared.open.subscribe();
        let connected = open.wait_for(|open| *open > 0);
        matches!(tokio::time::timeout(limit, connected).await, Ok(Ok(_)))
    }

    /// Disconnects the open connections, each after `after` further bytes.
    pub fn disconnect(&self, how: Disconnect, after: usize) {
        for connection in self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            connection.disconnect(how, after);
        }
    }

    /// How many connections the proxy disconnected; those that one of their sides closed do not count.
    #[must_use]
    pub fn disconnects(&self) -> usize {
        self.shared.disconnects.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.disconnect(Disconnect::Close, 0);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, Arc::clone(&shared)));
    }
}

async fn relay(client: TcpStream, shared: Arc<Shared>) {
    // Without a server the client sees a connection that ends at once.
    let target = *shared.target.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(server) = TcpStream::connect(target).await else { return };
    // Small messages are sent at once, as without a proxy; a failure shows with the next use of the socket.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let connection = Arc::new(ProxiedConnection::new());
    shared.connections.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&connection));
    shared.open.send_modify(|open| *open += 1);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = tokio::spawn(copy(from_client, to_server, Arc::clone(&connection)));
    let down = copy(from_server, to_client, Arc::clone(&connection)).await;
    let up = up.await;
    shared
        .connections
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|other| !Arc::ptr_eq(other, &connection));
    if connection.remaining.load(Ordering::SeqCst) != UNLIMITED {
        shared.disconnects.fetch_add(1, Ordering::SeqCst);
    }
    if *connection.disconnect.lock().unwrap_or_else(PoisonError::into_inner) == Disconnect::Reset
        && let Ok(up) = &up
    {
        for (from, _) in [&down, up] {
            // A close without lingering resets the connection. A socket that is closed already needs neither.
            let _ = from.as_ref().set_zero_linger();
        }
    }
    for (from, to) in [Some(down), up.ok()].into_iter().flatten() {
        // Dropping it would send a FIN, also where a reset was requested.
        to.forget();
        drop(from);
    }
    shared.open.send_modify(|open| *open -= 1);
}

/// Copies bytes in one direction until the connection ends. Returns the halves, so that both directions end together.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: Arc<ProxiedConnection>,
) -> (OwnedReadHalf, OwnedWriteHalf) {
    let mut chunk = vec![0; CHUNK_SIZE];
    loop {
        let read = tokio::select! {
            biased;
            () = connection.closed.cancelled() => break,
            read = from.read(&mut chunk) => read.unwrap_or_default(),
        };
        let passed = connection.forward(read);
        let written = tokio::select! {
            biased;
            () = connection.closed.cancelled() => break,
            written = to.write_all(&chunk[..passed]) => written,
        };
        if read == 0 || passed < read || written.is_err() {
            connection.closed.cancel();
            break;
        }
    }
    (from, to)
}
