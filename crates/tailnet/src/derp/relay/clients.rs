//! The clients of a relay by key, and what waits for each of them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::derp::frame::GoneReason;
use crate::derp::queue::FairQueue;
use crate::key::NodePublic;

/// Answers and notifications that wait for one connection. Further ones are dropped.
const NOTIFICATIONS: usize = 64;

/// A connection after its handshake, as the others see it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) key: NodePublic,
    /// Whether it is the connection of its key that receives.
    pub(super) receives: AtomicBool,
    pub(super) waiting: Mutex<Waiting>,
    pub(super) wake: Notify,
    /// Ended because its key connected too often.
    pub(super) replaced: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) packets: FairQueue,
    pub(super) disco: FairQueue,
    pub(super) notifications: VecDeque<Notification>,
}

impl Waiting {
    /// Whether no packet waits.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.bytes() + self.disco.bytes() == 0
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notification {
    Gone(NodePublic, GoneReason),
    Pong([u8; 8]),
}

/// A client in the table. Dropping it removes it and notifies the clients that it sent packets to.
pub(super) struct Registered<'a> {
    inner: &'a Inner,
    pub(super) client: Arc<Client>,
    pub(super) destinations: Mutex<HashSet<NodePublic>>,
}

impl<'a> Registered<'a> {
    pub(super) fn new(inner: &'a Inner, key: NodePublic) -> Self {
        let config = &inner.config;
        let queue = |divisor| FairQueue::new(config.queue_packets / divisor, config.queue_bytes / divisor);
        let client = Arc::new(Client {
            key,
            receives: AtomicBool::new(true),
            waiting: Mutex::new(Waiting {
                packets: queue(1),
                disco: queue(4),
                notifications: VecDeque::new(),
            }),
            wake: Notify::new(),
            replaced: CancellationToken::new(),
        });
        let mut clients = inner.clients.write();
        let same = clients.entry(key).or_default();
        for other in &*same {
            other.receives.store(false, Ordering::Relaxed);
        }
        same.push(Arc::clone(&client));
        if same.len() > config.connections_per_key {
            same.remove(0).replaced.cancel();
        }
        inner.links.changed(key);
        Self { inner, client, destinations: Mutex::default() }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let key = self.client.key;
        let mut clients = self.inner.clients.write();
        if let Some(same) = clients.get_mut(&key) {
            same.retain(|client| !Arc::ptr_eq(client, &self.client));
            if let Some(last) = same.last() {
                last.receives.store(true, Ordering::Relaxed);
            } else {
                clients.remove(&key);
            }
        }
        let mut waiting = self.client.waiting.lock();
        self.inner.note_backlog(waiting.is_empty(), true);
        // Nobody may add to it any more.
        waiting.packets = FairQueue::new(0, 0);
        waiting.disco = FairQueue::new(0, 0);
        drop(waiting);
        self.inner.links.changed(key);
        if clients.contains_key(&key) || self.inner.links.towards(&key).is_some() {
            return;
        }
        for destination in self.destinations.lock().drain() {
            if let Some(same) = clients.get(&destination) {
                for client in same {
                    client.notify(Notification::Gone(key, GoneReason::Disconnected));
                }
            } else if let Some(link) = self.inner.links.towards(&destination) {
                link.sender_gone(destination, key);
            }
        }
    }
}

/// What the relays of other servers change.
impl Inner {
    /// A node connected to another relay, later than here.
    pub(super) fn receives_elsewhere(&self, key: NodePublic) {
        for client in self.clients.read().get(&key).into_iter().flatten() {
            client.receives.store(false, Ordering::Relaxed);
        }
    }

    /// A node is not connected to another relay any more.
    pub(super) fn receives_here(&self, key: NodePublic) {
        let clients = self.clients.read();
        if let Some(client) = clients.get(&key).and_then(|same| same.last())
            && !client.receives.swap(true, Ordering::Relaxed)
        {
            self.links.changed(key);
        }
    }

    /// A node of another relay, which sent packets to one here, has left.
    pub(super) fn sender_gone(&self, to: NodePublic, peer: NodePublic) {
        for client in self.clients.read().get(&to).into_iter().flatten() {
            client.notify(Notification::Gone(peer, GoneReason::Disconnected));
        }
    }
}

impl Client {
    pub(super) fn notify(&self, notification: Notification) {
        let mut waiting = self.waiting.lock();
        if waiting.notifications.len() < NOTIFICATIONS && !waiting.notifications.contains(&notification) {
            waiting.notifications.push_back(notification);
            self.wake.notify_one();
        }
    }
}
