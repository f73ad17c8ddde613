//! Counts the statements, so that tests and metrics can distinguish an idle server from a busy one.

use std::sync::atomic::{AtomicU64, Ordering};

use super::statement::Purpose;

/// The number of statements since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementCounts {
    /// Statements for requests and tasks.
    pub work: u64,
    /// Heartbeats of daemons.
    pub heartbeats: u64,
    /// Searches for jobs.
    pub claims: u64,
    /// Round trips to the database. Merged statements count once; BEGIN and COMMIT count when they were sent.
    pub round_trips: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    work: AtomicU64,
    heartbeats: AtomicU64,
    claims: AtomicU64,
    round_trips: AtomicU64,
}

impl Counters {
    pub(super) fn count(&self, purpose: Purpose) {
        let counter = match purpose {
            Purpose::Work => &self.work,
            Purpose::Heartbeat => &self.heartbeats,
            Purpose::Claim => &self.claims,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> StatementCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatementCounts {
            work: read(&self.work),
            heartbeats: read(&self.heartbeats),
            claims: read(&self.claims),
            round_trips: read(&self.round_trips),
        }
    }
}
