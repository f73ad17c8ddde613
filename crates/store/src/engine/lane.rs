//! A bounded set of connections of one kind, opened on demand and handed out one holder at a time.
//!
//! The drivers' own pools ping on every release and spawn a task to do so; a lane does neither.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

struct Idle<C> {
    conn: C,
    since: Instant,
}

type Stack<C> = Arc<Mutex<Vec<Idle<C>>>>;

/// The connections that are not in use, and how many may exist.
pub(crate) struct Lane<C> {
    permits: Arc<Semaphore>,
    idle: Stack<C>,
    patience: Duration,
}

/// A connection in use; dropping it gives it back.
pub(crate) struct Lease<C> {
    conn: Option<C>,
    idle: Stack<C>,
    _permit: OwnedSemaphorePermit,
}

/// A place in the lane: with an idle connection and how long it was idle, or empty.
pub(crate) struct Place<C> {
    pub(crate) lease: Lease<C>,
    pub(crate) idle_for: Duration,
}

impl<C> Lane<C> {
    pub(crate) fn new(size: usize, patience: Duration) -> Self {
        Self { permits: Arc::new(Semaphore::new(size)), idle: Stack::default(), patience }
    }

    /// Waits for a place, at most as long as the lane's patience.
    pub(crate) async fn place(&self) -> Result<Place<C>, Error> {
        let permit = tokio::time::timeout(self.patience, Arc::clone(&self.permits).acquire_owned());
        let permit = match permit.await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Error::Unavailable { what: "the store is closed", source: None }),
            Err(_) => {
                return Err(Error::Unavailable {
                    what: "every connection was busy for too long",
                    source: None,
                });
            }
        };
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let idle_for = idle.as_ref().map_or(Duration::ZERO, |idle| idle.since.elapsed());
        let conn = idle.map(|idle| idle.conn);
        Ok(Place { lease: Lease { conn, idle: Arc::clone(&self.idle), _permit: permit }, idle_for })
    }

    /// Refuses new holders and returns the idle connections.
    pub(crate) fn close(&self) -> Vec<C> {
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        idle.into_iter().map(|idle| idle.conn).collect()
    }
}

impl<C> Lease<C> {
    /// The connection, when the place has one.
    pub(crate) fn get(&mut self) -> Option<&mut C> {
        self.conn.as_mut()
    }

    /// Puts a fresh connection into the place and returns it.
    pub(crate) fn put(&mut self, conn: C) -> &mut C {
        self.conn.insert(conn)
    }

    /// Takes a broken connection out, so that nobody gets it again.
    pub(crate) fn take(&mut self) -> Option<C> {
        self.conn.take()
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            let idle = Idle { conn, since: Instant::now() };
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
        }
    }
}
