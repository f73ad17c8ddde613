//! What arrived and was not read yet, over all streams of a session. Each stream has its credit; this bounds their sum.

use std::time::Duration;

use tokio::time::Instant;

use crate::budget::Reservation;

/// Unread bytes of a session that need no reservation.
const UNRESERVED: usize = 64 << 10;
/// Reservations grow by so many bytes.
const STEP: usize = 256 << 10;
/// Most unread bytes of a session: the whole credit of 64 streams. Nothing is read from the connection while there are more.
const LIMIT: usize = 16 << 20;
/// How soon a session that got no reservation asks again.
const AGAIN: Duration = Duration::from_millis(50);

/// The count, and what is reserved for it.
#[derive(Default)]
pub(in crate::mux) struct Unread {
    bytes: usize,
    reservation: Option<Reservation>,
    /// Reading is held back.
    held_back: bool,
    /// When to ask for a reservation again.
    again_at: Option<Instant>,
}

impl Unread {
    pub(super) fn new(reservation: Option<Reservation>) -> Self {
        Self { reservation, ..Self::default() }
    }

    pub(in crate::mux) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn arrived(&mut self, count: usize) {
        self.bytes += count;
    }

    /// Counts bytes that were read or thrown away; says whether reading was held back, and may go on.
    pub(super) fn gone(&mut self, count: usize) -> bool {
        self.bytes -= count;
        if self.bytes <= UNRESERVED
            && let Some(reservation) = &mut self.reservation
        {
            reservation.shrink(0);
        }
        std::mem::take(&mut self.held_back)
    }

    /// Whether nothing may be read now.
    pub(super) fn is_full(&mut self) -> bool {
        let has_room = match &mut self.reservation {
            _ if self.bytes <= UNRESERVED => true,
            _ if self.bytes >= LIMIT => false,
            None => true,
            Some(reservation) => {
                let fits = reservation.try_grow(self.bytes.next_multiple_of(STEP));
                self.again_at = (!fits).then(|| Instant::now() + AGAIN);
                fits
            }
        };
        self.held_back = !has_room;
        !has_room
    }

    /// When there is something to look at again.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.again_at
    }

    /// Says whether that time has come.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }
}
