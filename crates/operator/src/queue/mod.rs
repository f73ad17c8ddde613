//! The queues of the servers, read once for all pools of one control plane and organization.

mod reader;
mod snapshot;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coder_api::client::Client as Coder;
use coder_domain::clock::Clock;
use coder_domain::ids::OrganizationId;
use coder_domain::tags::TagSet;
use parking_lot::Mutex;
use tokio::sync::mpsc;

pub(crate) use snapshot::{Demand, demands};

use reader::Reader;

/// A pool: namespace and name.
pub(crate) type PoolId = (String, String);

/// What a pool wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) tags: TagSet,
    /// The ids of its keys, by which its daemons are recognized.
    pub(crate) keys: Vec<String>,
    /// How many daemons it may have for waiting jobs, busy ones included.
    pub(crate) max: usize,
    /// How often to look.
    pub(crate) every: Duration,
}

/// The readers by server and token, and by organization.
type Readers = HashMap<(String, OrganizationId), Arc<Reader>>;

/// All readers.
#[derive(Clone)]
pub(crate) struct Queues {
    readers: Arc<Mutex<Readers>>,
    changes: mpsc::Sender<PoolId>,
    clock: Arc<dyn Clock>,
}

impl Queues {
    /// Readers that name a pool in `changes` when its demand changed.
    #[must_use]
    pub(crate) fn new(changes: mpsc::Sender<PoolId>, clock: Arc<dyn Clock>) -> Self {
        Self { readers: Arc::default(), changes, clock }
    }

    /// Registers a pool, and returns what is known about its queue; none before the first answer.
    #[must_use]
    pub(crate) fn watch(
        &self,
        pool: &PoolId,
        identity: &str,
        organization: OrganizationId,
        client: &Coder,
        interest: Interest,
    ) -> Option<Arc<Demand>> {
        let at = (identity.to_owned(), organization);
        let mut readers = self.readers.lock();
        // A pool has one queue; it may have had another.
        readers.retain(|known, reader| *known == at || reader.forget(pool));
        let reader = readers.entry(at).or_insert_with(|| {
            let reader = Arc::new(Reader::new(client.clone(), organization));
            let run = Arc::clone(&reader).run(self.changes.clone(), Arc::clone(&self.clock));
            tokio::spawn(run);
            reader
        });
        reader.register(pool, interest)
    }

    /// Reads the queue of a pool early, because what is known about its daemons is out of date.
    pub(crate) fn look(&self, pool: &PoolId) {
        for reader in self.readers.lock().values() {
            reader.look(pool);
        }
    }

    /// Forgets a pool; a reader without pools ends.
    pub(crate) fn forget(&self, pool: &PoolId) {
        self.readers.lock().retain(|_, reader| reader.forget(pool));
    }

    /// The demands of all pools, for metrics and the external scaler.
    #[must_use]
    pub(crate) fn demands(&self) -> Vec<(PoolId, Arc<Demand>)> {
        self.readers.lock().values().flat_map(|reader| reader.demands()).collect()
    }
}
