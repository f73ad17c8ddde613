//! Hands jobs to daemons: waiting, claiming, and the message that carries a job.

pub mod bundle;
pub mod daemon_facts;
pub mod payload;
pub mod scheduler;
pub mod tag_sets;
pub mod wait_queue;
