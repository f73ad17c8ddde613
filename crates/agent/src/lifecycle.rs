//! The states that the agent goes through, each reported once and in order (agent 2.5).

use std::sync::Arc;

use coder_domain::clock::Clock;
use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::calls::{Calls, timestamp};

pub(crate) use coder_wire::messages::coder::agent::v2::lifecycle::State;

/// The states of the agent, with the number of those that the server knows.
pub(crate) struct Lifecycle {
    clock: Arc<dyn Clock>,
    states: watch::Sender<Vec<(State, Timestamp)>>,
    /// How many of them the server knows.
    reported: watch::Sender<usize>,
}

impl Lifecycle {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, states: watch::Sender::default(), reported: watch::Sender::default() }
    }

    /// Goes on to a state. The agent never goes back.
    pub(crate) fn set(&self, state: State) {
        let at = self.clock.now();
        let changed = self.states.send_if_modified(|states| {
            let is_later = states.last().is_none_or(|(last, _)| state > *last);
            if is_later {
                states.push((state, at));
            }
            is_later
        });
        if changed {
            tracing::info!(state = state.as_str_name(), "the agent's state changed");
        }
    }

    /// Reports over one connection until it fails. It goes on where the connection before ended.
    pub(crate) async fn report(&self, calls: &Calls) -> Result<(), Error> {
        let mut changes = self.states.subscribe();
        loop {
            let next = changes.borrow_and_update().get(*self.reported.borrow()).copied();
            match next {
                Some((state, at)) => {
                    let lifecycle =
                        messages::Lifecycle { state: state.into(), changed_at: Some(timestamp(at)) };
                    calls.lifecycle(messages::UpdateLifecycleRequest { lifecycle: Some(lifecycle) }).await?;
                    self.reported.send_modify(|reported| *reported += 1);
                }
                // The sender is part of self.
                None => drop(changes.changed().await),
            }
        }
    }

    /// Waits until the server knows every state.
    pub(crate) async fn all_reported(&self) {
        let mut reported = self.reported.subscribe();
        // The sender is part of self.
        let _ = reported.wait_for(|reported| *reported == self.states.borrow().len()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_only_go_forward() {
        let lifecycle = Lifecycle::new(Arc::new(coder_domain::clock::SystemClock));
        for state in [
            State::Starting,
            State::Ready,
            State::Starting,
            State::StartError,
            State::ShuttingDown,
            State::Ready,
        ] {
            lifecycle.set(state);
        }
        let states: Vec<_> = lifecycle.states.borrow().iter().map(|(state, _)| *state).collect();
        assert_eq!(states, [State::Starting, State::Ready, State::ShuttingDown]);
    }
}
