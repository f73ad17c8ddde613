//! The managed resource types: one file each, and the list of them.

mod agent;
mod agent_instance;
mod ai_task;
mod app;
mod devcontainer;
mod env;
mod external_agent;
pub(crate) mod local_agent;
mod metadata;
mod script;

use crate::context::{Context, random_id};
use crate::diagnostics::Diagnostics;
use crate::schema::Schema;
use crate::value::Value;

/// A managed resource type. No attribute can be changed in place, so there is no update. No resource exists outside of the state,
/// except a local agent, so there is no delete.
pub(crate) struct Resource {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
    /// Rules over several values of a plan.
    pub(crate) plan: fn(&Value, &mut Diagnostics),
    /// Fills in what the plan left open.
    pub(crate) create: fn(&mut Value, &Context<'_>, &mut Diagnostics),
    /// Brings a state up to date.
    pub(crate) read: fn(&mut Value, &Context<'_>),
}

impl Resource {
    /// A type that only keeps its configuration under a random id.
    fn plain(name: &'static str, schema: Schema) -> Self {
        Self {
            name,
            schema,
            plan: |_, _| {},
            create: |state, _, _| state.set("id", random_id()),
            read: |_, _| {},
        }
    }
}

/// Every type of the official provider.
pub(crate) fn all() -> Vec<Resource> {
    vec![
        agent::resource(),
        agent_instance::resource(),
        ai_task::resource(),
        app::resource(),
        devcontainer::resource(),
        env::resource(),
        external_agent::resource(),
        metadata::resource(),
        script::resource(),
    ]
}
