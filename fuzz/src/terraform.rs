//! Terraform's output as the daemon reads it.

#[path = "../../crates/provisioner/src/terraform/convert/mod.rs"]
pub(crate) mod convert;
#[path = "../../crates/provisioner/src/terraform/events.rs"]
pub(crate) mod events;
#[path = "../../crates/provisioner/src/terraform/graph.rs"]
pub(crate) mod graph;
#[path = "../../crates/provisioner/src/terraform/lines.rs"]
pub(crate) mod lines;
#[path = "../../crates/provisioner/src/terraform/literal.rs"]
mod literal;
#[path = "../../crates/provisioner/src/terraform/parse/mod.rs"]
pub(crate) mod parse;
#[path = "../../crates/provisioner/src/terraform/plan.rs"]
pub(crate) mod plan;
#[path = "../../crates/provisioner/src/terraform/state.rs"]
pub(crate) mod state;
#[path = "../../crates/provisioner/src/terraform/stitch.rs"]
pub(crate) mod stitch;
