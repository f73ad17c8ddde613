//! A real server on loopback and scripted daemons that join it over real WebSockets.
#![expect(clippy::unwrap_used, reason = "tests")]

mod counters;
mod faults;
mod flow;
mod followers;
mod garbage;
mod hostile;
mod joins;
mod network;
mod proxy;
mod several_servers;
