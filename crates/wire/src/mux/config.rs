//! Limits and constants of the multiplexer.

use std::time::Duration;

/// Credit of each direction of a new stream, in bytes; never enlarged (wire-protocol 2.2).
pub const STREAM_WINDOW: u32 = 256 << 10;

/// Longest time for queued frames, and for the closing handshake, when a session ends.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Limits of a session. The defaults are those of the official peers (wire-protocol 2.2).
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Time between keepalive pings.
    pub keepalive_interval: Duration,
    /// Time in which a ping must be answered, or anything else must arrive.
    pub keepalive_timeout: Duration,
    /// Time in which the peer must acknowledge a stream we open; the session ends without.
    pub open_timeout: Duration,
    /// Time a stream may stay closed on our side only; then it is dropped.
    pub close_timeout: Duration,
    /// Streams of the peer that may wait for [`Session::accept`]; further ones are refused.
    pub accept_backlog: usize,
    /// Streams that may exist at once, in both directions together.
    pub max_streams: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(75),
            close_timeout: Duration::from_secs(300),
            accept_backlog: 256,
            max_streams: 1024,
        }
    }
}
