//! Opens and accepts streams over one connection: yamux as the Go library speaks it (docs/wire.md says why not a crate).
//!
//! `frame` is the header, `state` the rules without I/O, `driver` the one task that reads and writes the connection,
//! `stream` the handle of one stream.

mod driver;
mod error;
pub mod frame;
mod state;
mod stream;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use self::driver::Driver;
pub use self::error::Error;
use self::state::{Role, State};
pub use self::stream::Stream;
use crate::budget::{Account, Reservation};
use crate::bytes::ByteStream;

/// Credit of each direction of a new stream, in bytes; never enlarged (wire-protocol 2.2).
pub const WINDOW: u32 = 256 << 10;

/// Large messages and files that a peer sends at once: its other end reads a bounded number of calls, and what it does not
/// read takes its memory.
const LARGE_AT_ONCE: usize = 8;
/// Messages of more bytes are large.
const LARGE: usize = 64 << 10;

/// How long queued frames and the closing handshake may take when a session ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Limits of a session. The defaults are those of the official peers (wire-protocol 2.2).
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Time between keepalive pings.
    pub keepalive_interval: Duration,
    /// Time in which a ping must be answered, or anything else must arrive.
    pub keepalive_timeout: Duration,
    /// Time in which the peer must acknowledge a stream we open; the session ends without.
    pub open_timeout: Duration,
    /// Time a stream may stay closed on our side only; then it is dropped.
    pub close_timeout: Duration,
    /// Streams of the peer that may wait for [`Session::accept`]; further ones are refused.
    pub accept_backlog: usize,
    /// Streams that may exist at once, in both directions together.
    pub max_streams: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(75),
            close_timeout: Duration::from_secs(300),
            accept_backlog: 256,
            max_streams: 1024,
        }
    }
}

/// One connection that carries many streams. Clones share it; when the last is dropped, the session closes.
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

struct Handle {
    link: Arc<Link>,
}

/// What the handles and the driver share.
struct Link {
    state: Mutex<State>,
    account: Option<Account>,
    large: Semaphore,
    /// Something happened that callers of `open`, `accept`, `closed` or `close` may wait for.
    news: Notify,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere does not make the state wrong: every change is completed under one lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.link.lock().close(Instant::now() + FAREWELL);
    }
}

impl Session {
    /// The daemon's end: its streams have odd ids. Must be called within a Tokio runtime, which runs the session.
    pub fn client(io: impl ByteStream, config: Config) -> Self {
        Self::start(io, Role::Client, config, None)
    }

    /// The server's end.
    pub fn server(io: impl ByteStream, config: Config) -> Self {
        Self::start(io, Role::Server, config, None)
    }

    /// The server's end, whose memory counts: the messages of its calls against `messages`, and what arrived and was not
    /// read yet against `unread`. The two are of different budgets, since a message that waits for memory can end only
    /// when its connection is read.
    pub fn accounted(io: impl ByteStream, config: Config, messages: Account, unread: &Account) -> Self {
        Self::start(io, Role::Server, config, Some((messages, unread.reserve())))
    }

    fn start(
        io: impl ByteStream,
        role: Role,
        config: Config,
        accounted: Option<(Account, Reservation)>,
    ) -> Self {
        let (account, unread) = accounted.unzip();
        let state = Mutex::new(State::new(role, config, unread, Instant::now()));
        let link =
            Arc::new(Link { state, account, large: Semaphore::new(LARGE_AT_ONCE), news: Notify::new() });
        tokio::spawn(Driver::new(io, Arc::clone(&link)).run());
        Self { handle: Arc::new(Handle { link }) }
    }

    fn link(&self) -> &Arc<Link> {
        &self.handle.link
    }

    /// Opens a stream. Returns at once; data may be written before the peer acknowledges.
    ///
    /// # Errors
    /// Why the session is over, or that the peer takes no further streams.
    pub async fn open(&self) -> Result<Stream, Error> {
        let id = self.wait(|state| state.open(Instant::now()).transpose()).await?;
        Ok(Stream::new(id, Arc::clone(self.link())))
    }

    /// The next stream of the peer. It has been acknowledged on arrival.
    ///
    /// # Errors
    /// Why the session is over.
    pub async fn accept(&self) -> Result<Stream, Error> {
        let id = self.wait(|state| match state.backlog.pop_front() {
            Some(id) => Some(Ok(id)),
            None => state.closed.clone().map(Err),
        });
        Ok(Stream::new(id.await?, Arc::clone(self.link())))
    }

    /// Waits for the end of the session, and says why it ended.
    pub async fn closed(&self) -> Error {
        self.wait(|state| state.closed.clone()).await
    }

    /// Why the session is over, if it is.
    #[must_use]
    pub fn end(&self) -> Option<Error> {
        self.link().lock().closed.clone()
    }

    /// Closes the session: frames that may leave are written, then the connection is shut down in its orderly way
    /// (on a WebSocket: close code 1000). Takes 10 s at most. There is no GoAway, as the Go library sends none.
    pub async fn close(&self) {
        self.link().lock().close(Instant::now() + FAREWELL);
        self.wait(|state| state.shut.then_some(())).await;
    }

    /// Waits until a message of so many bytes may be sent.
    pub(crate) async fn turn(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        if bytes > LARGE { self.link().large.acquire().await.ok() } else { None }
    }

    /// What the session's memory counts against.
    pub(crate) fn account(&self) -> Option<&Account> {
        self.link().account.as_ref()
    }

    /// Bytes that arrived and were not read yet, over all streams.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.link().lock().unread.bytes()
    }

    /// Streams that exist: open, or closed on one side only.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.link().lock().open_streams()
    }

    /// The time the peer needs to answer a ping.
    ///
    /// # Errors
    /// Why the session ended meanwhile.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let start = Instant::now();
        let answer = self.link().lock().ping()?;
        match answer.await {
            Ok(()) => Ok(start.elapsed()),
            Err(_) => Err(self.closed().await),
        }
    }

    /// Waits until `check` finds something; it is asked again after every news.
    async fn wait<T>(&self, mut check: impl FnMut(&mut State) -> Option<T>) -> T {
        let link = self.link();
        loop {
            let mut news = std::pin::pin!(link.news.notified());
            // Registered before looking, so that nothing is missed in between.
            news.as_mut().enable();
            if let Some(found) = check(&mut link.lock()) {
                return found;
            }
            news.await;
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("streams", &self.open_streams()).field("end", &self.end()).finish()
    }
}
