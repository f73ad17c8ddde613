//! Rules about agents: versions of their protocol, when one is connected, what of their reports is kept (agent 2).

mod connection;
mod lifecycle;
mod monitor;
mod reports;

pub use self::connection::{ConnectionFacts, ConnectionStatus, DISCONNECTED_AFTER};
pub use self::lifecycle::LifecycleState;
pub use self::monitor::{MonitorState, Sample, is_exceeded};
pub use self::reports::{
    MAX_LINE_BYTES, MAX_METADATA_BYTES, MAX_METADATA_CALL_BYTES, bounded_metadata, is_semantic_version,
    split_line,
};

use crate::protocol::{self, ApiVersion};

/// The protocol of agents that this build speaks; clients of the overlay network have the same numbers.
pub const API: ApiVersion = ApiVersion { major: 2, minor: 7 };
/// The version of an agent that names none.
const DEFAULT_VERSION: &str = "2.0";

/// Checks the version that an agent asks for; empty counts as 2.0.
///
/// # Errors
/// Why it is not served.
pub fn accept_version(requested: &str) -> Result<ApiVersion, protocol::Error> {
    API.accept(if requested.is_empty() { DEFAULT_VERSION } else { requested })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_2_0_to_2_7_are_served() {
        assert_eq!(accept_version("").unwrap(), ApiVersion { major: 2, minor: 0 });
        for minor in 0..=7 {
            assert_eq!(accept_version(&format!("2.{minor}")).unwrap(), ApiVersion { major: 2, minor });
        }
        for bad in ["2.8", "1.0", "3.0", "2", "2.", "x", "2.0.0", "-2.0"] {
            assert!(accept_version(bad).is_err(), "{bad}");
        }
    }
}
