//! A shared bound on what all peers together make this process hold: bytes in flight, or anything else that is counted.
//! No holder may reserve more than what stays free, so that a new holder always finds room.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A bound for all holders together. Clones share it.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    total: usize,
    state: Mutex<BudgetState>,
    freed: Notify,
}

#[derive(Default)]
struct BudgetState {
    used: usize,
    /// The highest use since [`Budget::take_peak`] was called last.
    peak: usize,
    by_holder: HashMap<u128, usize>,
    next_id: u64,
    /// Reservations that wait to grow, the oldest first.
    waiting: BTreeSet<u64>,
    /// The one reservation that may exceed the bounds: without it, reservations that wait for each other would deadlock.
    exceeding: Option<u64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        // Every change is completed under one lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Budget {
    /// A budget of `total`.
    #[must_use]
    pub fn new(total: usize) -> Self {
        Self { shared: Arc::new(Shared { total, state: Mutex::default(), freed: Notify::new() }) }
    }

    /// The account of one holder: a user, a key, an address. Accounts with the same number count together.
    #[must_use]
    pub fn account(&self, holder: u128) -> Account {
        Account { shared: Arc::clone(&self.shared), holder, connection: None }
    }

    /// The amount reserved now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.shared.lock().used
    }

    /// The highest amount reserved at once since the last call.
    #[must_use]
    pub fn take_peak(&self) -> usize {
        let mut state = self.shared.lock();
        let used = state.used;
        std::mem::replace(&mut state.peak, used)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("total", &self.shared.total)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// One holder's part of a [`Budget`].
#[derive(Clone)]
pub struct Account {
    shared: Arc<Shared>,
    holder: u128,
    connection: Option<Arc<ConnectionLimit>>,
}

struct ConnectionLimit {
    limit: usize,
    used: AtomicUsize,
}

impl Account {
    /// The same holder's account for one connection, which may reserve at most `limit`.
    #[must_use]
    pub fn connection(&self, limit: usize) -> Self {
        let connection = ConnectionLimit { limit, used: AtomicUsize::new(0) };
        Self { connection: Some(Arc::new(connection)), ..self.clone() }
    }

    /// An empty reservation.
    #[must_use]
    pub fn reserve(&self) -> Reservation {
        let mut state = self.shared.lock();
        let id = state.next_id;
        state.next_id += 1;
        drop(state);
        Reservation { account: self.clone(), id, amount: 0 }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("total", &self.shared.total).finish_non_exhaustive()
    }
}

/// The amount that one request or message has reserved. Dropping it releases everything.
pub struct Reservation {
    account: Account,
    id: u64,
    amount: usize,
}

impl Reservation {
    #[must_use]
    pub const fn amount(&self) -> usize {
        self.amount
    }

    /// Another, empty reservation of the same account.
    #[must_use]
    pub fn sibling(&self) -> Self {
        self.account.reserve()
    }

    /// Waits until `to` is reserved in total. The oldest waiting reservation may exceed the bounds if no other does, so a
    /// wait ends once the reservations before it have ended.
    pub async fn grow(&mut self, to: usize) {
        if self.try_grow(to) {
            return;
        }
        let shared = Arc::clone(&self.account.shared);
        let _waiting = Waiting::begin(&shared, self.id);
        loop {
            let mut freed = pin!(shared.freed.notified());
            // Registered before the check, so that no release in between is missed.
            freed.as_mut().enable();
            if self.take(to) {
                return;
            }
            freed.await;
        }
    }

    /// Reserves `to` in total if that is possible now.
    pub fn try_grow(&mut self, to: usize) -> bool {
        to <= self.amount || self.take(to)
    }

    /// Reserves more. Only a reservation that waits can exceed the bounds.
    fn take(&mut self, to: usize) -> bool {
        let more = to - self.amount;
        let Account { shared, holder, connection } = &self.account;
        let mut state = shared.lock();
        let free = shared.total.saturating_sub(state.used);
        let own = state.by_holder.get(holder).copied().unwrap_or_default();
        let fits_connection = connection
            .as_ref()
            .is_none_or(|one| one.used.load(Ordering::Relaxed).saturating_add(more) <= one.limit);
        let fits = own.saturating_add(more) <= free && fits_connection;
        if !fits && state.exceeding != Some(self.id) {
            if state.exceeding.is_some() || state.waiting.first() != Some(&self.id) {
                return false;
            }
            state.exceeding = Some(self.id);
        }
        state.used = state.used.saturating_add(more);
        state.peak = state.peak.max(state.used);
        *state.by_holder.entry(*holder).or_default() += more;
        if let Some(connection) = connection {
            connection.used.fetch_add(more, Ordering::Relaxed);
        }
        self.amount = to;
        true
    }

    /// Releases what is reserved beyond `to`.
    pub fn shrink(&mut self, to: usize) {
        let less = self.amount.saturating_sub(to);
        if less == 0 {
            return;
        }
        self.amount = to;
        let Account { shared, holder, connection } = &self.account;
        let mut state = shared.lock();
        state.used -= less;
        if let Some(own) = state.by_holder.get_mut(holder) {
            *own -= less;
            if *own == 0 {
                state.by_holder.remove(holder);
            }
        }
        if let Some(connection) = connection {
            connection.used.fetch_sub(less, Ordering::Relaxed);
        }
        if to == 0 && state.exceeding == Some(self.id) {
            state.exceeding = None;
        }
        drop(state);
        shared.freed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("amount", &self.amount).finish_non_exhaustive()
    }
}

/// The place of a reservation in the queue; dropping it leaves the queue, however the wait ends.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Shared, id: u64) -> Self {
        shared.lock().waiting.insert(id);
        Self { shared, id }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.lock().waiting.remove(&self.id);
        self.shared.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_holder_reserves_at_most_what_stays_free() {
        let budget = Budget::new(120);
        let take = |holder: u128| {
            let mut reservation = budget.account(holder).reserve();
            while reservation.try_grow(reservation.amount() + 1) {}
            reservation
        };
        let first = take(1);
        assert_eq!(first.amount(), 60);
        assert_eq!(take(1).amount(), 0, "reservations of one holder count together");
        let second = take(2);
        assert_eq!(second.amount(), 30, "there is room for a new holder");
        assert_eq!(budget.used(), 90);
        drop((first, second));
        assert_eq!((budget.used(), budget.take_peak(), budget.take_peak()), (0, 90, 0));
        assert!(budget.shared.lock().by_holder.is_empty());
    }

    #[test]
    fn a_connection_has_its_own_limit() {
        let account = Budget::new(100).account(1);
        let connection = account.connection(10);
        let (mut first, mut second) = (connection.reserve(), connection.reserve());
        assert!(first.try_grow(6) && !second.try_grow(5) && second.try_grow(4));
        first.shrink(0);
        assert!(second.try_grow(10) && account.reserve().try_grow(20));
    }

    #[test]
    fn waiting_reservations_continue_one_by_one() {
        let account = Budget::new(20).account(1);
        let (mut first, mut second) = (account.reserve(), account.reserve());
        assert!(first.try_grow(5) && second.try_grow(5));
        let mut later = Box::pin(second.grow(15));
        first.grow(15).now_or_never().expect("the oldest that waits may exceed the bound");
        assert!(later.as_mut().now_or_never().is_none(), "one at a time");
        drop(first);
        later.now_or_never().expect("the bound is free again");
    }

    /// A second one may exceed the bounds only when the first is over, and then it is the oldest.
    #[test]
    fn reservations_that_wait_exceed_the_bounds_in_their_order() {
        let account = Budget::new(20).account(1);
        let [mut held, mut exceeding, mut older, mut newer, mut other] = [(); 5].map(|()| account.reserve());
        assert!(held.try_grow(5) && other.try_grow(5));
        exceeding.grow(10).now_or_never().expect("the first that waits");
        let (mut older_waits, mut newer_waits) = (Box::pin(older.grow(30)), Box::pin(newer.grow(30)));
        for step in 0..3 {
            assert!(older_waits.as_mut().now_or_never().is_none(), "step {step}");
            assert!(newer_waits.as_mut().now_or_never().is_none(), "step {step}");
            match step {
                // Neither the end of another nor a part of it is the end of what exceeds.
                0 => other.shrink(0),
                1 => exceeding.shrink(1),
                _ => exceeding.shrink(0),
            }
        }
        assert!(newer_waits.as_mut().now_or_never().is_none(), "the older one comes first");
        older_waits.now_or_never().expect("the older one");
        assert!(newer_waits.as_mut().now_or_never().is_none());
        drop(older);
        newer_waits.now_or_never().expect("the newer one");
    }

    #[test]
    fn growing_to_less_changes_nothing() {
        let budget = Budget::new(20);
        let mut reservation = budget.account(1).reserve();
        assert!(reservation.try_grow(6) && reservation.try_grow(6) && reservation.try_grow(2));
        assert_eq!((reservation.amount(), budget.used()), (6, 6));
        reservation.shrink(9);
        assert_eq!((reservation.amount(), budget.used()), (6, 6));
        reservation.shrink(4);
        assert_eq!((reservation.amount(), budget.used()), (4, 4));
        assert!(!reservation.try_grow(21));
        assert_eq!((reservation.amount(), budget.used()), (4, 4));
    }

    #[test]
    fn a_dump_shows_amounts() {
        let budget = Budget::new(20);
        let account = budget.account(1);
        let mut reservation = account.reserve();
        assert!(reservation.try_grow(6));
        assert_eq!(
            format!("{budget:?} {account:?} {reservation:?}"),
            "Budget { total: 20, used: 6, .. } Account { total: 20, .. } Reservation { amount: 6, .. }"
        );
    }

    #[test]
    fn a_dropped_wait_leaves_the_queue() {
        let account = Budget::new(20).account(1);
        let (mut first, mut second, mut third) = (account.reserve(), account.reserve(), account.reserve());
        assert!(first.try_grow(10));
        assert!(second.grow(10).now_or_never().is_some(), "the one that may exceed");
        let mut dropped = account.reserve();
        {
            let mut wait = Box::pin(dropped.grow(10));
            assert!(wait.as_mut().now_or_never().is_none());
        }
        drop(second);
        assert!(third.grow(10).now_or_never().is_some());
    }
}
