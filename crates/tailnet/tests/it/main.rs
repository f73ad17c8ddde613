//! Integration tests of the overlay network: whole relays, coordinators and nodes in memory, with faults between them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod coordinator;
mod corpus;
mod decoders;
mod faults;
mod go;
mod hostile;
mod mesh;
mod messages;
mod node;
mod peers;
mod relay;
mod rig;
mod rpc;
mod upgrade;
mod vectors;
