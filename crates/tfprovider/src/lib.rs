//! The `coder/coder` Terraform provider, served in process to the Terraform runs of a daemon's jobs.
//!
//! Terraform finds it through the variable `TF_REATTACH_PROVIDERS`: nothing is downloaded, no process is started, lock
//! files and version constraints of templates do not apply (terraform 6.4).
//!
//! An ordinary provider reads its inputs from its environment. Here one process serves several jobs at once, so the
//! environment belongs to the job: each job listens on a socket of its own, which costs a task and no process.
//!
//! ```no_run
//! # async fn job(variables: std::collections::BTreeMap<String, String>) -> Result<(), Box<dyn std::error::Error>> {
//! let provider = coder_tfprovider::ProviderServer::new(); // once per daemon
//! let listening = provider.listen("/run/session".as_ref(), "/run/session/work".as_ref(), variables.into())?; // once per job
//! let reattach = listening.reattach().to_string(); // TF_REATTACH_PROVIDERS of init, plan, apply, show and graph
//! listening.set_environment([("CODER_WORKSPACE_TRANSITION", "start")].into_iter().collect()); // the next step's
//! drop(listening); // closes the socket and removes it
//! # Ok(()) }
//! ```
//!
//! The same provider is an ordinary plugin too, for people who run Terraform by hand: [`PluginProcess`].
//!
//! # Comparison with the official provider
//!
//! Version 2.13.1 under Terraform 1.11.4, through the same templates:
//!
//! * `terraform providers schema -json`: every type, attribute and block with type, required, optional, computed,
//!   sensitive, nesting, minimum, maximum, deprecation and schema version. Equal, but for two attributes of later
//!   versions that templates of today use: `coder_env.merge_strategy` and `coder_devcontainer.subagent_id`.
//!   Descriptions are our own.
//! * Plans and states of `tests/it/templates/*.tf` over several steps each (create, keep, change, change back): changes
//!   with values, unknowns and replacement paths, drift, state, schema versions, sensitive marks. Equal; the recorded
//!   results are beside the templates, and `tests/it/golden.rs` checks them. The same holds for two thousand random
//!   resources and data sources over five steps each, made of literals, nulls, zeros, conditions and values that are
//!   known only after apply.
//! * Each provider keeps the state of the other without a change.
//! * Which values are refused, in which step, and where the error points: `tests/it/templates/refused_*.tf`, the rows of
//!   `parameter_rows.txt`, and four thousand blocks with random wrong values.
//!
//! The same values are refused, with these intended differences:
//!
//! * Rules over several values point at the value and not at the whole block, and so does a wrong default.
//! * An empty `resources_monitoring` block is refused at once; 2.13.1 accepts it at creation and refuses every plan
//!   after that. Removing the block replaces the agent; 2.13.1 ends with an error.
//! * Unknown keys of metadata do not count as equal.
//!
//! A provider of [`ProviderServer::with_local_agents`] has one type more, `coder_local_agent`.
//!
//! # Where to add a type
//!
//! One file in `resource` or `data`, and its line in the list in `mod.rs`.

mod check;
mod context;
mod convert;
mod cron;
mod data;
mod diagnostics;
mod environment;
#[expect(unreachable_pub, reason = "the generator makes everything public")]
mod generated {
    //! Messages of the plugin protocol, generated from `proto/tfplugin5.proto`.
    pub(crate) mod tfplugin5;
}
mod grpc;
mod local_agents;
mod msgpack;
mod mtls;
mod p521;
mod plan;
mod plugin;
mod process;
mod resource;
mod schema;
mod serve;
mod upgrade;
mod url_reference;
mod value;
mod zone;

/// The official version whose schemas and rules these are; a mirror offers this provider under it.
pub const VERSION: &str = "2.13.1";

pub use environment::Environment;
pub use local_agents::{BoxedFuture, LocalAgent, LocalAgents};
pub use process::{PluginProcess, StartError};
pub use serve::{Error, ProviderListener, ProviderServer};
