//! Terraform's output and templates as the daemon reads them.

pub(crate) mod command {
    #[path = "../../../../crates/provisioner/src/terraform/command/events.rs"]
    pub(crate) mod events;
}
#[path = "../../crates/provisioner/src/terraform/resources/mod.rs"]
pub(crate) mod resources;
pub(crate) mod template {
    #[path = "../../../../crates/provisioner/src/terraform/template/literal.rs"]
    pub(crate) mod literal;
    #[path = "../../../../crates/provisioner/src/terraform/template/parse/mod.rs"]
    pub(crate) mod parse;
}
