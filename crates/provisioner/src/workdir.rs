//! The directory of one job, and the removal of those that earlier daemons left behind.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::isolation;
use crate::left::Left;
use crate::strays;

const PREFIX: &str = "Session";
const TEMPLATE: &str = "template";
const STATE: &str = "terraform.tfstate";
const RECORD: &str = "job.json";

/// Leftovers of daemons that were killed are removed after this time (terraform 1.3).
const STALE_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Directories of one job; removed when dropped.
#[derive(Debug)]
pub(crate) struct WorkDir {
    root: PathBuf,
    /// The state may be nowhere else.
    precious: AtomicBool,
}

impl WorkDir {
    /// Makes fresh private directories below `parent`. Blocks, so call it off the async threads.
    pub(crate) fn create(parent: &Path, now: SystemTime) -> std::io::Result<Self> {
        private_dirs(parent)?;
        remove_stale(parent, now);
        let root = std::path::absolute(parent)?.join(format!("{PREFIX}{}", Uuid::new_v4()));
        private_dirs(&root.join(TEMPLATE))?;
        private_dirs(&root.join("private"))?;
        Ok(Self { root, precious: AtomicBool::new(false) })
    }

    /// What marks the processes of this job.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the template is unpacked and Terraform runs.
    pub(crate) fn template(&self) -> PathBuf {
        self.root.join(TEMPLATE)
    }

    /// A folder whose content no template can name by accident.
    pub(crate) fn private_dir(&self) -> PathBuf {
        self.root.join("private")
    }

    /// A file in it.
    pub(crate) fn private(&self, name: &str) -> PathBuf {
        self.private_dir().join(name)
    }

    pub(crate) fn state_file(&self) -> PathBuf {
        self.template().join(STATE)
    }

    /// Where job and token are noted for a process after this one.
    pub(crate) fn record_file(&self) -> PathBuf {
        self.private(RECORD)
    }

    /// Whether the state must outlive the directory, however the job ends: true from before Terraform changes it until
    /// it has been read.
    pub(crate) fn set_precious(&self, precious: bool) {
        self.precious.store(precious, Ordering::Relaxed);
    }

    /// Removes everything but the state, if there is one, and what is needed to hand it over. Blocks, so call it off the
    /// async threads.
    pub(crate) fn leave(self) -> Option<Left> {
        self.set_precious(false);
        self.move_out()
    }

    fn move_out(&self) -> Option<Left> {
        let parent = self.root.parent()?;
        let left = left_in(&parent.join(format!("{PREFIX}{}", Uuid::new_v4())));
        // Terraform has ended, but what it started may not have.
        strays::kill(&self.root);
        let moved = self.state_file().exists().then(|| {
            private_dirs(left.state.parent()?).ok()?;
            private_dirs(left.record.parent()?).ok()?;
            // Without a record the state is still there for people.
            let _ = std::fs::rename(self.record_file(), &left.record);
            std::fs::rename(self.state_file(), &left.state).ok()
        });
        moved.flatten().map(|()| left)
    }
}

/// Puts a state where a process after this one looks for it. Blocks, so call it off the async threads.
pub(crate) fn keep_state(parent: &Path, state: &[u8]) -> std::io::Result<Left> {
    let left = left_in(&std::path::absolute(parent)?.join(format!("{PREFIX}{}", Uuid::new_v4())));
    private_dirs(&left.dir.join(TEMPLATE))?;
    private_dirs(&left.dir.join("private"))?;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&left.state)?;
    file.write_all(state)?;
    Ok(left)
}

/// The places of state and record in a job's directory.
fn left_in(dir: &Path) -> Left {
    Left {
        dir: dir.to_owned(),
        record: dir.join("private").join(RECORD),
        state: dir.join(TEMPLATE).join(STATE),
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let killed = strays::kill(&self.root);
        if self.precious.load(Ordering::Relaxed)
            && let Some(left) = self.move_out()
        {
            tracing::warn!(state = %left.state.display(), "the job ended before its state was read; it is kept for a week");
        }
        if killed > 0 {
            tracing::info!(killed, "processes that outlived their job were ended");
        }
        // Processes that were killed a moment ago may still be writing; what stays is removed as stale later.
        for _ in 0..3 {
            match std::fs::remove_dir_all(&self.root) {
                Ok(()) => return,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
                Err(_) => {}
            }
        }
        tracing::warn!(dir = %self.root.display(), "a job's directory could not be removed");
    }
}

fn private_dirs(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Holds a directory of jobs for one daemon; the operating system gives it up with the process.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: std::fs::File,
    /// States of jobs whose process was killed.
    pub(crate) left: Vec<Left>,
}

impl Claim {
    /// Takes the directory, and ends and removes what a killed daemon left in it; only states stay for a week. `None` when another daemon works
    /// there. Blocks, so call it off the async threads.
    pub(crate) fn take(parent: &Path) -> std::io::Result<Option<Self>> {
        private_dirs(parent)?;
        // Who comes second waits until the first has cleared away: what it makes then is not taken for something left.
        let clearing = std::fs::File::create(parent.join("clearing"))?;
        flock(&clearing, FlockOperation::LockExclusive)?;
        let lock = std::fs::File::create(parent.join("lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        isolation::register(parent);
        let mut left = Vec::new();
        for dir in sessions(&std::path::absolute(parent)?) {
            let killed = strays::kill(&dir);
            let one = left_in(&dir);
            // Terraform begins with an empty file.
            if one.state.metadata().is_ok_and(|state| state.len() > 0) {
                // Nobody else knows what had been made by then, so it stays until it is stale or with the server.
                tracing::debug!(state = %one.state.display(), killed, "a job of a killed daemon left a state");
                left.push(one);
                continue;
            }
            tracing::warn!(dir = %dir.display(), killed, "a job of a killed daemon is cleared away");
            if let Err(error) = std::fs::remove_dir_all(&dir) {
                tracing::warn!(dir = %dir.display(), %error, "an old job's directory could not be removed");
            }
        }
        Ok(Some(Self { _lock: lock, left }))
    }
}

fn sessions(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        .map(|entry| entry.path())
        .collect()
}

/// Removes directories of jobs that nobody has touched for a week.
fn remove_stale(parent: &Path, now: SystemTime) {
    for dir in sessions(parent) {
        let modified = dir.metadata().and_then(|file| file.modified()).ok();
        let age = modified.and_then(|at| now.duration_since(at).ok());
        if age.is_some_and(|age| age > STALE_AFTER)
            && let Err(error) = std::fs::remove_dir_all(&dir)
        {
            tracing::warn!(dir = %dir.display(), %error, "an old job's directory could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn directories_are_private_and_vanish() {
        let parent = tempfile::tempdir().unwrap();
        let work = WorkDir::create(&parent.path().join("work"), SystemTime::UNIX_EPOCH).unwrap();
        let template = work.template();
        assert_eq!(template.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(work.private_dir().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(work);
        assert!(!template.exists());
        assert_eq!(std::fs::read_dir(parent.path().join("work")).unwrap().count(), 0);
    }

    #[test]
    fn only_old_sessions_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["Session-old", "other"] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        let now = parent.path().metadata().unwrap().modified().unwrap();
        remove_stale(parent.path(), now);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 2);
        remove_stale(parent.path(), now + STALE_AFTER + Duration::from_secs(60));
        let left: Vec<_> =
            std::fs::read_dir(parent.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["other"]);
    }

    #[test]
    fn what_a_killed_daemon_left_is_cleared_by_the_next_one() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("Session-left");
        std::fs::create_dir(&left).unwrap();
        let mut stray = strays::tests::stray(&left);
        let claim = Claim::take(parent.path()).unwrap();
        assert!(claim.is_some() && !left.exists());
        assert!(!stray.wait().unwrap().success());
        std::fs::create_dir_all(left.join(TEMPLATE)).unwrap();
        std::fs::write(left.join(TEMPLATE).join(STATE), "{}").unwrap();
        assert!(Claim::take(parent.path()).unwrap().is_none(), "another daemon works here");
        drop(claim);
        let claim = Claim::take(parent.path()).unwrap().unwrap();
        assert!(left.exists(), "a state is kept for a while");
        assert_eq!(claim.left, [left_in(&left)]);
        drop(claim);
        std::fs::write(left.join(TEMPLATE).join(STATE), "").unwrap();
        let claim = Claim::take(parent.path()).unwrap().unwrap();
        assert!(claim.left.is_empty() && !left.exists(), "nothing had been made");
    }

    #[test]
    fn only_state_and_record_are_left_behind() {
        let parent = tempfile::tempdir().unwrap();
        let work = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        std::fs::write(work.state_file(), "state").unwrap();
        std::fs::write(work.record_file(), "record").unwrap();
        std::fs::write(work.private("values.tfvars"), "secret").unwrap();
        let left = work.leave().unwrap();
        assert_eq!(std::fs::read_to_string(&left.state).unwrap(), "state");
        assert_eq!(std::fs::read_to_string(&left.record).unwrap(), "record");
        assert_eq!(sessions(parent.path()), std::slice::from_ref(&left.dir));
        assert!(!left.dir.join("private/values.tfvars").exists());
        let without = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        assert!(without.leave().is_none());
        assert_eq!(sessions(parent.path()), [left.dir]);
    }
}
