//! The directory of one job, and the cleanup of directories that earlier daemons left behind.

use std::fs::TryLockError;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::orphans;
use super::salvage::SalvagedState;
use crate::files::cache_dir::private_dirs;
use crate::files::job_file;
use crate::files::job_file::JobFile;

const PREFIX: &str = "Session";
const TEMPLATE: &str = "template";
const STATE: &str = "template/terraform.tfstate";
const RECORD_FILE: &str = "private/job.json";

/// Prefix of lock files; the id of the directory follows.
const LOCK_PREFIX: &str = "lock-";

/// Attempts to lock a new lock file, and the delay between them.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(1);

/// Directories of killed daemons are removed after this time (terraform 1.3).
const MAX_UNUSED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The directory of one job; removed when dropped.
#[derive(Debug)]
pub(crate) struct WorkDir {
    root: PathBuf,
    /// The server may not have the state yet.
    keep_state_on_drop: AtomicBool,
    /// How many processes outlived the job; set once they were killed.
    killed_orphans: OnceLock<usize>,
    /// Tells other daemons that the job is running.
    _lock: JobLock,
}

impl WorkDir {
    /// Creates private directories below `parent`. Blocks: call it off the async threads.
    pub(crate) fn create(parent: &Path, now: SystemTime) -> std::io::Result<Self> {
        private_dirs(parent)?;
        remove_stale(parent, now);
        let (parent, id) = (std::path::absolute(parent)?, Uuid::new_v4());
        let root = parent.join(format!("{PREFIX}{id}"));
        let lock = JobLock::take_new(&root)?;
        private_dirs(&root.join(TEMPLATE))?;
        private_dirs(&root.join("private"))?;
        Ok(Self {
            root,
            keep_state_on_drop: AtomicBool::new(false),
            killed_orphans: OnceLock::new(),
            _lock: lock,
        })
    }

    /// Identifies the processes of this job.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the template is unpacked and Terraform runs.
    pub(crate) fn template(&self) -> PathBuf {
        self.root.join(TEMPLATE)
    }

    /// A directory whose content no template can name by accident.
    pub(crate) fn private_dir(&self) -> PathBuf {
        self.root.join("private")
    }

    /// A file in it.
    pub(crate) fn private(&self, name: &str) -> PathBuf {
        self.private_dir().join(name)
    }

    /// The same, for reads and writes of the daemon.
    pub(crate) fn private_file(&self, name: &str) -> JobFile {
        JobFile::new(&self.root, Path::new("private").join(name))
    }

    /// A file in the template's directory.
    pub(crate) fn in_template(&self, name: &str) -> JobFile {
        JobFile::new(&self.root, Path::new(TEMPLATE).join(name))
    }

    /// Whether a directory below the template's is reached without links.
    pub(crate) fn is_plain(&self, folder: &str) -> bool {
        job_file::is_plain_dir(&self.root, &Path::new(TEMPLATE).join(folder))
    }

    pub(crate) fn state_file(&self) -> JobFile {
        JobFile::new(&self.root, STATE)
    }

    /// Where the job's id and token are stored for a later process.
    pub(crate) fn record_file(&self) -> JobFile {
        JobFile::new(&self.root, RECORD_FILE)
    }

    /// From now on the state is kept however the job ends: Terraform is about to change it.
    pub(crate) fn preserve_state(&self) {
        self.keep_state_on_drop.store(true, Ordering::Relaxed);
    }

    /// Removes everything but the state, if there is one, and the record that is needed to salvage it. With
    /// `no_orphans` no process of the job can be left, because each command was the first process of a
    /// namespace and has ended. Blocks: call it off the async threads.
    pub(crate) fn finish(self, no_orphans: bool) -> Option<SalvagedState> {
        self.keep_state_on_drop.store(false, Ordering::Relaxed);
        if no_orphans {
            let _ = self.killed_orphans.set(0);
        }
        self.salvage()
    }

    /// Terraform has ended, but its child processes may not have. Searches for them once.
    fn end_processes(&self) -> usize {
        *self.killed_orphans.get_or_init(|| orphans::kill_all(&self.root))
    }

    fn salvage(&self) -> Option<SalvagedState> {
        let parent = self.root.parent()?;
        let left = salvaged_in(&parent.join(format!("{PREFIX}{}", Uuid::new_v4())));
        self.end_processes();
        let moved = self.state_file().length().is_ok().then(|| {
            private_dirs(&left.dir.join(TEMPLATE)).ok()?;
            private_dirs(&left.dir.join("private")).ok()?;
            // Without a record people can still find the state.
            let _ = self.record_file().move_to(&left.record);
            self.state_file().move_to(&left.state).ok()
        });
        moved.flatten().map(|()| left)
    }
}

/// Stores a state where a later process looks for it. Blocks: call it off the async threads.
pub(crate) fn keep_state(parent: &Path, state: &[u8]) -> std::io::Result<SalvagedState> {
    let left = salvaged_in(&std::path::absolute(parent)?.join(format!("{PREFIX}{}", Uuid::new_v4())));
    private_dirs(&left.dir.join(TEMPLATE))?;
    private_dirs(&left.dir.join("private"))?;
    left.state.write(state)?;
    Ok(left)
}

/// The paths of state and record in a job's directory.
fn salvaged_in(dir: &Path) -> SalvagedState {
    SalvagedState {
        dir: dir.to_owned(),
        record: JobFile::new(dir, RECORD_FILE),
        state: JobFile::new(dir, STATE),
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let killed = self.end_processes();
        if self.keep_state_on_drop.load(Ordering::Relaxed)
            && let Some(left) = self.salvage()
        {
            tracing::warn!(state = %left.state.path().display(), "the job was aborted before the server had its state; the state is kept for a week");
        }
        if killed > 0 {
            tracing::info!(killed, "killed processes that outlived their job");
        }
        // Processes that were just killed may still be writing; what remains is removed later as stale.
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

/// Locks a directory of jobs for one daemon; the operating system releases it with the process.
#[derive(Debug)]
pub(crate) struct WorkDirClaim {
    _lock: std::fs::File,
    /// States of jobs whose process was killed.
    pub(crate) salvaged: Vec<SalvagedState>,
}

impl WorkDirClaim {
    /// Locks the directory, kills the processes of killed daemons and removes their directories; only states
    /// are kept for a week. `None` when another daemon uses the directory. Blocks: call it off the async
    /// threads.
    pub(crate) fn take(parent: &Path) -> std::io::Result<Option<Self>> {
        private_dirs(parent)?;
        // A second daemon waits until the first one has cleaned up, so that its new directories are not taken
        // for stale ones.
        let clearing = std::fs::File::create(parent.join("clearing"))?;
        clearing.lock()?;
        let lock = std::fs::File::create(parent.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut left = Vec::new();
        for dir in job_dirs(&std::path::absolute(parent)?) {
            // A daemon that started second may still be running there.
            let Some(_lock) = JobLock::take(&dir)? else { continue };
            let killed = orphans::kill_all(&dir);
            let salvaged_state = salvaged_in(&dir);
            // Terraform starts with an empty file.
            if salvaged_state.state.length().is_ok_and(|length| length > 0) {
                // Only this state says what was created, so it is kept until it is stale or salvaged.
                tracing::debug!(state = %salvaged_state.state.path().display(), killed, "found the state of a killed daemon's job");
                left.push(salvaged_state);
                continue;
            }
            tracing::warn!(dir = %dir.display(), killed, "removing the directory of a killed daemon's job");
            if let Err(error) = std::fs::remove_dir_all(&dir) {
                tracing::warn!(dir = %dir.display(), %error, "an old job's directory could not be removed");
            }
        }
        Ok(Some(Self { _lock: lock, salvaged: left }))
    }
}

fn job_dirs(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        .map(|entry| entry.path())
        .collect()
}

/// Locks a job's directory by a file beside it, which its programs cannot reach. The operating system releases
/// it with the process.
#[derive(Debug)]
struct JobLock {
    path: PathBuf,
    _file: std::fs::File,
}

impl JobLock {
    /// Locks a directory that does not exist yet. A starting daemon may be inspecting the lock file at this
    /// moment.
    fn take_new(dir: &Path) -> std::io::Result<Self> {
        for _ in 0..LOCK_ATTEMPTS {
            if let Some(lock) = Self::take(dir)? {
                return Ok(lock);
            }
            std::thread::sleep(LOCK_RETRY_DELAY);
        }
        Err(std::io::Error::other("another process holds the lock of a new directory"))
    }

    /// `None` while another process holds it. The directory need not exist yet.
    fn take(dir: &Path) -> std::io::Result<Option<Self>> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().replacen(PREFIX, LOCK_PREFIX, 1);
        let path = dir.with_file_name(name);
        loop {
            let file = std::fs::File::options().write(true).create(true).truncate(false).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The previous holder may have removed the file meanwhile.
            if path.metadata().is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()))
            {
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }
}

impl Drop for JobLock {
    fn drop(&mut self) {
        // A leftover empty file is harmless.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The lock files of a directory of jobs.
pub(crate) fn locks(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let locks = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(LOCK_PREFIX));
    locks.map(|entry| entry.path()).collect()
}

/// Whether the job of a lock file is still running.
pub(crate) fn is_held(lock: &Path) -> bool {
    let Ok(file) = std::fs::File::open(lock) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Removes directories of jobs that were not modified for a week.
fn remove_stale(parent: &Path, now: SystemTime) {
    for dir in job_dirs(parent) {
        let modified = dir.metadata().and_then(|file| file.modified()).ok();
        let age = modified.and_then(|at| now.duration_since(at).ok());
        if age.is_some_and(|age| age > MAX_UNUSED)
            && let Ok(Some(_lock)) = JobLock::take(&dir)
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
        remove_stale(parent.path(), now + MAX_UNUSED + Duration::from_secs(60));
        let left: Vec<_> =
            std::fs::read_dir(parent.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["other"]);
    }

    #[test]
    fn a_session_is_old_after_a_week_and_not_before() {
        assert_eq!(MAX_UNUSED, Duration::from_secs(604_800));
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("Session-old");
        std::fs::create_dir(&dir).unwrap();
        let modified = dir.metadata().unwrap().modified().unwrap();
        for (age, stays) in [
            (Duration::ZERO, true),
            (MAX_UNUSED - Duration::from_nanos(1), true),
            (MAX_UNUSED, true),
            (MAX_UNUSED + Duration::from_nanos(1), false),
        ] {
            remove_stale(parent.path(), modified + age);
            assert_eq!(dir.exists(), stays, "{age:?}");
        }
        // A clock that was set back makes no directory stale.
        std::fs::create_dir(&dir).unwrap();
        let before = dir.metadata().unwrap().modified().unwrap() - MAX_UNUSED * 2;
        remove_stale(parent.path(), before);
        assert!(dir.exists());
    }

    #[test]
    fn next_daemon_cleans_up_after_a_killed_one() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("Session-left");
        std::fs::create_dir(&left).unwrap();
        let mut orphan = orphans::spawn_orphan(&left);
        let claim = WorkDirClaim::take(parent.path()).unwrap();
        assert!(claim.is_some() && !left.exists());
        assert!(!orphan.wait().unwrap().success());
        std::fs::create_dir_all(left.join(TEMPLATE)).unwrap();
        std::fs::write(left.join(STATE), "{}").unwrap();
        assert!(WorkDirClaim::take(parent.path()).unwrap().is_none(), "another daemon works here");
        drop(claim);
        let claim = WorkDirClaim::take(parent.path()).unwrap().unwrap();
        assert!(left.exists(), "a state is kept for a while");
        assert_eq!(claim.salvaged, [salvaged_in(&left)]);
        drop(claim);
        std::fs::write(left.join(STATE), "").unwrap();
        let claim = WorkDirClaim::take(parent.path()).unwrap().unwrap();
        assert!(claim.salvaged.is_empty() && !left.exists(), "nothing had been made");
    }

    #[test]
    fn directories_of_a_running_daemon_are_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        let first = WorkDirClaim::take(parent.path()).unwrap().unwrap();
        assert!(WorkDirClaim::take(parent.path()).unwrap().is_none());
        // The second works without the lock of the directory, and the first ends.
        let work = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        let mut program = orphans::spawn_orphan(work.root());
        drop(first);
        let third = WorkDirClaim::take(parent.path()).unwrap().unwrap();
        assert!(third.salvaged.is_empty() && work.template().is_dir());
        assert!(program.try_wait().unwrap().is_none(), "its programs go on");
        let much_later = parent.path().metadata().unwrap().modified().unwrap() + MAX_UNUSED * 2;
        remove_stale(parent.path(), much_later);
        assert!(work.template().is_dir());
        drop((third, work));
        assert!(!program.wait().unwrap().success());
        assert!(job_dirs(parent.path()).is_empty());
    }

    #[test]
    fn a_state_that_is_a_link_is_not_left() {
        let parent = tempfile::tempdir().unwrap();
        let work = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        let other = parent.path().join("other");
        std::fs::write(&other, "SECRET").unwrap();
        std::os::unix::fs::symlink(&other, work.state_file().path()).unwrap();
        assert!(work.finish(false).is_none() && other.exists());
        let left = parent.path().join("Session-left");
        std::fs::create_dir_all(left.join(TEMPLATE)).unwrap();
        std::os::unix::fs::symlink(&other, left.join(STATE)).unwrap();
        let claim = WorkDirClaim::take(parent.path()).unwrap().unwrap();
        assert!(claim.salvaged.is_empty() && !left.exists() && other.exists());
    }

    #[test]
    fn only_state_and_record_are_left_behind() {
        let parent = tempfile::tempdir().unwrap();
        let work = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        work.state_file().write(b"state").unwrap();
        work.record_file().write(b"record").unwrap();
        std::fs::write(work.private("values.tfvars"), "secret").unwrap();
        let left = work.finish(false).unwrap();
        assert_eq!(std::fs::read_to_string(left.state.path()).unwrap(), "state");
        assert_eq!(std::fs::read_to_string(left.record.path()).unwrap(), "record");
        assert_eq!(job_dirs(parent.path()), std::slice::from_ref(&left.dir));
        assert!(!left.dir.join("private/values.tfvars").exists());
        let without = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        assert!(without.finish(false).is_none());
        assert_eq!(job_dirs(parent.path()), [left.dir]);
    }

    #[test]
    fn a_job_has_its_files_in_its_own_directory() {
        let parent = tempfile::tempdir().unwrap();
        let work = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        let root = work.root().to_owned();
        assert_eq!(root.parent(), Some(parent.path()));
        assert_eq!((work.template(), work.private_dir()), (root.join("template"), root.join("private")));
        assert_eq!(work.private("a"), root.join("private/a"));
        for (file, path) in [
            (work.private_file("b"), "private/b"),
            (work.in_template("c"), "template/c"),
            (work.state_file(), "template/terraform.tfstate"),
            (work.record_file(), "private/job.json"),
        ] {
            assert_eq!(file.path(), root.join(path));
            file.write(path.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(root.join(path)).unwrap(), path);
        }
        std::fs::create_dir_all(work.template().join("module/inner")).unwrap();
        std::os::unix::fs::symlink(root.join("private"), work.template().join("link")).unwrap();
        for (folder, plain) in [("module", true), ("module/inner", true), ("link", false), ("missing", false)]
        {
            assert_eq!(work.is_plain(folder), plain, "{folder}");
        }
        drop(work);
        assert!(!root.exists(), "nothing of it is kept");
    }

    #[test]
    fn a_state_that_terraform_changes_is_kept_however_the_job_ends() {
        let parent = tempfile::tempdir().unwrap();
        for (preserves, has_state, kept) in [(false, true, false), (true, false, false), (true, true, true)] {
            let work = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
            if preserves {
                work.preserve_state();
            }
            if has_state {
                work.state_file().write(b"state").unwrap();
                work.record_file().write(b"record").unwrap();
            }
            drop(work);
            let left = job_dirs(parent.path());
            assert_eq!(left.len(), usize::from(kept), "{preserves} {has_state}");
            for dir in left {
                assert_eq!(std::fs::read_to_string(dir.join(STATE)).unwrap(), "state");
                assert_eq!(std::fs::read_to_string(dir.join(RECORD_FILE)).unwrap(), "record");
                std::fs::remove_dir_all(dir).unwrap();
            }
        }
        let left = keep_state(parent.path(), b"later").unwrap();
        assert_eq!(left, salvaged_in(&left.dir));
        assert_eq!(job_dirs(parent.path()), std::slice::from_ref(&left.dir));
        assert_eq!(std::fs::read_to_string(left.dir.join(STATE)).unwrap(), "later");
        let claim = WorkDirClaim::take(parent.path()).unwrap().unwrap();
        assert_eq!(claim.salvaged, [left], "the next daemon finds it");
    }

    #[test]
    fn the_lock_of_a_job_is_held_while_it_runs() {
        let parent = tempfile::tempdir().unwrap();
        assert!(locks(parent.path()).is_empty() && locks(&parent.path().join("missing")).is_empty());
        std::fs::write(parent.path().join("other"), "").unwrap();
        let work = WorkDir::create(parent.path(), SystemTime::UNIX_EPOCH).unwrap();
        let name = work.root().file_name().unwrap().to_str().unwrap().replace(PREFIX, LOCK_PREFIX);
        assert_eq!(locks(parent.path()), [parent.path().join(&name)]);
        assert!(is_held(&parent.path().join(&name)));
        drop(work);
        assert!(locks(parent.path()).is_empty(), "removed with the directory");
        std::fs::write(parent.path().join(&name), "").unwrap();
        assert!(!is_held(&parent.path().join(&name)) && !is_held(&parent.path().join("missing")));
    }
}
