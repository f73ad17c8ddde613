//! Seals tell what a daemon has put into its cache from what others have put there. The seal of a directory is
//! a MAC over the content of all its files, with a key of the cache that no job can read.
//!
//! Size, inode and times of a file prove nothing: they only save reading it again within this process, while
//! the directories are masked or read-only for jobs (`isolation/`).

use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ring::rand::SecureRandom as _;
use ring::{digest, hmac, rand};

use super::init_cache::{FileStamp, MAX_FILES};

const KEY: &str = "key";
const KEY_BYTES: usize = 32;
const READ_BYTES: usize = 1 << 20;

/// Beyond this many directories content is read again.
const MAX_CACHED: usize = 4096;

/// The seals of a cache directory; clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Seals(Arc<SealState>);

struct SealState {
    cache: PathBuf,
    key: OnceLock<hmac::Key>,
    read: Mutex<HashMap<PathBuf, HashedDirectory>>,
}

/// The hash of a directory that this process has read.
struct HashedDirectory {
    /// The files before and after reading.
    files: Vec<FileStamp>,
    hash: Vec<u8>,
}

impl std::fmt::Debug for SealState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Seals {
    pub(crate) fn of(cache: &Path) -> Self {
        let shared = SealState { cache: cache.to_owned(), key: OnceLock::new(), read: Mutex::default() };
        Self(Arc::new(shared))
    }

    /// The seal of a directory and its `metadata`. Blocks.
    pub(crate) fn make(&self, dir: &Path, known: &[u8]) -> Result<String> {
        self.make_at(dir, dir, known)
    }

    /// The seal of a directory that will be moved to `place`. Blocks.
    pub(crate) fn make_at(&self, dir: &Path, place: &Path, known: &[u8]) -> Result<String> {
        let message = self.message(place, known, &self.content(dir)?);
        Ok(hex::encode(hmac::sign(self.key()?, &message)))
    }

    /// Whether a directory is unchanged since its seal was made. Blocks.
    pub(crate) fn verify(&self, dir: &Path, known: &[u8], seal: &str) -> bool {
        let Ok(seal) = hex::decode(seal) else { return false };
        let Ok(content) = self.content(dir) else { return false };
        let Ok(key) = self.key() else { return false };
        hmac::verify(key, &self.message(dir, known, &content), &seal).is_ok()
    }

    /// The sealed message. It contains the path, so that a directory cannot replace another one together with
    /// its seal.
    fn message(&self, place: &Path, known: &[u8], content: &[u8]) -> Vec<u8> {
        let place = place.strip_prefix(&self.0.cache).unwrap_or(place);
        let mut message = Vec::new();
        push_part(&mut message, place.as_os_str().as_bytes());
        push_part(&mut message, known);
        push_part(&mut message, content);
        message
    }

    fn content(&self, dir: &Path) -> Result<Vec<u8>> {
        let before = FileStamp::sorted_in(dir, MAX_FILES)?;
        let read = || self.0.read.lock();
        if let Some(content) = read().get(dir)
            && content.files == before
        {
            return Ok(content.hash.clone());
        }
        let hash = content(dir, &before)?;
        if FileStamp::sorted_in(dir, MAX_FILES)? != before {
            return Err(Error::other("it changed while it was read"));
        }
        let mut read = read();
        if read.len() >= MAX_CACHED {
            read.clear();
        }
        read.insert(dir.to_owned(), HashedDirectory { files: before, hash: hash.clone() });
        Ok(hash)
    }

    fn key(&self) -> Result<&hmac::Key> {
        if let Some(key) = self.0.key.get() {
            return Ok(key);
        }
        let key = read_key(&self.0.cache.join(KEY))?;
        Ok(self.0.key.get_or_init(|| key))
    }
}

/// Removes the key of a cache whose content may come from somebody who knows the key. Blocks.
pub(crate) fn forget_key(cache: &Path) -> Result<()> {
    match std::fs::remove_file(cache.join(KEY)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads the key of a cache, and creates it if it is missing.
fn read_key(file: &Path) -> Result<hmac::Key> {
    let parent = file.parent().ok_or(ErrorKind::InvalidInput)?;
    if file.symlink_metadata().is_err() {
        let mut fresh = [0; KEY_BYTES];
        rand::SystemRandom::new().fill(&mut fresh).map_err(|_| Error::other("no random numbers"))?;
        std::fs::create_dir_all(parent)?;
        // Private, and atomic.
        let mut new = tempfile::Builder::new().prefix("new-key-").tempfile_in(parent)?;
        new.write_all(&fresh)?;
        match new.persist_noclobber(file) {
            // Another daemon was faster.
            Err(error) if error.error.kind() != ErrorKind::AlreadyExists => return Err(error.error),
            _ => {}
        }
    }
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits();
    let open = File::options().read(true).custom_flags(no_link.cast_signed()).open(file)?;
    let about = open.metadata()?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o077 == 0;
    let mut key = Vec::new();
    open.take(KEY_BYTES as u64 + 1).read_to_end(&mut key)?;
    if !about.is_file() || !is_own || key.len() != KEY_BYTES {
        return Err(Error::other(format!("{} is not a key of this user", file.display())));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

/// Hashes names, link targets, modes and content of all files.
fn content(dir: &Path, files: &[FileStamp]) -> Result<Vec<u8>> {
    let mut list = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; READ_BYTES];
    for file in files {
        let path = file.path();
        let about = path.symlink_metadata()?;
        let (kind, of_file) = if about.is_symlink() {
            ("link", std::fs::read_link(path)?.as_os_str().as_bytes().to_vec())
        } else if about.is_file() {
            let kind = if about.mode() & 0o111 == 0 { "file" } else { "program" };
            (kind, hash(File::open(path)?, &mut buffer)?)
        } else {
            return Err(Error::other(format!("{} is neither a file nor a link", path.display())));
        };
        let mut entry = Vec::new();
        let name = path.strip_prefix(dir).map_err(Error::other)?;
        for part in [name.as_os_str().as_bytes(), kind.as_bytes(), &of_file] {
            push_part(&mut entry, part);
        }
        list.update(&entry);
    }
    Ok(list.finish().as_ref().to_vec())
}

fn hash(mut file: File, buffer: &mut [u8]) -> Result<Vec<u8>> {
    let mut sum = digest::Context::new(&digest::SHA256);
    loop {
        match file.read(buffer)? {
            0 => return Ok(sum.finish().as_ref().to_vec()),
            read => sum.update(&buffer[..read]),
        }
    }
}

/// Prefixes the length, so that parts cannot be split differently.
fn push_part(message: &mut Vec<u8>, part: &[u8]) {
    message.extend((part.len() as u64).to_be_bytes());
    message.extend(part);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A cache with one provider.
    fn cache() -> (tempfile::TempDir, PathBuf) {
        let cache = tempfile::tempdir().unwrap();
        let package = cache.path().join("plugins/one");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("provider"), "program").unwrap();
        (cache, package)
    }

    /// Another process, which has not read anything yet.
    fn later(cache: &tempfile::TempDir) -> Seals {
        Seals::of(cache.path())
    }

    #[test]
    fn change_of_the_content_breaks_the_seal_whatever_the_times_say() {
        let (cache, package) = cache();
        let seal = later(&cache).make(&package, b"known").unwrap();
        assert!(later(&cache).verify(&package, b"known", &seal));
        assert!(
            !later(&cache).verify(&package, b"other", &seal)
                && !later(&cache).verify(&package, b"known", "00")
        );
        let file = package.join("provider");
        let at = file.metadata().unwrap().modified().unwrap();
        let write = |content: &str| {
            std::fs::write(&file, content).unwrap();
            File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        };
        let running = later(&cache);
        assert!(running.verify(&package, b"known", &seal));
        write("PROGRAM");
        assert!(!later(&cache).verify(&package, b"known", &seal));
        assert!(
            !running.verify(&package, b"known", &seal),
            "not in the process either that has read it before"
        );
        write("program");
        assert!(later(&cache).verify(&package, b"known", &seal), "the content alone counts");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!later(&cache).verify(&package, b"known", &seal), "it is a program now");
    }

    #[test]
    fn files_that_are_added_or_made_links_break_the_seal() {
        let (cache, package) = cache();
        let seal = later(&cache).make(&package, b"").unwrap();
        std::fs::write(package.join("more"), "").unwrap();
        assert!(!later(&cache).verify(&package, b"", &seal));
        std::fs::remove_file(package.join("more")).unwrap();
        std::fs::rename(package.join("provider"), cache.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(cache.path().join("elsewhere"), package.join("provider")).unwrap();
        assert!(!later(&cache).verify(&package, b"", &seal));
    }

    #[test]
    fn key_of_another_length_is_rejected() {
        let (cache, package) = cache();
        let key = cache.path().join(KEY);
        for (length, is_key) in [(0, false), (31, false), (32, true), (33, false)] {
            std::fs::write(&key, vec![7; length]).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(later(&cache).make(&package, b"").is_ok(), is_key, "{length} bytes");
        }
    }

    /// Daemons that start together use the key of the fastest.
    #[test]
    fn all_daemons_of_a_cache_have_one_key() {
        const DAEMONS: usize = 8;
        for _ in 0..20 {
            let (cache, package) = cache();
            let start = std::sync::Barrier::new(DAEMONS);
            let make = || {
                start.wait();
                later(&cache).make(&package, b"").unwrap()
            };
            let seals: Vec<String> = std::thread::scope(|scope| {
                let daemons: Vec<_> = (0..DAEMONS).map(|_| scope.spawn(make)).collect();
                daemons.into_iter().map(|daemon| daemon.join().unwrap()).collect()
            });
            assert!(seals.iter().all(|seal| *seal == seals[0]), "{seals:?}");
        }
    }

    #[test]
    fn key_that_cannot_be_removed_is_an_error() {
        let cache = tempfile::tempdir().unwrap();
        std::fs::create_dir(cache.path().join(KEY)).unwrap();
        forget_key(cache.path()).unwrap_err();
    }

    #[test]
    fn seal_is_good_for_one_place_and_with_one_key() {
        let (cache, package) = cache();
        let seal = later(&cache).make(&package, b"").unwrap();
        let moved = cache.path().join("plugins/two");
        std::fs::rename(&package, &moved).unwrap();
        assert!(!later(&cache).verify(&moved, b"", &seal));
        std::fs::rename(&moved, &package).unwrap();
        assert!(later(&cache).verify(&package, b"", &seal));
        let key = cache.path().join(KEY);
        assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        forget_key(cache.path()).unwrap();
        forget_key(cache.path()).unwrap();
        assert!(!later(&cache).verify(&package, b"", &seal));
        // A key that others could have written is rejected.
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        later(&cache).make(&package, b"").unwrap_err();
        std::fs::remove_file(&key).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &key).unwrap();
        later(&cache).make(&package, b"").unwrap_err();
    }
}
