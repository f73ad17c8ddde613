//! Keeps the plugin cache from growing for ever (terraform 1.6).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A provider that no job has used for so long is removed.
const STALE_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A provider lies at host/namespace/type/version/platform.
const DEPTH: usize = 5;

/// Removes providers in which nothing was touched for a month, and the directories that are empty then. Trouble with
/// single entries is logged; the cache is only a cache. Blocks, so call it off the async threads.
pub(crate) fn remove_stale(cache: &Path, now: SystemTime) {
    for plugin in at_depth(cache, DEPTH) {
        let stale =
            newest(&plugin).and_then(|at| now.duration_since(at).ok()).is_some_and(|age| age > STALE_AFTER);
        if !stale {
            continue;
        }
        if let Err(error) = std::fs::remove_dir_all(&plugin) {
            tracing::warn!(plugin = %plugin.display(), %error, "an old plugin could not be removed");
            continue;
        }
        tracing::info!(plugin = %plugin.display(), "a plugin that was not used for 30 days was removed");
        for parent in plugin.ancestors().skip(1).take(DEPTH - 1) {
            // Fails where something else is left, which ends the tidying there.
            if std::fs::remove_dir(parent).is_err() {
                break;
            }
        }
    }
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn at_depth(root: &Path, depth: usize) -> Vec<PathBuf> {
    let mut level = vec![root.to_owned()];
    for _ in 0..depth {
        level = level.iter().flat_map(|path| directories(path)).collect();
    }
    level
}

/// When anything inside was last modified.
fn newest(root: &Path) -> Option<SystemTime> {
    let mut newest = None;
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = std::fs::symlink_metadata(&path).ok()?;
        newest = newest.max(metadata.modified().ok());
        if metadata.is_dir() {
            pending.extend(std::fs::read_dir(&path).ok()?.flatten().map(|entry| entry.path()));
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unused_providers_go() {
        let cache = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let dir = cache.path().join(path);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("provider"), "x").unwrap();
            dir
        };
        let old = make("registry/ns/old/1.0.0/linux_amd64");
        let used = make("registry/ns/used/1.0.0/linux_amd64");
        let other = make("registry/notes");
        let now = old.metadata().unwrap().modified().unwrap();
        remove_stale(cache.path(), now);
        assert!(old.exists());
        let later = now + STALE_AFTER + Duration::from_secs(3600);
        let touched = std::fs::File::options().write(true).open(used.join("provider")).unwrap();
        touched.set_modified(later).unwrap();
        remove_stale(cache.path(), later);
        assert!(!old.exists() && used.exists() && other.exists());
        assert!(!cache.path().join("registry/ns/old").exists());
    }
}
