//! The lifecycle of an agent, as it reports it (agent 2.5).

/// A state; the agent only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LifecycleState {
    /// Nothing was reported yet.
    Created,
    /// Start scripts run.
    Starting,
    /// A start script ran out of time.
    StartTimeout,
    /// A start script failed.
    StartError,
    /// All start scripts have ended well.
    Ready,
    /// The agent is being closed.
    ShuttingDown,
    /// A stop script ran out of time.
    ShutdownTimeout,
    /// A stop script failed.
    ShutdownError,
    /// All stop scripts have ended well.
    Off,
}

impl LifecycleState {
    /// The word used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::StartTimeout => "start_timeout",
            Self::StartError => "start_error",
            Self::Ready => "ready",
            Self::ShuttingDown => "shutting_down",
            Self::ShutdownTimeout => "shutdown_timeout",
            Self::ShutdownError => "shutdown_error",
            Self::Off => "off",
        }
    }

    /// Whether the start scripts have ended with it.
    #[must_use]
    pub const fn ends_start(self) -> bool {
        matches!(self, Self::Ready | Self::StartTimeout | Self::StartError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order in which an agent passes through them.
    #[test]
    fn every_state_has_its_word() {
        use LifecycleState::{
            Created, Off, Ready, ShutdownError, ShutdownTimeout, ShuttingDown, StartError, StartTimeout,
            Starting,
        };
        let words = [
            (Created, "created"),
            (Starting, "starting"),
            (StartTimeout, "start_timeout"),
            (StartError, "start_error"),
            (Ready, "ready"),
            (ShuttingDown, "shutting_down"),
            (ShutdownTimeout, "shutdown_timeout"),
            (ShutdownError, "shutdown_error"),
            (Off, "off"),
        ];
        assert!(words.is_sorted_by_key(|(state, _)| *state));
        for (state, word) in words {
            assert_eq!(state.as_str(), word);
        }
    }

    #[test]
    fn the_start_ends_well_with_an_error_or_out_of_time() {
        use LifecycleState::{
            Created, Off, Ready, ShutdownError, ShutdownTimeout, ShuttingDown, StartError, StartTimeout,
            Starting,
        };
        for state in [Ready, StartError, StartTimeout] {
            assert!(state.ends_start(), "{}", state.as_str());
        }
        for state in [Created, Starting, ShuttingDown, ShutdownTimeout, ShutdownError, Off] {
            assert!(!state.ends_start(), "{}", state.as_str());
        }
    }
}
