//! The control plane: HTTP, authentication, provisioning sessions and background tasks over one store.
//!
//! `Server::build` makes the shared context and the route table, `Server::run` listens until told to stop.
//!
//! Functions that read or write the store fail when the database fails. An `# Errors` section names only further errors.

pub mod agents;
pub mod apps;
pub mod audit;
pub mod authn;
pub mod builtin;
pub mod config;
pub mod context;
pub mod events;
pub mod external_auth;
pub mod git_ssh_key;
pub mod http;
pub mod lifecycle;
pub mod lookup;
pub mod markdown;
pub mod memory;
pub mod metrics;
pub mod network;
pub mod owners;
pub mod pages;
pub mod provisioning;
pub mod recovery;
mod retry;
pub mod router;
pub mod routes;
pub mod schedules;
pub mod server;
pub mod spool;
pub mod stored_file;
mod stored_key;
pub mod tasks;

pub use config::Config;
pub use context::{App, Build, Ctx};
pub use server::{Deps, Error, Handle, Server};
