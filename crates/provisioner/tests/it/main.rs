//! Jobs of a real daemon with a real Terraform, against a server whose answers each test sets.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bad_input;
mod builds;
mod cancel;
mod child;
mod extended;
mod failures;
mod full_disk;
mod home;
mod hostile;
mod imports;
mod install;
mod isolation;
#[cfg(target_os = "linux")]
mod kernel;
mod killed;
mod masked;
mod mirrors;
mod modules;
mod neighbours;
mod output;
mod prepared;
#[cfg(target_os = "linux")]
mod promises;
mod remote;
mod resume;
mod server;
mod session;
mod setup;
mod shutdown;
mod unhealthy;
mod versions;
