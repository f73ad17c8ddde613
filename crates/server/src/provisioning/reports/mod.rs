//! Reports of a daemon about the jobs that it holds: one file per call.

pub mod complete;
pub mod fail;
pub mod logs;
pub mod module_files;
pub mod quota;
pub mod refusal;
pub mod results;
pub mod states;
pub mod update;
