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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{DumpableBehavior, dumpable_behavior};

    use super::*;

    /// Tells the test that it runs in a process of its own: other tests need a process that is dumpable.
    const CHILD_VARIABLE: &str = "CODER_TEST_PROTECTED_PROCESS";

    #[test]
    fn process_is_not_dumpable_afterwards() {
        if std::env::var_os(CHILD_VARIABLE).is_some() {
            assert!(matches!(dumpable_behavior().unwrap(), DumpableBehavior::Dumpable));
            protect_process();
            assert!(matches!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable));
            return;
        }
        let name = "isolation::protect::tests::process_is_not_dumpable_afterwards";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD_VARIABLE, "1").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    }
}
