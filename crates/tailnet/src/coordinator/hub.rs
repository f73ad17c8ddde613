//! Connects the coordinator with the streams of peers: requests go in, responses come out of a bounded queue.
//!
//! A connection whose queue is full is dropped: it would see an old state. Nodes are as large as their peers make them, so the
//! queue is bounded in bytes, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use prost::Message as _;
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::replicas::{Replicas, TooMany};
use super::{Authorization, ConnectionId, Coordinator, Output};
use crate::mesh::frame::Frame;
use crate::messages::{CoordinateRequest, CoordinateResponse};

/// Responses that wait for one connection.
const RESPONSES: usize = 512;
/// Bytes of the responses that wait for one connection, unless it is the server's own.
const BYTES: usize = 256 << 10;

/// The coordinator of a server. Clones are the same coordinator.
#[derive(Debug, Clone, Default)]
pub struct Hub {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    coordinator: Coordinator,
    queues: HashMap<ConnectionId, Queue>,
    replicas: Replicas,
}

/// What waits for one connection.
#[derive(Debug)]
struct Queue {
    sender: mpsc::Sender<CoordinateResponse>,
    bytes: Arc<AtomicUsize>,
    byte_limit: usize,
}

/// A peer's end. Dropping it without [`CoordinateRequest::disconnect`] means that the peer is lost.
#[derive(Debug)]
pub struct Connection {
    hub: Hub,
    id: ConnectionId,
    /// Bytes of the responses that wait.
    bytes: Arc<AtomicUsize>,
}

impl Hub {
    /// Adds a connection. Its responses end when the coordinator ends the connection.
    #[must_use]
    pub fn connect(
        &self,
        peer: Uuid,
        authorization: Authorization,
    ) -> (Connection, mpsc::Receiver<CoordinateResponse>) {
        let (sender, receiver) = mpsc::channel(RESPONSES);
        let bytes = Arc::<AtomicUsize>::default();
        let byte_limit = if matches!(authorization, Authorization::Server) { usize::MAX } else { BYTES };
        let queue = Queue { sender, bytes: Arc::clone(&bytes), byte_limit };
        let mut inner = self.lock();
        inner.replicas.connected(peer);
        let (id, outputs) = inner.coordinator.connect(peer, authorization);
        inner.queues.insert(id, queue);
        inner.deliver(outputs);
        drop(inner);
        (Connection { hub: self.clone(), id, bytes }, receiver)
    }

    /// Peers of this server now.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.lock().coordinator.peers_here().count()
    }

    /// Peers of other servers now.
    #[must_use]
    pub fn remote_peers(&self) -> usize {
        self.lock().replicas.peers()
    }

    /// Whether a peer is connected and has announced its node.
    #[must_use]
    pub fn has_node(&self, peer: Uuid) -> bool {
        self.lock().coordinator.node(peer).is_some()
    }

    /// Begins to tell another server of the peers here; `wake` is notified when there is something to tell.
    pub(crate) fn tell(&self, server: Uuid, wake: Arc<Notify>) -> Telling {
        let mut inner = self.lock();
        let Inner { coordinator, replicas, .. } = &mut *inner;
        replicas.open(coordinator, server, Arc::clone(&wake));
        Telling { hub: self.clone(), server, wake }
    }

    /// Begins to hear of the peers of another server.
    pub(crate) fn hear(&self, server: Uuid) -> Hearing {
        let epoch = self.lock().replicas.linked(server);
        Hearing { hub: self.clone(), server, epoch }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// Another server that gets the peers of this one, until this is dropped.
#[derive(Debug)]
pub(crate) struct Telling {
    hub: Hub,
    server: Uuid,
    wake: Arc<Notify>,
}

impl Telling {
    /// Moves what must be told into `out`, until that has about `limit` bytes.
    pub(crate) fn gather(&self, out: &mut Vec<u8>, limit: usize) -> Result<(), TooMany> {
        let mut inner = self.hub.lock();
        let Inner { coordinator, replicas, .. } = &mut *inner;
        replicas.gather(coordinator, self.server, out, limit)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.hub.lock().replicas.close(self.server, &self.wake);
    }
}

/// A connection over which another server tells of its peers. They stay when it is dropped, until [`Forget::forget`].
#[derive(Debug)]
pub(crate) struct Hearing {
    hub: Hub,
    server: Uuid,
    epoch: u64,
}

impl Hearing {
    /// Takes a frame. Whether this is still the newest connection of that server.
    pub(crate) fn receive(&self, frame: &Frame<'_>) -> Result<bool, TooMany> {
        let mut inner = self.hub.lock();
        let Inner { coordinator, replicas, .. } = &mut *inner;
        if !replicas.is_newest(self.server, self.epoch) {
            return Ok(false);
        }
        let outputs = replicas.receive(coordinator, self.server, frame)?;
        inner.deliver(outputs);
        Ok(true)
    }

    /// Forgets that server's peers later.
    pub(crate) fn end(self) -> Forget {
        Forget { hub: self.hub.clone(), server: self.server, epoch: self.epoch }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.hub.lock().replicas.unlinked(self.server, self.epoch);
    }
}

/// The peers of a server whose connection has ended.
#[derive(Debug)]
pub(crate) struct Forget {
    hub: Hub,
    server: Uuid,
    epoch: u64,
}

impl Forget {
    /// Forgets them, unless their server has connected again: their partners hear that they are lost.
    pub(crate) fn forget(self) {
        let mut inner = self.hub.lock();
        let Inner { coordinator, replicas, .. } = &mut *inner;
        let outputs = replicas.forget(coordinator, self.server, self.epoch);
        inner.deliver(outputs);
    }
}

impl Connection {
    /// Takes a request of the peer.
    pub fn request(&self, request: CoordinateRequest) {
        let mut inner = self.hub.lock();
        let outputs = inner.coordinator.request(self.id, request);
        inner.deliver(outputs);
    }

    /// The peer was sent a response: it does not wait any more.
    pub fn sent(&self, response: &CoordinateResponse) {
        self.bytes.fetch_sub(response.encoded_len(), Ordering::Relaxed);
    }

    /// Ends the connection because the peer may not take part any more. Its partners forget it at once.
    pub fn revoke(&self, reason: &str) {
        let mut inner = self.hub.lock();
        let outputs = inner.coordinator.revoke(self.id, reason);
        inner.deliver(outputs);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut inner = self.hub.lock();
        inner.queues.remove(&self.id);
        let outputs = inner.coordinator.lost(self.id);
        inner.deliver(outputs);
    }
}

impl Inner {
    /// Sends to the peers here, and notes what other servers must hear.
    fn deliver(&mut self, mut outputs: Vec<Output>) {
        loop {
            outputs.extend(self.replicas.note(&mut self.coordinator));
            if outputs.is_empty() {
                return;
            }
            let mut further = Vec::new();
            for output in outputs {
                match output {
                    Output::Send(to, response) => {
                        let Some(queue) = self.queues.get(&to) else { continue };
                        if !queue.push(response) {
                            self.queues.remove(&to);
                            further.extend(self.coordinator.lost(to));
                        }
                    }
                    Output::Close(connection) => {
                        self.queues.remove(&connection);
                    }
                }
            }
            outputs = further;
        }
    }
}

impl Queue {
    /// Adds a response, if there is room for it.
    fn push(&self, response: CoordinateResponse) -> bool {
        let size = response.encoded_len();
        let waiting = self.bytes.fetch_add(size, Ordering::Relaxed);
        waiting + size <= self.byte_limit && self.sender.try_send(response).is_ok()
    }
}
