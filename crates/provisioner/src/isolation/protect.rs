//! Keeps the secrets of the daemon's process from the processes of its jobs, as far as one user can be kept from itself.

/// Closes this process to others of the same user: its memory, its environment (the provisioner key may be there) and its
/// open files cannot be read, and it dumps no core. The administrator is not kept out.
///
/// Call it once, early, in a program that is nothing but a daemon. Docs: `docs/isolation.md`.
pub fn protect_process() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(target: "provisioner", %error, "the daemon's process cannot be closed to its jobs");
        }
    }
}
