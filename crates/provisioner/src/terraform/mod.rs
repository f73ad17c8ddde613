//! Running Terraform and understanding what it says.

pub(crate) mod binary;
pub(crate) mod bootstrap;
pub(crate) mod bundle;
mod changes;
pub(crate) mod convert;
pub(crate) mod environment;
pub(crate) mod events;
mod facts;
pub(crate) mod graph;
pub(crate) mod install;
pub(crate) mod journal;
pub(crate) mod lines;
mod literal;
pub(crate) mod modules;
pub(crate) mod parse;
mod passing;
pub(crate) mod plan;
pub(crate) mod plugins;
pub(crate) mod prepared;
pub(crate) mod run;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod stitch;
pub(crate) mod timings;
pub(crate) mod variables;
