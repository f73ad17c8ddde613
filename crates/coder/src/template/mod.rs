//! A template as files: packing a directory, values of Terraform variables, the lock file, and the embedded examples.

pub(crate) mod examples;
mod flat_yaml;
pub(crate) mod lockfile;
pub(crate) mod pack;
mod tfvars;
pub(crate) mod variables;
