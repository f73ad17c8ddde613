//! Plans, states and graphs, and their conversion into the messages of a job.

pub(crate) mod convert;
pub(crate) mod graph;
pub(crate) mod plan;
pub(crate) mod state;
