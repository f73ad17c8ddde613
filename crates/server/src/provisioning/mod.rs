//! What daemons do here: joining, waiting for jobs, reporting on them. `serve.rs` lists the calls.

pub mod acquire;
pub mod admit;
mod again;
pub mod attach;
mod bundle;
pub mod cancel;
pub mod complete;
pub mod connected;
mod extended;
pub mod fail;
pub mod files;
pub mod give_up;
pub mod hand;
pub mod key_end;
pub mod logs;
pub mod lost;
mod notices;
pub mod payload;
pub mod presence;
pub mod quota;
pub mod refuse;
pub mod results;
pub mod revoke;
pub mod serve;
pub mod session_token;
mod states;
pub mod tag_sets;
pub mod update;
pub mod upgrade;
pub mod waiting;

pub use acquire::Scheduler;
