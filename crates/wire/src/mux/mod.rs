//! Opens and accepts streams over one connection: yamux as the Go library speaks it (docs/wire.md says why not a crate).
//!
//! `frame` is the header, `state` the rules without I/O, `task` reads and writes the connection, `stream` is
//! the handle of one stream.

mod config;
mod error;
pub mod frame;
mod inner;
mod state;
mod stream;
mod task;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use self::config::CLOSE_TIMEOUT;
pub use self::config::{Config, STREAM_WINDOW};
pub use self::error::Error;
use self::inner::Inner;
use self::state::{Role, State};
pub use self::stream::Stream;
use self::task::SessionTask;
use crate::budget::{Account, Reservation};
use crate::bytes::ByteStream;

/// Large messages and files that are sent at once: the peer reads a bounded number of calls, and unread bytes take its
/// memory.
const MAX_LARGE_MESSAGES: usize = 8;
/// Messages of more bytes are large.
const LARGE_MESSAGE: usize = 64 << 10;

/// One connection that carries many streams. Clones share it; when the last is dropped, the session closes.
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Inner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().close(Instant::now() + CLOSE_TIMEOUT);
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

    /// The server's end with accounting of its memory: the messages of its calls count against `messages`, bytes that
    /// arrived and were not read yet against `unread`. The two belong to different budgets, because a message that waits
    /// for memory can end only when its connection is read.
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
        let shared = Arc::new(Inner {
            state,
            account,
            large: Semaphore::new(MAX_LARGE_MESSAGES),
            changed: Notify::new(),
        });
        tokio::spawn(SessionTask::new(io, Arc::clone(&shared)).run());
        Self { handle: Arc::new(Handle { shared }) }
    }

    fn shared(&self) -> &Arc<Inner> {
        &self.handle.shared
    }

    /// Opens a stream. Returns at once; data may be written before the peer acknowledges.
    ///
    /// # Errors
    /// Why the session is over, or that the peer takes no further streams.
    pub async fn open(&self) -> Result<Stream, Error> {
        let id = self.wait(|state| state.open(Instant::now()).transpose()).await?;
        Ok(Stream::new(id, Arc::clone(self.shared())))
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
        Ok(Stream::new(id.await?, Arc::clone(self.shared())))
    }

    /// Waits for the end of the session, and returns its cause.
    pub async fn closed(&self) -> Error {
        self.wait(|state| state.closed.clone()).await
    }

    /// Why the session is over, if it is.
    #[must_use]
    pub fn end(&self) -> Option<Error> {
        self.shared().lock().closed.clone()
    }

    /// Closes the session: frames that may leave are written, then the connection is shut down in its orderly way
    /// (on a WebSocket: close code 1000). Takes at most 10 s. No GoAway is sent, as in the Go library.
    pub async fn close(&self) {
        self.shared().lock().close(Instant::now() + CLOSE_TIMEOUT);
        self.wait(|state| state.shut.then_some(())).await;
    }

    /// Waits until a message of `bytes` may be sent. Small messages need no permit.
    pub(crate) async fn large_message_permit(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        if bytes > LARGE_MESSAGE { self.shared().large.acquire().await.ok() } else { None }
    }

    /// The account of the session's memory.
    pub(crate) fn account(&self) -> Option<&Account> {
        self.shared().account.as_ref()
    }

    /// Bytes that arrived and were not read yet, over all streams.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.shared().lock().unread.bytes()
    }

    /// Streams that exist: open, or closed on one side only.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.shared().lock().open_streams()
    }

    /// The time the peer needs to answer a ping.
    ///
    /// # Errors
    /// Why the session ended meanwhile.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let start = Instant::now();
        let answer = self.shared().lock().ping()?;
        match answer.await {
            Ok(()) => Ok(start.elapsed()),
            Err(_) => Err(self.closed().await),
        }
    }

    /// Waits until `check` returns a value; it runs again after every change.
    async fn wait<T>(&self, mut check: impl FnMut(&mut State) -> Option<T>) -> T {
        let shared = self.shared();
        loop {
            let mut changed = std::pin::pin!(shared.changed.notified());
            // Registered before the check, so that no change in between is missed.
            changed.as_mut().enable();
            if let Some(found) = check(&mut shared.lock()) {
                return found;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("streams", &self.open_streams()).field("end", &self.end()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn eight_large_messages_leave_at_once_and_small_ones_any_time() {
        let (near, _far) = tokio::io::duplex(1024);
        let session = Session::client(near, Config::default());
        let permit = |bytes| session.large_message_permit(bytes).now_or_never();
        let mut large: Vec<_> =
            (0..MAX_LARGE_MESSAGES).map(|_| permit(LARGE_MESSAGE + 1).unwrap().unwrap()).collect();
        assert!(permit(LARGE_MESSAGE + 1).is_none() && permit(LARGE_MESSAGE + 2).is_none());
        assert!(permit(LARGE_MESSAGE).is_some_and(|permit| permit.is_none()));
        large.pop();
        assert!(permit(LARGE_MESSAGE + 2).is_some());
    }
}
