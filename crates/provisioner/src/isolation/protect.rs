//! Protects the secrets of the daemon's process from its jobs, as far as processes of one user can be
//! separated.

/// Protects this process from others of the same user: its memory, its environment (which may contain the
/// provisioner key) and its open files cannot be read, and it writes no core dump. Root is not kept out.
///
/// Call it once, early, in a program that only runs daemons. See `docs/isolation.md`.
pub fn protect_process() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(target: "provisioner", %error, "the daemon's process cannot be protected from its jobs");
        }
    }
}
