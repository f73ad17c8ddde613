//! Directories of the cache that a single command of a job writes to: other jobs do not see them, and those of
//! killed daemons are removed.

use std::fs::{self, File};
use std::io::Result;
use std::path::{Path, PathBuf};

use uuid::Uuid;

#[derive(Debug, Clone)]
pub(crate) struct ScratchDirs {
    root: PathBuf,
    locks: PathBuf,
}

/// A scratch directory; removed when dropped.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    dir: PathBuf,
    _lock: File,
}

impl ScratchDirs {
    /// The scratch directories of a cache.
    pub(crate) fn of(cache: &Path) -> Self {
        Self { root: cache.join("installing"), locks: cache.join("init") }
    }

    /// A lock file that jobs cannot see.
    pub(crate) fn lock(&self, name: &str) -> PathBuf {
        self.locks.join(format!("{name}.lock"))
    }

    /// Creates the directories. They must exist before the first job: a job could see what is created later.
    /// Blocks.
    pub(crate) fn prepare(&self) -> Result<()> {
        fs::create_dir_all(&self.root)?;
        fs::create_dir_all(&self.locks)
    }

    /// Creates an empty one. Blocks.
    pub(crate) fn make(&self) -> Result<ScratchDir> {
        self.prepare()?;
        let dir = self.root.join(Uuid::new_v4().to_string());
        let making = File::create(self.lock("installing"))?;
        making.lock()?;
        self.remove_stale();
        fs::create_dir(&dir)?;
        let lock = File::open(&dir)?;
        lock.try_lock()?;
        Ok(ScratchDir { dir, _lock: lock })
    }

    /// Call it only with the lock held.
    fn remove_stale(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let dir = entry.path();
            let Ok(lock) = File::open(&dir) else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && lock.try_lock().is_ok()
                && let Err(error) = fs::remove_dir_all(&dir)
            {
                tracing::warn!(dir = %dir.display(), %error, "an unfinished download could not be removed");
            }
        }
    }
}

impl ScratchDir {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "a scratch directory could not be removed");
        }
    }
}
