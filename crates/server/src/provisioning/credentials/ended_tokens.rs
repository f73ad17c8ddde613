//! Users whose connections are checked next.

use std::collections::BTreeSet;
use std::time::Duration;

use coder_domain::ids::UserId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two checks. The first one after a pause is made at once.
const SHORTEST_PERIOD: Duration = Duration::from_millis(250);

/// The users whose connections are checked next, because a token of theirs ended. Each build replaces a token, so many are
/// checked with one statement.
#[derive(Debug, Default)]
pub struct EndedTokens {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    users: BTreeSet<UserId>,
    /// When the last check was due.
    last: Option<Instant>,
}

impl EndedTokens {
    /// Adds a user. Returns when the caller must check, or nothing when a check is to come.
    pub fn add(&self, user: UserId) -> Option<Instant> {
        let mut state = self.state.lock();
        let is_first = state.users.is_empty();
        state.users.insert(user);
        if !is_first {
            return None;
        }
        let now = Instant::now();
        let due = state.last.map_or(now, |last| now.max(last + SHORTEST_PERIOD));
        state.last = Some(due);
        Some(due)
    }

    /// Removes and returns them.
    pub fn take(&self) -> Vec<UserId> {
        std::mem::take(&mut self.state.lock().users).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_check_in_a_period_has_all_users() {
        let (ended, [one, two], start) =
            (EndedTokens::default(), [(); 2].map(|()| UserId::random()), Instant::now());
        assert_eq!(ended.add(one), Some(start));
        assert_eq!(ended.add(two), None);
        assert_eq!(ended.add(one), None);
        assert_eq!(BTreeSet::from_iter(ended.take()), BTreeSet::from([one, two]));
        // A user who is added while a check runs is in the next one.
        let next = ended.add(one).unwrap();
        assert_eq!(next, start + SHORTEST_PERIOD);
        sleep_until(next).await;
        assert_eq!(ended.take(), [one]);
        advance(2 * SHORTEST_PERIOD).await;
        assert_eq!(ended.add(two), Some(Instant::now()));
    }
}
