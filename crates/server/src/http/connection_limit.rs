//! Limits the number of open connections, in total and per client.
//!
//! A client may have at most as many connections as are free. One client can take half of them, two a third each, and so on:
//! some are always left for the next client. An upgraded connection does not count, because only authenticated clients get
//! an upgrade, and thousands of daemons may share one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use coder_domain::key::Network;
use parking_lot::{Mutex, MutexGuard};

use crate::config::Proxies;

/// The open connections of one server.
pub struct ConnectionLimit {
    most: usize,
    proxies: Proxies,
    open: Mutex<OpenCounts>,
}

#[derive(Default)]
struct OpenCounts {
    total: usize,
    clients: HashMap<Network, usize>,
}

/// The right to one open connection, until it is dropped.
pub struct Permit {
    limit: Arc<ConnectionLimit>,
    client: Option<Network>,
}

impl ConnectionLimit {
    /// At most `most` connections. Trusted proxies carry many clients, so their connections have only this bound.
    #[must_use]
    pub fn new(most: usize, proxies: Proxies) -> Arc<Self> {
        Arc::new(Self { most, proxies, open: Mutex::default() })
    }

    /// Admits a connection from this address, if there is room for it.
    #[must_use]
    pub fn admit(self: &Arc<Self>, from: IpAddr) -> Option<Permit> {
        let client = (!self.proxies.trusts(from)).then(|| Network::of_client(from));
        let mut open = self.open();
        let free = self.most.saturating_sub(open.total);
        if free == 0 {
            return None;
        }
        if let Some(client) = client {
            let count = open.clients.entry(client).or_insert(0);
            if *count >= free {
                return None;
            }
            *count += 1;
        }
        open.total += 1;
        drop(open);
        Some(Permit { limit: Arc::clone(self), client })
    }

    fn open(&self) -> MutexGuard<'_, OpenCounts> {
        self.open.lock()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.limit.open();
        open.total -= 1;
        let Some(client) = self.client else { return };
        if let Some(count) = open.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                open.clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Arc<ConnectionLimit> {
        let proxies = Proxies { headers: Vec::new(), origins: vec!["10.0.0.0/8".parse().unwrap()] };
        ConnectionLimit::new(60, proxies)
    }

    /// Opens connections from an address until one is refused.
    fn fill(limit: &Arc<ConnectionLimit>, from: &str) -> Vec<Permit> {
        std::iter::from_fn(|| limit.admit(from.parse().unwrap())).collect()
    }

    #[test]
    fn some_connections_are_always_left_for_the_next_client() {
        let limit = limit();
        let clients = ["1.1.1.1", "2.2.2.2", "2001:db8:0:1::1", "2001:db8:0:2::1", "3.3.3.3"];
        let held: Vec<_> = clients.iter().map(|client| fill(&limit, client)).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [30, 15, 8, 4, 2]);
        assert!(fill(&limit, "1.1.1.1").is_empty());
        assert!(fill(&limit, "2001:db8:0:1:ffff::2").is_empty(), "an address of a /64 that has its share");
        drop(held);
        assert_eq!(fill(&limit, "1.1.1.1").len(), 30, "what was closed is free again");
        assert!(limit.open().clients.is_empty());
    }

    #[test]
    fn a_trusted_proxy_may_have_all() {
        let limit = limit();
        assert_eq!(fill(&limit, "::ffff:10.1.1.1").len(), 60);
        let _held = fill(&limit, "10.1.1.1");
        assert!(limit.admit("1.1.1.1".parse().unwrap()).is_none());
    }
}
