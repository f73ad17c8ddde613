//! Integration tests of the wire crate: captured bytes, both ends in memory, and the Go libraries in both directions.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests, which print what they skip")]

mod agent_messages;
mod calls;
mod corpus;
mod decoders;
mod extensions;
mod faults;
mod go_client;
mod go_mux;
mod go_server;
mod growth;
mod handshake;
mod harness;
mod memory;
mod mux;
mod socket;
mod vectors;
