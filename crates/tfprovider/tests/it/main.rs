//! The provider as Terraform sees it, and the currency of its generated code.
#![expect(clippy::unwrap_used, reason = "tests")]

mod agent;
mod generated;
mod golden;
mod grpc;
mod isolation;
mod job;
mod local_agents;
mod offline;
mod parameter;
mod plugin;
mod refused;
mod rows;
mod sockets;
mod terraform;
