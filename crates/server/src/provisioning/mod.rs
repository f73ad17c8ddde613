//! What daemons do here: joining, waiting for jobs, reporting on them. `serve.rs` lists the calls.

pub mod acquire;
pub mod admit;
pub mod complete;
pub mod connected;
pub mod fail;
pub mod files;
pub mod logs;
pub mod payload;
pub mod quota;
pub mod refuse;
pub mod results;
pub mod serve;
pub mod session_token;
pub mod update;
pub mod upgrade;
pub mod waiting;

pub use acquire::Scheduler;
