//! The server's version, features, health and executable.

mod about;
mod binaries;
mod compressed;
mod download;
mod health;

pub use about::{
    appearance, available_experiments, build_info, entitlements, experiments, healthz, readyz, regions, root,
    ssh_config, update_check,
};
pub use download::{binary, install_script, list_binaries};
pub use health::health;
