//! Connects the coordinator with the streams of peers: requests go in, responses come out of a bounded queue.
//!
//! A connection whose queue is full is dropped: it would see an old state. Nodes are as large as their peers make them, so the
//! queue is bounded in bytes, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use prost::Message as _;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{Authorization, ConnectionId, Coordinator, Output};
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
        let (id, outputs) = inner.coordinator.connect(peer, authorization);
        inner.queues.insert(id, queue);
        inner.deliver(outputs);
        drop(inner);
        (Connection { hub: self.clone(), id, bytes }, receiver)
    }

    /// Peers now.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.lock().coordinator.peers()
    }

    /// Whether a peer is connected and has announced its node.
    #[must_use]
    pub fn has_node(&self, peer: Uuid) -> bool {
        self.lock().coordinator.node(peer).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
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
    fn deliver(&mut self, mut outputs: Vec<Output>) {
        while !outputs.is_empty() {
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
