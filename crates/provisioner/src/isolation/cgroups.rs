//! The control groups of a job: creation and removal.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long to wait for a group to become empty, and how often to check.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Prefix of group names.
pub(super) const PREFIX: &str = "coder-job-";

/// The control groups of a job. Dropping them kills the remaining processes and removes the groups.
#[derive(Debug, Default)]
pub(crate) struct JobCgroups {
    dirs: Vec<PathBuf>,
    locks: Vec<std::fs::File>,
}

impl JobCgroups {
    /// Creates one more group. Until it is locked, a daemon that starts takes it for a stale one: `WouldBlock` when
    /// that daemon holds its lock, `NotFound` when that daemon has removed it.
    pub(super) fn add(&mut self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir(dir)?;
        self.dirs.push(dir.to_owned());
        let lock = std::fs::File::open(dir)?;
        lock.try_lock()?;
        // A removed directory can still be locked.
        if std::fs::metadata(dir)?.ino() != lock.metadata()?.ino() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        self.locks.push(lock);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// The files through which a process joins.
    pub(super) fn procs_files(&self) -> impl Iterator<Item = PathBuf> {
        self.dirs.iter().map(|dir| dir.join("cgroup.procs"))
    }
}

impl Drop for JobCgroups {
    fn drop(&mut self) {
        if self.dirs.is_empty() {
            return;
        }
        let (dirs, locks) = (std::mem::take(&mut self.dirs), std::mem::take(&mut self.locks));
        let ending = move || {
            for dir in &dirs {
                if let Err(error) = end(dir) {
                    tracing::warn!(dir = %dir.display(), %error, "a job's control group cannot be removed; the next daemon will try again");
                }
            }
            drop(locks);
        };
        // It may block for a moment, so it leaves the async threads.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(ending)),
            Err(_) => ending(),
        }
    }
}

/// Kills the processes of a group, and removes it. A killed process leaves its group a moment later.
fn end(dir: &Path) -> std::io::Result<()> {
    let until = Instant::now() + EMPTY_TIMEOUT;
    loop {
        match std::fs::remove_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) if Instant::now() < until => {}
            other => return other,
        }
        // Version 2 kills all at once; in version 1 each process is killed by its pid.
        if std::fs::write(dir.join("cgroup.kill"), "1").is_err() {
            let processes = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Kills the processes of groups whose daemon has ended, and removes the groups.
pub(super) fn remove_stale(parent: &Path) {
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // The lock is held until the group is removed: the daemon that creates it at this moment then fails to lock it.
        let Ok(group) = std::fs::File::open(entry.path()) else { continue };
        if group.try_lock().is_ok()
            && let Err(error) = end(&entry.path())
        {
            tracing::warn!(dir = %entry.path().display(), %error, "a control group of an earlier daemon cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another program may have removed it.
    #[test]
    fn group_that_has_vanished_has_ended() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("group");
        let mut groups = JobCgroups::default();
        groups.add(&dir).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        end(&dir).unwrap();
        drop(groups);
        assert!(!dir.exists());
    }

    #[test]
    fn two_jobs_never_share_a_group() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join(format!("{PREFIX}one"));
        let mut groups = JobCgroups::default();
        groups.add(&dir).unwrap();
        let error = JobCgroups::default().add(&dir).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        assert!(dir.is_dir(), "the group of the first job stays");
        drop(groups);
        assert!(!dir.exists());
    }
}
