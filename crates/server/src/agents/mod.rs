//! Agents that run in workspaces: who may connect, their connections, and what they report (agent 1.5, 2). Calls of the overlay
//! network on the same connection are answered by `network/tailnet_service.rs`.
//!
//! | file | what it does |
//! | --- | --- |
//! | `authenticate.rs` | finds the agent of a request by its token |
//! | `connection.rs` | one connection from its beginning to its end |
//! | `connected_agents.rs` | the agents that are connected to this process |
//! | `session.rs` | one connected agent, as its calls see it |
//! | `service.rs` | lists the calls; each report has a file of its own in `reports/` |
//! | `manifest.rs` | what an agent has to run |
//! | `pending.rs` | reports that are written together, once a second |
//! | `pace.rs` | how many calls one agent may make |

pub mod authenticate;
pub mod connected_agents;
pub mod connection;
mod manifest;
mod pace;
pub mod pending;
pub mod reports;
mod service;
mod session;
