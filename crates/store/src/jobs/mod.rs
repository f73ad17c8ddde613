//! Provisioner jobs. Each transition is one statement that is guarded by the state it starts from. Zero changed rows
//! become [`Error::Stale`](crate::Error::Stale); the caller then reads the job again and asks
//! `coder_domain::job::Record` for the reason.
//!
//! Invariant: a job is held by at most one daemon, and only that daemon can finish it.

pub mod assignments;
pub mod backlog;
pub(crate) mod claim;
pub(crate) mod end;
pub(crate) mod hold;
pub(crate) mod job;
pub mod journals;
pub mod list;
mod log_compression;
pub mod logs;
pub mod progress;
pub mod queue;
pub mod queue_tables;
pub mod reap;
pub mod requirements;
pub mod timings;
pub mod uploads;

pub use claim::{ClaimOutcome, ClaimRequest, ClaimedJob, claim, try_claim};
pub use end::{ExpectedStatus, cancel, complete, complete_with_input, fail, finish_unclaimed, give_up};
pub use hold::{
    Holder, JobLease, find_held, list_held, list_in_organization, list_joined_by, list_of_daemon,
    list_of_key, list_of_session, list_of_token, resume, update_alive, update_lost, update_program,
    update_token, update_token_used,
};
pub use job::{Job, NewJob, find, find_many, get, insert, insert_with_tag_set, update_input};
