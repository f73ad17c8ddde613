//! The directory of a quickstart. A temporary one is removed at the end. The next quickstart removes those of killed
//! ones.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::daemon;

const PREFIX: &str = "coder-quickstart-";

/// A file in a temporary directory, locked by its process. A directory without this file is never removed.
const LOCK: &str = "quickstart.lock";

/// The directory. A temporary one is removed on drop.
pub(super) struct QuickstartDirectory {
    path: PathBuf,
    /// Whether a directory named with `--data-dir` did not exist before.
    is_new: bool,
    _temporary: Option<TemporaryDirectory>,
}

struct TemporaryDirectory {
    dir: TempDir,
    _lock: File,
}

impl QuickstartDirectory {
    /// A directory from `--data-dir`, which is kept and can be used again.
    pub(super) fn named(path: &Path) -> anyhow::Result<Self> {
        let is_new = !path.exists();
        let make = DirBuilder::new().recursive(true).mode(0o700).create(path);
        make.with_context(|| format!("make {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
        Ok(Self { path, is_new, _temporary: None })
    }

    /// A new one among the system's temporary files.
    pub(super) fn temporary() -> anyhow::Result<Self> {
        let temporary = TemporaryDirectory::make(&std::env::temp_dir()).context("make a directory")?;
        Ok(Self { path: temporary.dir.path().to_owned(), is_new: false, _temporary: Some(temporary) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends its use. A temporary directory is removed, and so is a named one that a failed start has created.
    pub(super) fn leave(self, has_failed: bool) {
        if self.is_new && has_failed {
            // A directory that cannot be removed was not created here.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl TemporaryDirectory {
    fn make(parent: &Path) -> io::Result<Self> {
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let path = dir.path().join(LOCK);
            let lock = File::create_new(&path)?;
            // Another quickstart that starts at this moment may remove the directory as one of a killed quickstart.
            let is_ours = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
                && path
                    .metadata()
                    .is_ok_and(|there| lock.metadata().is_ok_and(|own| there.ino() == own.ino()));
            if is_ours {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }
}

/// Removes the directories of this user's killed quickstarts. Returns their paths.
pub(super) fn remove_orphans() -> Vec<PathBuf> {
    remove_orphans_in(&std::env::temp_dir())
}

fn remove_orphans_in(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    dirs.map(|entry| entry.path()).filter(|dir| is_own(dir) && remove_unless_held(dir)).collect()
}

/// Other users may create directories and links of that name here.
fn is_own(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    dir.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == own)
}

fn remove_unless_held(dir: &Path) -> bool {
    let Some(_lock) = take(&dir.join(LOCK)) else { return false };
    // Its daemon ends a moment later.
    let of_daemon = daemon::cache(dir).join("work/lock");
    let daemon = take(&of_daemon);
    let is_free = daemon.is_some() || !of_daemon.exists();
    is_free && fs::remove_dir_all(dir).is_ok()
}

/// Locks an existing file; none when it does not exist, or another process has locked it.
fn take(path: &Path) -> Option<File> {
    let lock = File::open(path).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_any_more_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        };
        let held = TemporaryDirectory::make(parent.path()).unwrap();
        let left = make("coder-quickstart-left");
        fs::write(left.join(LOCK), "").unwrap();
        fs::create_dir_all(left.join("cache/work")).unwrap();
        let daemon = File::create(left.join("cache/work/lock")).unwrap();
        flock(&daemon, FlockOperation::LockExclusive).unwrap();
        // Kept for its logs, of another make, and of another name.
        let kept = make("coder-quickstart-kept");
        let other = make("coder-other");
        fs::write(other.join(LOCK), "").unwrap();
        let link = parent.path().join("coder-quickstart-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(remove_orphans_in(parent.path()).is_empty(), "the daemon still works there");
        drop(daemon);
        assert_eq!(remove_orphans_in(parent.path()), std::slice::from_ref(&left));
        assert!(!left.exists() && held.dir.path().exists() && kept.exists() && other.exists());
        assert!(link.symlink_metadata().is_ok());
    }

    #[test]
    fn a_failed_start_removes_what_it_has_made() {
        let parent = tempfile::tempdir().unwrap();
        let (new, old) = (parent.path().join("new"), parent.path().join("old"));
        fs::create_dir(&old).unwrap();
        for (path, has_failed, stays) in [(&new, true, false), (&new, false, true), (&old, true, true)] {
            let directory = QuickstartDirectory::named(path).unwrap();
            fs::write(directory.path().join("server.log"), "").unwrap();
            directory.leave(has_failed);
            assert_eq!(path.exists(), stays, "{} {has_failed}", path.display());
        }
    }
}
