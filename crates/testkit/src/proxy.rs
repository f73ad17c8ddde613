//! A TCP proxy on loopback that cuts what goes through it, when it is told to and after as many bytes as it is told.

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

/// What passes at a time, so that a cut may fall into the middle of anything.
const PIECE: usize = 4096;

/// How both sides learn that their connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// By the orderly end of the stream.
    End,
    /// By a reset; what was under way is thrown away.
    Reset,
}

/// Bytes that still pass, without limit.
const UNLIMITED: i64 = i64::MAX;

/// One connection through the proxy.
struct Link {
    /// In both directions together.
    left: AtomicI64,
    cut: Mutex<Cut>,
    broken: CancellationToken,
}

impl Link {
    fn new() -> Self {
        Self { left: AtomicI64::new(UNLIMITED), cut: Mutex::new(Cut::End), broken: CancellationToken::new() }
    }

    fn order(&self, cut: Cut, after: usize) {
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = cut;
        self.left.store(i64::try_from(after).unwrap_or(UNLIMITED), Ordering::SeqCst);
        if after == 0 {
            self.broken.cancel();
        }
    }

    /// How many of so many bytes pass.
    fn pass(&self, bytes: usize) -> usize {
        let wanted = i64::try_from(bytes).unwrap_or(UNLIMITED);
        let mut passed = 0;
        // The closure always has an answer.
        let _ = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            passed = wanted.min(left);
            Some(if left == UNLIMITED { left } else { left - passed })
        });
        usize::try_from(passed).unwrap_or_default()
    }
}

struct Shared {
    target: SocketAddr,
    links: Mutex<Vec<Arc<Link>>>,
    /// Connections that are open now.
    open: watch::Sender<usize>,
    cuts: AtomicUsize,
}

/// A proxy; it ends, and everything through it, when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one on a port of its own before `target`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            links: Mutex::default(),
            open: watch::Sender::new(0),
            cuts: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until something is connected through it; false when nothing is for so long.
    pub async fn connected(&self, patience: Duration) -> bool {
        let mut open = self.shared.open.subscribe();
        let connected = open.wait_for(|open| *open > 0);
        matches!(tokio::time::timeout(patience, connected).await, Ok(Ok(_)))
    }

    /// Cuts what is connected now, each connection after so many further bytes.
    pub fn cut(&self, cut: Cut, after: usize) {
        for link in self.shared.links.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            link.order(cut, after);
        }
    }

    /// How many connections were cut, as opposed to ended by one of their sides.
    #[must_use]
    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut(Cut::End, 0);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, Arc::clone(&shared)));
    }
}

async fn relay(client: TcpStream, shared: Arc<Shared>) {
    // A server that is away is seen as a connection that ends at once.
    let Ok(server) = TcpStream::connect(shared.target).await else { return };
    // Small messages travel at once, as without a proxy; a failure shows with the next use of the socket.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let link = Arc::new(Link::new());
    shared.links.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&link));
    shared.open.send_modify(|open| *open += 1);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = tokio::spawn(pump(from_client, to_server, Arc::clone(&link)));
    let down = pump(from_server, to_client, Arc::clone(&link)).await;
    let up = up.await;
    shared.links.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, &link));
    if link.left.load(Ordering::SeqCst) != UNLIMITED {
        shared.cuts.fetch_add(1, Ordering::SeqCst);
    }
    if *link.cut.lock().unwrap_or_else(PoisonError::into_inner) == Cut::Reset
        && let Ok(up) = &up
    {
        for (from, _) in [&down, up] {
            // What is closed with nothing to linger for is reset; a socket that is gone already needs neither.
            let _ = from.as_ref().set_zero_linger();
        }
    }
    for (from, to) in [Some(down), up.ok()].into_iter().flatten() {
        // Its own end would be an orderly one, whatever was asked for.
        to.forget();
        drop(from);
    }
    shared.open.send_modify(|open| *open -= 1);
}

/// Carries bytes one way until the connection ends or is cut; gives the halves back so that both ways end together.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    link: Arc<Link>,
) -> (OwnedReadHalf, OwnedWriteHalf) {
    let mut piece = vec![0; PIECE];
    loop {
        let read = tokio::select! {
            biased;
            () = link.broken.cancelled() => break,
            read = from.read(&mut piece) => read.unwrap_or_default(),
        };
        let passed = link.pass(read);
        let written = tokio::select! {
            biased;
            () = link.broken.cancelled() => break,
            written = to.write_all(&piece[..passed]) => written,
        };
        if read == 0 || passed < read || written.is_err() {
            link.broken.cancel();
            break;
        }
    }
    (from, to)
}
