//! Finds and kills processes that a job left behind, including those that left its process group.
//!
//! Every Terraform runs with a variable that names the job's directory, and its children inherit it. That
//! identifies the processes even after the daemon that started them was killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Names the job's directory in the environment of all its processes.
pub(crate) const JOB_VARIABLE: &str = "CODER_PROVISIONER_WORK_DIR";

/// Processes may start others while they are being killed.
const MAX_ROUNDS: usize = 5;

/// A process that is being started has no readable environment for a moment, so one empty scan is not enough.
const RECHECK_DELAY: Duration = Duration::from_millis(5);

/// Kills all processes of the job with this directory, and returns how many there were. Blocks: call it off the
/// async threads. Does nothing on systems without `/proc`.
pub(crate) fn kill_all(job_dir: &Path) -> usize {
    let mut marker = format!("{JOB_VARIABLE}=").into_bytes();
    marker.extend_from_slice(job_dir.as_os_str().as_encoded_bytes());
    // A killed process keeps its environment for a moment, so each one is counted once.
    let mut killed = BTreeSet::new();
    let mut found_none = false;
    for _ in 0..MAX_ROUNDS {
        let found = find(&marker);
        if found.is_empty() {
            if found_none {
                break;
            }
            found_none = true;
            std::thread::sleep(RECHECK_DELAY);
            continue;
        }
        found_none = false;
        for pid in found {
            // It may have ended already.
            let _ = kill_process(pid, Signal::KILL);
            killed.insert(pid.as_raw_nonzero());
        }
    }
    killed.len()
}

fn find(marker: &[u8]) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
            // Processes of other users cannot be read and are not ours. Ended ones have an empty environment.
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            environment.split(|&byte| byte == 0).any(|variable| variable == marker).then_some(pid)
        })
        .collect()
}

/// Starts a process of a job. The kernel shows its environment a moment after the start.
#[cfg(test)]
pub(crate) fn spawn_orphan(job_dir: &Path) -> std::process::Child {
    let child = std::process::Command::new("sleep").arg("1000").env(JOB_VARIABLE, job_dir).spawn().unwrap();
    let environment = format!("/proc/{}/environ", child.id());
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !String::from_utf8_lossy(&std::fs::read(&environment).unwrap()).contains(JOB_VARIABLE) {
        assert!(std::time::Instant::now() < until, "the process has no environment");
    }
    child
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_the_job_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        let start = |name: &str| spawn_orphan(&dir.path().join(name));
        let (mut ours, mut other) = (start("Session1"), start("Session12"));
        assert_eq!(kill_all(&dir.path().join("Session1")), 1);
        assert!(!ours.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "a longer name is another job");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
