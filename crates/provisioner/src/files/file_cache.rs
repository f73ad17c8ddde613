//! Cache of files that were downloaded from servers for jobs: the modules of a template version, and bundle
//! content.
//!
//! ```text
//! files/by-id/<id on the server>   the hash of the content
//! files/content/<hash>             the content, verified on each use
//! ```
//!
//! Servers never change a file under its id, and ids are random. Daemons may share the directory: files are
//! moved in atomically. The least recently used files are evicted when the cache is full.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::keyed_mutex::KeyedMutex;

/// Unfinished files of killed processes are removed after this time.
const UNFINISHED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Default size limit.
pub(crate) const DEFAULT_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone)]
pub(crate) struct FileCache {
    root: PathBuf,
    max_bytes: u64,
    downloads: KeyedMutex<Uuid>,
}

impl FileCache {
    /// Caches at most `max_bytes` below `root`; 0 disables the cache.
    pub(crate) fn new(root: PathBuf, max_bytes: u64) -> Self {
        Self { root, max_bytes, downloads: KeyedMutex::default() }
    }

    /// Locks the download of a file. Of many jobs that need it one downloads, and the others find it in the
    /// cache.
    pub(crate) async fn lock_download(&self, id: Uuid) -> OwnedMutexGuard<()> {
        self.downloads.lock(id).await
    }

    /// The cached file, if its content is unchanged.
    pub(crate) async fn find(&self, id: Uuid, now: SystemTime) -> Option<Bytes> {
        let kept = self.clone();
        tokio::task::spawn_blocking(move || kept.read(id, now)).await.ok().flatten()
    }

    /// Stores a file. Errors are logged: the next job downloads it again.
    pub(crate) async fn store(&self, id: Uuid, content: Bytes, now: SystemTime) {
        let kept = self.clone();
        let keeping = tokio::task::spawn_blocking(move || kept.write(id, &content, now));
        if let Ok(Err(error)) = keeping.await {
            tracing::warn!(file = %id, %error, "a downloaded file could not be cached");
        }
    }

    /// Creates the directories. They must exist before the first job: a job could see what is created later.
    /// Blocks.
    pub(crate) fn prepare(&self) -> std::io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        for dir in ["by-id", "content"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(self.root.join(dir))?;
        }
        Ok(())
    }

    fn by_id(&self, id: Uuid) -> PathBuf {
        self.root.join("by-id").join(id.to_string())
    }

    fn content(&self, hash: &str) -> PathBuf {
        self.root.join("content").join(hash)
    }

    fn read(&self, id: Uuid, now: SystemTime) -> Option<Bytes> {
        if self.max_bytes == 0 {
            return None;
        }
        let hash = fs::read_to_string(self.by_id(id)).ok()?;
        if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let path = self.content(&hash);
        let content = fs::read(&path).ok()?;
        if hex::encode(Sha256::digest(&content)) != hash {
            tracing::warn!(file = %path.display(), "a cached file was changed; it is downloaded again");
            // Another daemon may have removed it already.
            let _ = fs::remove_file(&path);
            return None;
        }
        // If the time cannot be set, the entry is evicted too early, which is harmless.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(now));
        Some(Bytes::from(content))
    }

    fn write(&self, id: Uuid, content: &[u8], now: SystemTime) -> std::io::Result<()> {
        if content.len() as u64 > self.max_bytes {
            return Ok(());
        }
        self.prepare()?;
        let hash = hex::encode(Sha256::digest(content));
        self.make_room(content.len() as u64, &hash, now)?;
        let path = self.content(&hash);
        if !path.exists() {
            self.write_atomically(&path, content)?;
        }
        self.write_atomically(&self.by_id(id), hash.as_bytes())
    }

    /// Writes a file and moves it to its path.
    fn write_atomically(&self, path: &Path, content: &[u8]) -> std::io::Result<()> {
        let mut new = tempfile::Builder::new().prefix("new-").tempfile_in(&self.root)?;
        new.write_all(content)?;
        new.persist(path).map(drop).map_err(|error| error.error)
    }

    /// Evicts the least recently used files until `bytes` more fit.
    fn make_room(&self, bytes: u64, except: &str, now: SystemTime) -> std::io::Result<()> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.root.join("content"))?.flatten() {
            if let Ok(file) = entry.metadata()
                && entry.file_name() != except
            {
                all.push((file.modified().unwrap_or(SystemTime::UNIX_EPOCH), file.len(), entry.path()));
            }
        }
        all.sort();
        let mut total = bytes + all.iter().map(|(_, size, _)| size).sum::<u64>();
        let mut removed = false;
        for (_, size, path) in all {
            if total <= self.max_bytes {
                break;
            }
            remove(&path)?;
            total -= size;
            removed = true;
        }
        if removed {
            self.forget_ids()?;
        }
        self.remove_unfinished(now)
    }

    /// Removes ids whose content was evicted.
    fn forget_ids(&self) -> std::io::Result<()> {
        for entry in fs::read_dir(self.root.join("by-id"))?.flatten() {
            let hash = fs::read_to_string(entry.path()).unwrap_or_default();
            if !self.content(&hash).is_file() {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn remove_unfinished(&self, now: SystemTime) -> std::io::Result<()> {
        for entry in fs::read_dir(&self.root)?.flatten() {
            let is_new = entry.file_name().to_string_lossy().starts_with("new-");
            let age = entry.metadata().and_then(|file| file.modified()).map(|at| now.duration_since(at));
            if is_new && age.is_ok_and(|age| age.is_ok_and(|age| age > UNFINISHED_AFTER)) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Another daemon may remove the same file.
fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use coder_domain::clock::{Clock as _, SystemClock};

    use super::*;

    fn now() -> SystemTime {
        SystemTime::from(SystemClock.now())
    }

    fn kept(dir: &tempfile::TempDir, max_bytes: u64) -> FileCache {
        FileCache::new(dir.path().join("files"), max_bytes)
    }

    fn names(dir: &tempfile::TempDir, what: &str) -> usize {
        fs::read_dir(dir.path().join("files").join(what)).unwrap().count()
    }

    /// Sets an older time of use, so that the order does not depend on the clock's resolution.
    fn age(kept: &FileCache, content: &[u8], seconds: u64) {
        let path = kept.content(&hex::encode(Sha256::digest(content)));
        let at = now() - Duration::from_secs(seconds);
        fs::File::open(path).unwrap().set_modified(at).unwrap();
    }

    #[tokio::test]
    async fn a_file_is_found_by_its_id_and_content_is_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let kept = kept(&dir, 1000);
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        assert_eq!(kept.find(one, now()).await, None);
        let content = Bytes::from_static(b"modules");
        kept.store(one, content.clone(), now()).await;
        kept.store(two, content.clone(), now()).await;
        assert_eq!(
            (kept.find(one, now()).await, kept.find(two, now()).await),
            (Some(content.clone()), Some(content))
        );
        assert_eq!((names(&dir, "content"), names(&dir, "by-id")), (1, 2));
        assert_eq!(kept.find(Uuid::new_v4(), now()).await, None);
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o077;
        assert_eq!((mode(&kept.by_id(one)), mode(&kept.root.join("content"))), (0, 0));
    }

    #[tokio::test]
    async fn changed_content_is_not_found_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = kept(&dir, 1000);
        let id = Uuid::new_v4();
        kept.store(id, Bytes::from_static(b"modules"), now()).await;
        let path = kept.content(&hex::encode(Sha256::digest(b"modules")));
        fs::write(&path, "forged!").unwrap();
        assert_eq!(kept.find(id, now()).await, None);
        assert!(!path.exists());
        kept.store(id, Bytes::from_static(b"modules"), now()).await;
        assert!(kept.find(id, now()).await.is_some());
        // A hash cannot name a path outside the directory either.
        fs::write(kept.by_id(id), "../../../etc/passwd").unwrap();
        assert_eq!(kept.find(id, now()).await, None);
    }

    #[tokio::test]
    async fn least_recently_used_content_is_removed_first() {
        let dir = tempfile::tempdir().unwrap();
        let kept = kept(&dir, 250);
        let contents = [b'a', b'b', b'c'].map(|byte| Bytes::from(vec![byte; 100]));
        let ids = [0; 3].map(|_| Uuid::new_v4());
        for at in 0..2 {
            kept.store(ids[at], contents[at].clone(), now()).await;
            age(&kept, &contents[at], 100 - at as u64);
        }
        // The use makes it the most recent.
        assert!(kept.find(ids[0], now()).await.is_some());
        fs::write(kept.root.join("new-left"), "half").unwrap();
        let later = now() + UNFINISHED_AFTER * 2;
        kept.store(ids[2], contents[2].clone(), later).await;
        let found =
            [kept.find(ids[0], now()).await, kept.find(ids[1], now()).await, kept.find(ids[2], now()).await];
        assert_eq!(found.map(|found| found.is_some()), [true, false, true]);
        assert_eq!((names(&dir, "content"), names(&dir, "by-id")), (2, 2));
        assert!(!kept.root.join("new-left").exists());
        // A file above the size limit is not cached, and evicts nothing.
        let large = Uuid::new_v4();
        kept.store(large, Bytes::from(vec![0; 251]), now()).await;
        assert!(kept.find(large, now()).await.is_none() && kept.find(ids[2], now()).await.is_some());
    }

    #[tokio::test]
    async fn daemons_that_share_a_directory_do_not_disturb_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for daemon in 0..8_u8 {
            let kept = kept(&dir, 450);
            tasks.spawn(async move {
                for round in 0..20_u8 {
                    let number = (daemon + round) % 8;
                    let (id, content) = (Uuid::from_u128(u128::from(number)), Bytes::from(vec![number; 100]));
                    if let Some(found) = kept.find(id, now()).await {
                        assert_eq!(found, content);
                    } else {
                        kept.store(id, content, now()).await;
                    }
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let entries = fs::read_dir(dir.path().join("files")).unwrap().flatten();
        assert_eq!(entries.filter(|entry| entry.path().is_file()).count(), 0, "nothing half-made is left");
    }
}
