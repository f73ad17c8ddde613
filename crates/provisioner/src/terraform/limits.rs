//! What the kernel keeps the processes of a job from.

use rustix::process::Pid;

/// Sets the limits of a process that was just started; what it starts inherits them.
///
/// No core dumps: they would hold the secrets of a job, and may be large.
#[cfg(target_os = "linux")]
pub(super) fn set(pid: Pid) {
    use rustix::process::{Resource, Rlimit, prlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = prlimit(Some(pid), Resource::Core, none) {
        // It may have ended already.
        tracing::debug!(%error, "the limits of a process cannot be set");
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn set(_: Pid) {}
