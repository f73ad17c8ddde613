//! A bounded pool of connections, which are opened on demand and used by one caller at a time.
//!
//! The pools of the drivers spawn a task that pings the connection on every release. This pool does neither.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

struct IdleConnection<C> {
    conn: C,
    since: Instant,
}

type IdleConnections<C> = Arc<Mutex<Vec<IdleConnection<C>>>>;

/// The idle connections, and a permit for each connection that may exist.
pub(crate) struct ConnectionPool<C> {
    permits: Arc<Semaphore>,
    idle: IdleConnections<C>,
    acquire_timeout: Duration,
}

/// A permit to use one connection, with the connection once it is open. Dropping it returns both to the pool.
pub(crate) struct PooledConnection<C> {
    conn: Option<C>,
    /// How long the connection had been idle when it was acquired.
    idle_for: Duration,
    idle: IdleConnections<C>,
    _permit: OwnedSemaphorePermit,
}

impl<C> ConnectionPool<C> {
    pub(crate) fn new(size: usize, acquire_timeout: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(size));
        Self { permits, idle: IdleConnections::default(), acquire_timeout }
    }

    /// Waits for a permit, at most until the timeout. The result has no connection when none was idle.
    pub(crate) async fn acquire(&self) -> Result<PooledConnection<C>, Error> {
        let unavailable = |what| Error::Unavailable { what, source: None };
        let permit = tokio::time::timeout(self.acquire_timeout, Arc::clone(&self.permits).acquire_owned());
        let permit = permit
            .await
            .map_err(|_| unavailable("no connection became free in time"))?
            .map_err(|_| unavailable("the store is closed"))?;
        let idle = self.idle.lock().pop();
        Ok(PooledConnection {
            idle_for: idle.as_ref().map_or(Duration::ZERO, |idle| idle.since.elapsed()),
            conn: idle.map(|idle| idle.conn),
            idle: Arc::clone(&self.idle),
            _permit: permit,
        })
    }

    /// Refuses new callers. Returns the idle connections.
    pub(crate) fn close(&self) -> Vec<C> {
        self.permits.close();
        std::mem::take(&mut *self.idle.lock()).into_iter().map(|idle| idle.conn).collect()
    }
}

impl<C> PooledConnection<C> {
    /// The connection, if there is one.
    pub(crate) fn get(&mut self) -> Option<&mut C> {
        self.conn.as_mut()
    }

    /// How long the connection had been idle when it was acquired.
    pub(crate) const fn idle_for(&self) -> Duration {
        self.idle_for
    }

    /// Puts a new connection in and returns it.
    pub(crate) fn put(&mut self, conn: C) -> &mut C {
        self.conn.insert(conn)
    }

    /// Removes a broken connection, so that it does not return to the pool.
    pub(crate) fn take(&mut self) -> Option<C> {
        self.conn.take()
    }
}

impl<C> Drop for PooledConnection<C> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.idle.lock().push(IdleConnection { conn, since: Instant::now() });
        }
    }
}
