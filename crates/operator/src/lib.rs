//! The Kubernetes operator: keeps pools of provisioner daemons as `CoderProvisioner` resources describe them.
//!
//! [`crd`] has the resources, [`rules`] decides without I/O, [`objects`] renders, [`reconcile`] compares and corrects, and
//! [`queue`] reads what the servers have to do.

mod access;
mod apply;
mod consent;
mod context;
mod control_plane;
#[expect(unreachable_pub, reason = "the derive of a schema repeats the type inside a function")]
pub mod crd;
mod events;
mod external_scaler;
mod failure;
mod http_server;
mod leader;
mod metrics;
pub mod names;
pub mod objects;
mod queue;
mod reconcile;
pub mod rules;
mod run;
mod watch;

pub use leader::Election;
pub use run::{Config, connect, run};
