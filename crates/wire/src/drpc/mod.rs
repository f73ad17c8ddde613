//! Calls over a byte stream: DRPC framing and the state of a call (wire-protocol 3).
//!
//! `frame` is the packet codec, `packets` reads and writes them, `client` and `server` are the two ends of a call.

pub mod client;
mod error;
pub mod frame;
mod packets;
pub mod server;

pub use self::error::{Error, Status};

/// Largest message in bytes. Both sides check it: the sender before it sends, the receiver while it receives.
pub const MAX_MESSAGE_SIZE: usize = 4 << 20;
