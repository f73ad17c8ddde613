//! Jobs of a real daemon with a real Terraform, against a server whose answers each test sets.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bad_input;
mod builds;
mod cancel;
mod connection_loss;
mod crash_recovery;
mod daemon_peers;
mod daemon_process;
mod extensions;
mod fake_server;
mod fixture;
mod full_disk;
mod health;
mod hostile_templates;
mod imports;
mod init_cache;
mod isolation;
#[cfg(target_os = "linux")]
mod isolation_guarantees;
mod job_failures;
mod job_home;
#[cfg(target_os = "linux")]
mod kernel_restrictions;
mod module_cache;
mod output;
mod provider_mirrors;
mod reconnect;
mod release_server;
mod secret_masking;
mod shutdown;
mod terraform_install;
mod terraform_versions;
