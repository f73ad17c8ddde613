//! Reference models of the queue, for tests only: the store implements both in SQL, and its tests compare.

mod fair;
mod official;

pub use self::fair::{FairQueue, InitiatorLoad, Job, SubQueueKey, fair_position};
pub use self::official::{PendingJob, QueuePosition, by_daemon, overall};
