//! Tests of the HTTP contract and of the client against small servers on this machine.
#![recursion_limit = "256"]
#![expect(clippy::unwrap_used, reason = "tests")]

mod client;
mod contract;
mod corpus;
mod decoders;
