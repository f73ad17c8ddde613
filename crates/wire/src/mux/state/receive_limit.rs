//! The bound on received and unread bytes of all streams of a session. Each stream has its credit; this bounds the sum.

use std::time::Duration;

use tokio::time::Instant;

use crate::budget::Reservation;

/// Unread bytes of a session that need no reservation.
const UNRESERVED: usize = 64 << 10;
/// Reservations grow in steps of this many bytes.
const RESERVATION_STEP: usize = 256 << 10;
/// Most unread bytes of a session: the whole credit of 64 streams. Nothing is read from the connection while there are more.
const MAX_UNREAD: usize = 16 << 20;
/// When a session that got no reservation tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Counts unread bytes, and reserves memory for them.
#[derive(Default)]
pub(in crate::mux) struct ReceiveLimit {
    bytes: usize,
    reservation: Option<Reservation>,
    /// The connection is not read at the moment.
    paused: bool,
    /// When to try the reservation again.
    retry_at: Option<Instant>,
}

impl ReceiveLimit {
    pub(super) fn new(reservation: Option<Reservation>) -> Self {
        Self { reservation, ..Self::default() }
    }

    pub(in crate::mux) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn add(&mut self, count: usize) {
        self.bytes += count;
    }

    /// Counts bytes as read or discarded. True when the connection was not read and may be read again.
    pub(super) fn remove(&mut self, count: usize) -> bool {
        self.bytes -= count;
        if self.bytes <= UNRESERVED
            && let Some(reservation) = &mut self.reservation
        {
            reservation.shrink(0);
        }
        std::mem::take(&mut self.paused)
    }

    /// Whether the connection must not be read now.
    pub(super) fn is_full(&mut self) -> bool {
        let has_room = match &mut self.reservation {
            _ if self.bytes <= UNRESERVED => true,
            _ if self.bytes >= MAX_UNREAD => false,
            None => true,
            Some(reservation) => {
                let fits = reservation.try_grow(self.bytes.next_multiple_of(RESERVATION_STEP));
                self.retry_at = (!fits).then(|| Instant::now() + RETRY_INTERVAL);
                fits
            }
        };
        self.paused = !has_room;
        !has_room
    }

    /// The next instant at which [`expire`](Self::expire) has something to do.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Forgets that instant when it is over. What the timer wakes asks [`is_full`](Self::is_full) again.
    pub(super) fn expire(&mut self, now: Instant) {
        self.retry_at.take_if(|at| *at <= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[tokio::test(start_paused = true)]
    async fn a_session_that_got_no_memory_tries_again() {
        let budget = Budget::new(4 * RESERVATION_STEP);
        let mut other = budget.account(1).reserve();
        other.grow(4 * RESERVATION_STEP).await;
        let mut limit = ReceiveLimit::new(Some(budget.account(2).reserve()));
        limit.add(UNRESERVED);
        assert!(!limit.is_full() && limit.deadline().is_none(), "so many bytes cost nothing");
        assert_eq!(limit.bytes(), UNRESERVED);
        limit.add(1);
        assert!(limit.is_full());
        let at = limit.deadline().unwrap();
        assert_eq!(at, Instant::now() + RETRY_INTERVAL);
        limit.expire(at - Duration::from_millis(1));
        assert_eq!(limit.deadline(), Some(at));
        drop(other);
        limit.expire(at);
        assert_eq!(limit.deadline(), None);
        assert!(!limit.is_full() && limit.deadline().is_none());
        assert_eq!(budget.used(), RESERVATION_STEP);
        limit.add(1);
        assert!(!limit.remove(1), "nothing waits for these bytes");
        assert_eq!(budget.used(), RESERVATION_STEP, "there are others");
        assert!(!limit.remove(1));
        assert_eq!(budget.used(), 0);
        limit.add(MAX_UNREAD);
        assert!(limit.is_full());
        assert!(limit.remove(MAX_UNREAD), "the connection may be read again");
        assert!(!limit.is_full());
    }

    #[test]
    fn a_session_without_accounting_has_the_bound_only() {
        let mut limit = ReceiveLimit::new(None);
        limit.add(MAX_UNREAD - 1);
        assert!(!limit.is_full());
        limit.add(1);
        assert!(limit.is_full() && limit.deadline().is_none());
        assert!(limit.remove(1) && !limit.is_full());
    }
}
