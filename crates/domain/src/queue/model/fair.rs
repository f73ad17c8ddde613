//! The fair order of waiting jobs as a pure structure. The store's claim implements the same rule in SQL.
//!
//! # The rule
//!
//! Waiting jobs are in *sub-queues*: one for each set of requirements (organization, provisioner type, tag set),
//! initiator, and class (requested by people, automatic). A sub-queue has a *turn*, a number that only grows.
//!
//! 1. When a job is added to an empty sub-queue, the sub-queue gets a fresh turn, greater than every turn given before.
//!    A new initiator is behind all others that wait, but no other one is served twice before it.
//! 2. A daemon sees the sub-queues whose jobs it may run. Those of people hide automatic ones. Of the visible ones the
//!    least turn decides which initiator is next.
//! 3. The oldest job of that initiator in the visible sub-queues is handed out (by creation, then by id).
//! 4. All visible sub-queues of that initiator get one fresh turn: the initiator is last for this daemon, whatever tags
//!    the next jobs have.
//!
//! A job that leaves the queue otherwise (canceled, ended by the reaper) changes no turn.
//!
//! # What follows
//!
//! * **Share.** Let k initiators, a new one included, have jobs of one class that the same daemons may run. Before the
//!   first job of the new one starts, each other one is served at most once, because step 4 puts it last. So that job
//!   starts within k acquisitions, however many jobs the others have.
//! * **No starvation** within a class. A sub-queue keeps its turn until its initiator is served by a daemon that could
//!   have served it; every other initiator overtakes it at most once. Each time its initiator is served, an older job of
//!   the same initiator is handed out, of which there are finitely many.
//! * **Older first** within an initiator, among the jobs that the asking daemon may run.
//! * **Organizations** share no daemon, so none can delay jobs of another. Requirements name the organization.
//!
//! # In SQL
//!
//! The table `queue_lines` has a row for each sub-queue (organization, provisioner, tag set, automatic, initiator as key;
//! turn) and an index on (organization, provisioner, tag set, automatic, turn). Enqueue: insert the row with a fresh turn,
//! on conflict update the turn only where no job of the sub-queue waits. Claim: for each tag set of the daemon one look at
//! the head of that index (rows without a waiting job are skipped, and deleted); the least of these names the initiator;
//! one look per tag set into the waiting jobs by (organization, tag set, provisioner, automatic, initiator, created, id)
//! finds the oldest; one update gives the initiator's rows a fresh turn. No step reads more rows than the daemon has tag
//! sets, however many jobs wait. A fresh turn is `max(turn) + 1`, or the clock's microseconds where that is greater, so
//! that a clock that jumps back changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::ids::{JobId, UserId};

/// A waiting job. `S` identifies a set of requirements, for example organization, provisioner type and tag set id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job<S> {
    pub id: JobId,
    /// The user who started it.
    pub initiator: UserId,
    /// What it needs.
    pub set: S,
    /// Whether it queues after people's jobs ([`crate::queue::is_automatic`]).
    pub automatic: bool,
    pub created_at: Timestamp,
}

/// Identifies a sub-queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubQueueKey<S> {
    /// False sorts first.
    pub automatic: bool,
    /// The user who started its jobs.
    pub initiator: UserId,
    /// What its jobs need.
    pub set: S,
}

#[derive(Clone, Debug)]
struct SubQueue {
    turn: u64,
    /// Oldest first; never empty.
    jobs: BTreeSet<(Timestamp, JobId)>,
}

/// The jobs of one initiator and class that certain daemons may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitiatorLoad {
    /// The least turn of their sub-queues.
    pub turn: u64,
    /// How many jobs wait in them.
    pub waiting: u64,
}

/// The position, from 1, of the `rank`-th oldest job of an initiator whose turn is `turn`, beside all other initiators.
/// Initiators are served in rounds: before that job each other initiator is served as often as this one, and once more
/// if its turn is lower, as long as it has jobs. For automatic work add the number of people's jobs.
///
/// The cost grows with the number of initiators, not of jobs.
#[must_use]
pub fn fair_position(turn: u64, rank: u64, others: impl IntoIterator<Item = InitiatorLoad>) -> u64 {
    let served = |other: InitiatorLoad| {
        other.waiting.min(if other.turn < turn { rank } else { rank.saturating_sub(1) })
    };
    rank + others.into_iter().map(served).sum::<u64>()
}

/// All waiting jobs in their fair order.
///
/// Invariant: a sub-queue in the map has at least one job.
#[derive(Clone, Debug)]
pub struct FairQueue<S> {
    sub_queues: BTreeMap<SubQueueKey<S>, SubQueue>,
    /// The greatest turn given so far.
    last_turn: u64,
}

impl<S> Default for FairQueue<S> {
    fn default() -> Self {
        Self { sub_queues: BTreeMap::new(), last_turn: 0 }
    }
}

impl<S: Copy + Ord> FairQueue<S> {
    fn fresh_turn(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    /// Adds a waiting job (step 1).
    pub fn enqueue(&mut self, job: &Job<S>) {
        let key = SubQueueKey { automatic: job.automatic, initiator: job.initiator, set: job.set };
        if !self.sub_queues.contains_key(&key) {
            let sub_queue = SubQueue { turn: self.fresh_turn(), jobs: BTreeSet::new() };
            self.sub_queues.insert(key, sub_queue);
        }
        if let Some(sub_queue) = self.sub_queues.get_mut(&key) {
            sub_queue.jobs.insert((job.created_at, job.id));
        }
    }

    /// Hands out the next job for a daemon that may run jobs of these sets (steps 2 to 4).
    pub fn acquire(&mut self, may_run: impl Fn(S) -> bool) -> Option<JobId> {
        let (acquired, turn) = self.peek(&may_run)?;
        self.remove(acquired);
        let fresh = self.fresh_turn();
        let moved = |key: &SubQueueKey<S>| {
            (key.automatic, key.initiator) == (turn.automatic, turn.initiator) && may_run(key.set)
        };
        self.sub_queues
            .iter_mut()
            .filter(|(key, _)| moved(key))
            .for_each(|(_, sub_queue)| sub_queue.turn = fresh);
        Some(acquired)
    }

    /// The job that such a daemon would get, and the sub-queue with the least turn.
    fn peek(&self, may_run: &impl Fn(S) -> bool) -> Option<(JobId, SubQueueKey<S>)> {
        let visible = || self.sub_queues.iter().filter(|(key, _)| may_run(key.set));
        let first = |(key, sub_queue): &(&SubQueueKey<S>, &SubQueue)| (key.automatic, sub_queue.turn, **key);
        let (turn, _) = visible().min_by_key(first)?;
        let own =
            visible().filter(|(key, _)| (key.automatic, key.initiator) == (turn.automatic, turn.initiator));
        let oldest = own.filter_map(|(_, sub_queue)| sub_queue.jobs.first()).min()?;
        Some((oldest.1, *turn))
    }

    /// Removes a job that was canceled or reaped; returns whether it waited.
    pub fn remove(&mut self, job: JobId) -> bool {
        let mut found = false;
        self.sub_queues.retain(|_, sub_queue| {
            if !found {
                let before = sub_queue.jobs.len();
                sub_queue.jobs.retain(|(_, id)| *id != job);
                found = sub_queue.jobs.len() < before;
            }
            !sub_queue.jobs.is_empty()
        });
        found
    }

    /// The position of a job, from 1, and the length of the queue, if daemons that may run these sets emptied it and no
    /// job was added. None when the job does not wait there.
    #[must_use]
    pub fn position(&self, job: JobId, may_run: impl Fn(S) -> bool) -> Option<(u64, u64)> {
        let visible = || self.sub_queues.iter().filter(|(key, _)| may_run(key.set));
        let (own, age) = visible().find_map(|(key, sub_queue)| {
            sub_queue.jobs.iter().find(|(_, id)| *id == job).map(|age| (*key, *age))
        })?;
        let mut loads: BTreeMap<UserId, InitiatorLoad> = BTreeMap::new();
        let (mut rank, mut people, mut size) = (1, 0, 0);
        for (key, sub_queue) in visible() {
            let waiting = sub_queue.jobs.len() as u64;
            size += waiting;
            if key.automatic != own.automatic {
                people += if key.automatic { 0 } else { waiting };
                continue;
            }
            if key.initiator == own.initiator {
                rank += sub_queue.jobs.range(..age).count() as u64;
            }
            let load = loads.entry(key.initiator).or_insert(InitiatorLoad { turn: u64::MAX, waiting: 0 });
            load.turn = load.turn.min(sub_queue.turn);
            load.waiting += waiting;
        }
        let turn = loads.remove(&own.initiator)?.turn;
        Some((people + fair_position(turn, rank, loads.into_values()), size))
    }

    /// The number of waiting jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sub_queues.values().map(|sub_queue| sub_queue.jobs.len()).sum()
    }

    /// Whether no job waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sub_queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initiator_with_a_lower_turn_is_served_once_more_while_it_has_jobs() {
        let position = |turn, waiting| fair_position(5, 3, [InitiatorLoad { turn, waiting }]);
        assert_eq!((position(4, 9), position(5, 9), position(6, 9)), (3 + 3, 3 + 2, 3 + 2));
        assert_eq!((position(4, 1), position(6, 1), position(4, 0)), (3 + 1, 3 + 1, 3));
        assert_eq!(fair_position(5, 3, []), 3);
        let both = [4, 6].map(|turn| InitiatorLoad { turn, waiting: 9 });
        assert_eq!(fair_position(5, 1, both), 1 + 1, "the first job waits for none with a higher turn");
    }
}
