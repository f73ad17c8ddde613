//! Which daemon gets which job, and the message that carries it.

pub mod bundle;
pub mod daemon_facts;
pub mod payload;
pub mod scheduler;
pub mod tag_sets;
pub mod wait_queue;
