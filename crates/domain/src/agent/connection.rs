//! Whether an agent is connected (agent 2.10).

use jiff::{SignedDuration, Timestamp};

/// An agent without contact for so long is disconnected.
pub const DISCONNECTED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// What is known of an agent's connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionFacts {
    /// When the agent was made.
    pub created_at: Timestamp,
    /// The first contact.
    pub first_connected_at: Option<Timestamp>,
    /// The last contact.
    pub last_connected_at: Option<Timestamp>,
    /// The end of a connection.
    pub disconnected_at: Option<Timestamp>,
    /// Time for the first contact in seconds; 0 for any.
    pub connection_timeout_seconds: i64,
}

/// The status of an agent's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStatus {
    /// It has not connected yet.
    Connecting,
    /// It is connected.
    Connected,
    /// It was connected.
    Disconnected,
    /// It has not connected in time.
    TimedOut,
}

impl ConnectionFacts {
    /// The status, and when the agent was disconnected as far as that is shown.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> (ConnectionStatus, Option<Timestamp>) {
        let Some(last) = self.last_connected_at.filter(|_| self.first_connected_at.is_some()) else {
            let given = self.connection_timeout_seconds;
            let late = given > 0 && now.duration_since(self.created_at) > SignedDuration::from_secs(given);
            let status = if late { ConnectionStatus::TimedOut } else { ConnectionStatus::Connecting };
            return (status, None);
        };
        if self.disconnected_at.is_some_and(|at| at >= last) {
            (ConnectionStatus::Disconnected, self.disconnected_at)
        } else if now.duration_since(last) > DISCONNECTED_AFTER {
            // Nobody has noted the end, for example because the server was killed.
            (ConnectionStatus::Disconnected, Some(last))
        } else {
            (ConnectionStatus::Connected, self.disconnected_at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn facts(contacts: Option<(i64, i64)>, ended: Option<i64>, timeout: i64) -> ConnectionFacts {
        ConnectionFacts {
            created_at: at(0),
            first_connected_at: contacts.map(|(first, _)| at(first)),
            last_connected_at: contacts.map(|(_, last)| at(last)),
            disconnected_at: ended.map(at),
            connection_timeout_seconds: timeout,
        }
    }

    #[test]
    fn status_table() {
        use ConnectionStatus::{Connected, Connecting, Disconnected, TimedOut};
        let cases = [
            (facts(None, None, 120), 120, (Connecting, None)),
            (facts(None, None, 120), 121, (TimedOut, None)),
            (facts(None, None, 0), 100_000, (Connecting, None)),
            (facts(Some((1, 10)), None, 120), 40, (Connected, None)),
            (facts(Some((1, 10)), None, 120), 41, (Disconnected, Some(at(10)))),
            (facts(Some((1, 10)), Some(10), 120), 11, (Disconnected, Some(at(10)))),
            (facts(Some((1, 10)), Some(9), 120), 11, (Connected, Some(at(9)))),
            (facts(Some((1, 10)), Some(12), 120), 500, (Disconnected, Some(at(12)))),
            // The clock was set back.
            (facts(Some((1, 10)), None, 120), -5000, (Connected, None)),
        ];
        for (facts, now, want) in cases {
            assert_eq!(facts.status(at(now)), want, "{facts:?} at {now}");
        }
    }
}
