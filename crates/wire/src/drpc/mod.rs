//! Calls over a byte stream: DRPC framing and the state of a call (wire-protocol 3).
//!
//! `frame` is the packet codec, `stream` reads and writes packets, `client` and `server` are the two ends of a call.

pub mod client;
mod error;
pub mod frame;
pub mod server;
mod stream;

pub use self::error::{Error, Status};

/// Largest message in bytes, checked by whoever receives it and before it is sent.
pub const MESSAGE: usize = 4 << 20;
