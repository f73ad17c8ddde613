//! Data of the deployment as a whole and of its servers. The modules are exported at the root of the crate.

pub mod audit;
pub(crate) mod bootstrap;
pub mod changes;
pub mod counts;
pub mod leases;
pub mod notifications;
pub mod replicas;
pub mod server_secrets;
pub mod settings;
