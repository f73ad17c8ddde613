//! Runs Terraform and reads its output.

pub(crate) mod binary;
pub(crate) mod bootstrap;
pub(crate) mod cache;
pub(crate) mod command;
pub(crate) mod http_client;
pub(crate) mod install;
pub(crate) mod journal;
pub(crate) mod resources;
pub(crate) mod steps;
pub(crate) mod template;
