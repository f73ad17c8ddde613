//! The fair order of waiting jobs, as a pure structure: the rule that the store's claim implements and is tested
//! against.
//!
//! # The rule
//!
//! Waiting jobs stand in *lines*: one per set of requirements (organization, provisioner type, tag set), initiator,
//! and class (people, automatic). A line has a *turn*, a number that only grows.
//!
//! 1. When a job arrives and its line is empty, the line gets a fresh turn, greater than every turn given before:
//!    whoever comes new goes behind everybody who waits already, and before each of them has been served twice.
//! 2. A daemon that asks sees the lines it may serve. People's lines hide automatic ones. Of the visible lines the
//!    one with the least turn says whose turn it is.
//! 3. That initiator's oldest job in the visible lines is handed out (by creation, then by id).
//! 4. All visible lines of that initiator get one fresh turn: the initiator goes to the back for this daemon, whatever
//!    tags the next jobs have.
//!
//! A job that leaves without being handed out (canceled, reaped) changes no turn.
//!
//! # What follows
//!
//! * **Share.** Let k initiators, a new one included, have jobs of one class that the same daemons may take. Before
//!   the new one's first job starts, each other one is served at most once, since step 4 puts it behind. So that job
//!   starts within k acquisitions. The length of anybody's line does not matter.
//! * **No starvation** within a class. A line that waits keeps its turn until its initiator is served by a daemon that
//!   could have served it; every other initiator passes it at most once. And each time its initiator is served, an
//!   older job of the same initiator goes, of which there are finitely many.
//! * **Older first** within an initiator, among the jobs that the asking daemon may take.
//! * **Organizations** share no daemon, so none can push another's jobs back; sets of requirements name the
//!   organization.
//!
//! # In SQL
//!
//! A table of lines (organization, provisioner, tag set, automatic, initiator as key; turn) with an index on
//! (organization, provisioner, tag set, automatic, turn). Enqueue: insert the line with a fresh turn, on conflict update
//! the turn only where no waiting job stands in the line. Claim: for each wanted tag set one look at the head of that
//! index (lines without a waiting job are skipped, and deleted in passing), the least of these names the initiator;
//! one look per wanted set into the waiting jobs by (organization, tag set, provisioner, automatic, initiator, created,
//! id) finds the oldest; one update moves the initiator's lines. No step reads more rows than there are wanted sets,
//! however many jobs wait. A fresh turn is `max(turn) + 1`, or the clock's microseconds where that is greater, so that a
//! clock that jumps back changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::ids::{JobId, UserId};

/// A waiting job. `S` names a set of requirements: whatever distinguishes the jobs that a daemon may take from those
/// that it may not, for example organization, provisioner type and tag set id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job<S> {
    /// Its id.
    pub id: JobId,
    /// Who caused it.
    pub initiator: UserId,
    /// What it needs.
    pub set: S,
    /// Whether it queues after people's jobs ([`super::is_automatic`]).
    pub automatic: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Identifies a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line<S> {
    /// People's lines sort first.
    pub automatic: bool,
    /// Whose jobs stand in it.
    pub initiator: UserId,
    /// What these need.
    pub set: S,
}

#[derive(Clone, Debug)]
struct Standing {
    turn: u64,
    /// Oldest first; never empty.
    jobs: BTreeSet<(Timestamp, JobId)>,
}

/// What an initiator has in a queue: the jobs of one class that certain daemons may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The least turn of the initiator's lines there.
    pub turn: u64,
    /// How many jobs stand in them.
    pub waiting: u64,
}

/// The place, from 1, of the `rank`-th oldest job of an initiator whose turn is `turn`, beside the shares of all others:
/// the turns go round, so that before it each other one is served as often as this initiator is, and once more where
/// its turn comes first, as long as it has jobs. For automatic work add the number of people's jobs.
///
/// Costs a look at each initiator, not at each job.
#[must_use]
pub fn position(turn: u64, rank: u64, others: impl IntoIterator<Item = Share>) -> u64 {
    let served =
        |other: Share| other.waiting.min(if other.turn < turn { rank } else { rank.saturating_sub(1) });
    rank + others.into_iter().map(served).sum::<u64>()
}

/// All waiting jobs in their fair order.
///
/// Invariant: a line in the map has at least one job.
#[derive(Clone, Debug)]
pub struct Fair<S> {
    lines: BTreeMap<Line<S>, Standing>,
    /// The greatest turn given so far.
    last_turn: u64,
}

impl<S> Default for Fair<S> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), last_turn: 0 }
    }
}

impl<S: Copy + Ord> Fair<S> {
    fn fresh_turn(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    /// Adds a waiting job (step 1).
    pub fn enqueue(&mut self, job: &Job<S>) {
        let line = Line { automatic: job.automatic, initiator: job.initiator, set: job.set };
        if !self.lines.contains_key(&line) {
            let standing = Standing { turn: self.fresh_turn(), jobs: BTreeSet::new() };
            self.lines.insert(line, standing);
        }
        if let Some(standing) = self.lines.get_mut(&line) {
            standing.jobs.insert((job.created_at, job.id));
        }
    }

    /// Hands out the next job for a daemon that may take jobs of these sets (steps 2 to 4).
    pub fn acquire(&mut self, may_take: impl Fn(S) -> bool) -> Option<JobId> {
        let (taken, turn) = self.peek(&may_take)?;
        self.remove(taken);
        let fresh = self.fresh_turn();
        let moved = |line: &Line<S>| {
            (line.automatic, line.initiator) == (turn.automatic, turn.initiator) && may_take(line.set)
        };
        self.lines.iter_mut().filter(|(line, _)| moved(line)).for_each(|(_, standing)| standing.turn = fresh);
        Some(taken)
    }

    /// The job that such a daemon would get, and the line whose turn it is.
    fn peek(&self, may_take: &impl Fn(S) -> bool) -> Option<(JobId, Line<S>)> {
        let visible = || self.lines.iter().filter(|(line, _)| may_take(line.set));
        let first = |(line, standing): &(&Line<S>, &Standing)| (line.automatic, standing.turn, **line);
        let (turn, _) = visible().min_by_key(first)?;
        let own = visible()
            .filter(|(line, _)| (line.automatic, line.initiator) == (turn.automatic, turn.initiator));
        let oldest = own.filter_map(|(_, standing)| standing.jobs.first()).min()?;
        Some((oldest.1, *turn))
    }

    /// A job was canceled or reaped while it waited; says whether it did wait.
    pub fn remove(&mut self, job: JobId) -> bool {
        let mut found = false;
        self.lines.retain(|_, standing| {
            if !found {
                let before = standing.jobs.len();
                standing.jobs.retain(|(_, id)| *id != job);
                found = standing.jobs.len() < before;
            }
            !standing.jobs.is_empty()
        });
        found
    }

    /// The place of a job, from 1, and the length of the queue, as daemons that may take these sets would empty it if
    /// nobody else came. None when it does not wait there.
    #[must_use]
    pub fn place(&self, job: JobId, may_take: impl Fn(S) -> bool) -> Option<(u64, u64)> {
        let visible = || self.lines.iter().filter(|(line, _)| may_take(line.set));
        let (own, age) = visible().find_map(|(line, standing)| {
            standing.jobs.iter().find(|(_, id)| *id == job).map(|age| (*line, *age))
        })?;
        let mut shares: BTreeMap<UserId, Share> = BTreeMap::new();
        let (mut rank, mut people, mut size) = (1, 0, 0);
        for (line, standing) in visible() {
            let waiting = standing.jobs.len() as u64;
            size += waiting;
            if line.automatic != own.automatic {
                people += if line.automatic { 0 } else { waiting };
                continue;
            }
            if line.initiator == own.initiator {
                rank += standing.jobs.range(..age).count() as u64;
            }
            let share = shares.entry(line.initiator).or_insert(Share { turn: u64::MAX, waiting: 0 });
            share.turn = share.turn.min(standing.turn);
            share.waiting += waiting;
        }
        let turn = shares.remove(&own.initiator)?.turn;
        Some((people + position(turn, rank, shares.into_values()), size))
    }

    /// How many jobs wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.values().map(|standing| standing.jobs.len()).sum()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}
