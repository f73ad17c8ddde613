//! The agent that runs in a workspace: scripts, SSH, terminals, ports, and reports to the server.
//!
//! `agent` is the life of the process, `connection` what happens on one connection to the server, `network` the node in the
//! overlay network and its ports. `state` is what they have in common. It runs in other people's images with their rights: nothing of a
//! user's is trusted, and whatever a script or a client can fill has a bound.

mod agent;
mod app_health;
mod append_file;
mod calls;
mod config;
mod connection;
mod connection_reports;
mod editor_settings;
mod environment;
mod expand;
mod forward;
mod http_api;
mod lifecycle;
mod listening_ports;
mod log_queue;
mod manifest;
mod metadata;
mod network;
mod process;
mod pty;
pub mod relay;
pub mod resources;
mod scripts;
mod sessions;
mod shell;
mod speed_test;
mod ssh;
mod state;
mod stats;
mod terminal_output;
mod time_zone;
mod transport;
mod user;

pub use agent::Agent;
pub use append_file::append_file;
pub use config::{Config, Subsystem};
pub use scripts::data_dir::script_data_dir;
pub use transport::{BoxedFuture, HttpTransport, Transport};
pub use user::User;
