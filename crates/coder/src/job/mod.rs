//! How a job is followed: its wait in the queue, its log, and the progress of its resources.

pub(crate) mod follow;
mod queue;
mod resource_progress;
