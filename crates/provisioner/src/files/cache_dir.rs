//! The daemon's cache directory: private to its user, and checked before the daemon acquires jobs.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Subdirectories that every daemon writes to (`terraform/cache/`, `job/workdir.rs`).
const SUBDIRECTORIES: [&str; 6] = ["work", "plugins", "installing", "init", "modules", EMPTY_DIR];

/// A directory that stays empty: jobs see it in the place of hidden ones.
pub(crate) const EMPTY_DIR: &str = "empty";

/// Why a cache directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} cannot be used: {reason}; give this daemon a directory of its own that its user may write to (--cache-dir)",
    dir.display()
)]
pub struct CacheError {
    /// The unusable path: the cache directory or a subdirectory.
    pub dir: PathBuf,
    /// The error of the operating system.
    pub reason: std::io::Error,
}

/// Creates a directory and its parents with mode 0700, whatever the umask is: whoever can write there could
/// make our jobs run their programs. An existing directory keeps its mode.
pub(crate) fn private_dirs(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The canonical path of a file or directory that need not exist yet: it contains no links.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing = Vec::new();
    for above in path.ancestors() {
        if let Ok(mut found) = above.canonicalize() {
            found.extend(missing.iter().rev());
            return found;
        }
        missing.extend(above.file_name());
    }
    path
}

/// Creates the directories and checks that this user can write to them. They must exist before the first job: a
/// job could see what is created later. Blocks.
///
/// # Errors
/// One of them cannot be created or written to; every job would fail.
pub(crate) fn prepare(cache: &Path) -> Result<(), CacheError> {
    for dir in SUBDIRECTORIES.map(|name| cache.join(name)) {
        let usable = private_dirs(&dir).and_then(|()| {
            // Another user may have created it with a mode that excludes this user.
            Ok(access(&dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?)
        });
        usable.map_err(|reason| CacheError { dir, reason })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn created_directories_are_private_and_unusable_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("a/cache");
        prepare(&cache).unwrap();
        prepare(&cache).unwrap();
        for path in ["a", "a/cache", "a/cache/work", "a/cache/plugins", "a/cache/installing", "a/cache/init"]
        {
            let mode = dir.path().join(path).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{path}");
        }
        std::os::unix::fs::symlink(dir.path().join("a"), dir.path().join("link")).unwrap();
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(resolve(&dir.path().join("link/cache")), real.join("a/cache"));
        assert_eq!(resolve(&dir.path().join("link/new/below")), real.join("a/new/below"));
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = prepare(&dir.path().join("file")).unwrap_err();
        assert_eq!(error.dir, dir.path().join("file/work"));
        assert!(error.to_string().contains("file/work cannot be used: Not a directory"), "{error}");
    }
}
