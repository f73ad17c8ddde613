//! The connection between an agent and its server: streams of calls over yamux, as daemons have it (agent 2).
//!
//! The Agent service is answered here. Calls of the Tailnet service are handed to [`Service::tailnet`].

pub mod name;
mod redacted;
mod serve;
mod service;

pub use self::serve::{LIMITS, serve};
pub use self::service::Service;
