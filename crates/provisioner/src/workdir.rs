//! The directory of one job, and the removal of those that earlier daemons left behind.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

const PREFIX: &str = "Session";

/// Leftovers of daemons that were killed are removed after this time (terraform 1.3).
const STALE_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Directories of one job; removed when dropped.
#[derive(Debug)]
pub(crate) struct WorkDir {
    root: PathBuf,
}

impl WorkDir {
    /// Makes fresh private directories below `parent`. Blocks, so call it off the async threads.
    pub(crate) fn create(parent: &Path, now: SystemTime) -> std::io::Result<Self> {
        private_dirs(parent)?;
        remove_stale(parent, now);
        let root = std::path::absolute(parent)?.join(format!("{PREFIX}{}", Uuid::new_v4()));
        private_dirs(&root.join("template"))?;
        private_dirs(&root.join("private"))?;
        Ok(Self { root })
    }

    /// Where the template is unpacked and Terraform runs.
    pub(crate) fn template(&self) -> PathBuf {
        self.root.join("template")
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
        self.template().join("terraform.tfstate")
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
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

/// Removes directories of jobs that nobody has touched for a week.
fn remove_stale(parent: &Path, now: SystemTime) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let age =
            entry.metadata().and_then(|file| file.modified()).ok().and_then(|at| now.duration_since(at).ok());
        if ours
            && age.is_some_and(|age| age > STALE_AFTER)
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(dir = %entry.path().display(), %error, "an old job's directory could not be removed");
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
}
