//! Integration tests of the agent: a whole agent against a server, a relay and users in memory, with real processes.
#![expect(clippy::unwrap_used, reason = "tests")]

mod connection;
mod forwards;
mod http_transport;
mod openssh;
mod reconnecting_pty;
mod rig;
mod scripts;
mod ssh;
mod ssh_rig;
