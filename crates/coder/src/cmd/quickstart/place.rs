//! The directory of a quickstart. A fresh one is removed at the end; what a killed quickstart left is removed by the next one.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::child;

const PREFIX: &str = "coder-quickstart-";

/// In a fresh directory, held by its process: without one nobody removes it.
const LOCK: &str = "quickstart.lock";

/// The directory with everything in it; a fresh one goes away with this value.
pub(super) struct Place {
    path: PathBuf,
    fresh: Option<Fresh>,
}

struct Fresh {
    dir: TempDir,
    _lock: File,
}

impl Place {
    /// One that somebody named; it is kept, and can be used again.
    pub(super) fn named(path: &Path) -> anyhow::Result<Self> {
        let make = DirBuilder::new().recursive(true).mode(0o700).create(path);
        make.with_context(|| format!("make {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
        Ok(Self { path, fresh: None })
    }

    /// A new one among the system's temporary files.
    pub(super) fn fresh() -> anyhow::Result<Self> {
        let fresh = Fresh::make(&std::env::temp_dir()).context("make a directory")?;
        Ok(Self { path: fresh.dir.path().to_owned(), fresh: Some(fresh) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a fresh directory for good, and says where it is; nothing for one that is kept anyway.
    pub(super) fn keep(self) -> Option<PathBuf> {
        let path = self.fresh?.dir.keep();
        // Should it stay all the same, the next quickstart removes the directory.
        let _ = fs::remove_file(path.join(LOCK));
        Some(path)
    }
}

impl Fresh {
    fn make(parent: &Path) -> io::Result<Self> {
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let path = dir.path().join(LOCK);
            let lock = File::create_new(&path)?;
            // Another quickstart that starts at this moment may take the directory for one that was left, and remove it.
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

/// Removes what killed quickstarts of this user left, and says what that was.
pub(super) fn remove_left() -> Vec<PathBuf> {
    remove_left_in(&std::env::temp_dir())
}

fn remove_left_in(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    dirs.map(|entry| entry.path()).filter(|dir| is_own(dir) && remove_unless_held(dir)).collect()
}

/// Others may make directories of that name here, and links.
fn is_own(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    dir.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == own)
}

fn remove_unless_held(dir: &Path) -> bool {
    let Some(_lock) = take(&dir.join(LOCK)) else { return false };
    // Its daemon ends a moment later than it.
    let of_daemon = child::cache(dir).join("work/lock");
    let daemon = take(&of_daemon);
    let is_free = daemon.is_some() || !of_daemon.exists();
    is_free && fs::remove_dir_all(dir).is_ok()
}

/// Holds a file that is there; none when it is not, or somebody else holds it.
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
        let held = Fresh::make(parent.path()).unwrap();
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
        assert!(remove_left_in(parent.path()).is_empty(), "the daemon still works there");
        drop(daemon);
        assert_eq!(remove_left_in(parent.path()), std::slice::from_ref(&left));
        assert!(!left.exists() && held.dir.path().exists() && kept.exists() && other.exists());
        assert!(link.symlink_metadata().is_ok());
    }

    #[test]
    fn a_kept_directory_stays() {
        let parent = tempfile::tempdir().unwrap();
        let fresh = Fresh::make(parent.path()).unwrap();
        let place = Place { path: fresh.dir.path().to_owned(), fresh: Some(fresh) };
        let path = place.keep().unwrap();
        assert!(remove_left_in(parent.path()).is_empty() && path.exists());
    }
}
