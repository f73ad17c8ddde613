//! Log lines of jobs, as a list or followed live. The endpoints differ only in how the job is found.

mod answer;
mod build;
mod dry_run;
mod follow;
mod lines;
mod version;

pub use build::build;
pub use dry_run::dry_run;
pub use version::version;
