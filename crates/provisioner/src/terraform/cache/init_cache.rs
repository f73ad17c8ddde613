//! The init cache: initialized directories by the hash of their inputs, so that a template version is
//! initialized once per machine.
//!
//! An entry contains a copy of `.terraform` and of the lock file. Jobs get copies, so they cannot change the
//! entry. Providers are links into the plugin cache, as Terraform makes them. An entry and its providers have
//! seals; an entry with an invalid seal is discarded.

use std::fs::TryLockError;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::plugins;
use super::seal::Seals;
use crate::files::job_file::{JobFile, is_plain_dir};
use crate::terraform::binary::Binary;
use crate::terraform::command::environment::Environment;

pub(crate) const DATA: &str = ".terraform";
pub(crate) const PROVIDERS: &str = "providers";
pub(crate) const LOCK_FILE: &str = ".terraform.lock.hcl";
const MANIFEST: &str = "manifest.json";

/// Entries that no job has used for this time are removed.
const MAX_UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Directories with more files are not cached.
pub(crate) const MAX_FILES: usize = 100_000;

/// Longer lock files are ignored.
pub(crate) const MAX_LOCK_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Larger directories are not cached; copying them saves nothing.
pub(crate) const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Waiting for another `init` on this machine: how often to check, and when to continue without the shared
/// plugin cache. Many templates may wait behind large downloads, and each that continues alone repeats them;
/// only an `init` that hangs should be skipped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LOCK_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The key of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InitKey(String);

impl InitKey {
    /// Hashes all inputs of an `init` that are on this machine.
    pub(crate) fn of(
        template: &[u8],
        modules: Option<&[u8]>,
        binary: &Binary,
        environment: &Environment,
    ) -> Self {
        let mut sum = Sha256::new();
        let mut add = |part: &[u8]| {
            sum.update((part.len() as u64).to_be_bytes());
            sum.update(part);
        };
        add(template);
        add(modules.unwrap_or_default());
        add(binary.path.as_os_str().as_encoded_bytes());
        add(binary.product.to_string().as_bytes());
        add(binary.version.to_string().as_bytes());
        for (name, value) in environment.terraform_variables() {
            add(name.as_encoded_bytes());
            add(value.as_encoded_bytes());
        }
        add(&environment.cli_config());
        Self(hex::encode(sum.finalize()))
    }

    /// As hexadecimal digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn for_test(name: &str) -> Self {
        Self(hex::encode(Sha256::digest(name)))
    }
}

/// The identity of a file; only the kernel sets its change time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamp {
    path: PathBuf,
    size: u64,
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl FileStamp {
    fn of(path: PathBuf) -> std::io::Result<Self> {
        let file = path.symlink_metadata()?;
        Ok(Self {
            size: file.size(),
            inode: file.ino(),
            changed_s: file.ctime(),
            changed_ns: file.ctime_nsec(),
            path,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All files below a directory; links count as files.
    pub(crate) fn below(dir: &Path, most: usize, found: &mut Vec<Self>) -> std::io::Result<()> {
        let mut pending = vec![dir.to_owned()];
        while let Some(dir) = pending.pop() {
            for entry in dir.read_dir()? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    pending.push(entry.path());
                } else if found.len() < most {
                    found.push(Self::of(entry.path())?);
                } else {
                    return Err(std::io::Error::other(format!("it has more than {most} files")));
                }
            }
        }
        Ok(())
    }

    /// The same, sorted by path, for comparison.
    pub(crate) fn sorted_in(dir: &Path, most: usize) -> std::io::Result<Vec<Self>> {
        let mut found = Vec::new();
        Self::below(dir, most, &mut found)?;
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}

/// A provider of an entry.
#[derive(Debug, Serialize, Deserialize)]
struct CachedProvider {
    path: PathBuf,
    seal: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct EntryManifest {
    packages: Vec<CachedProvider>,
    /// Whether there is a provider or a remote module, of which a newer version may exist.
    fetched: bool,
    /// The seal of the entry, including this manifest.
    #[serde(default)]
    seal: String,
}

impl EntryManifest {
    /// What the seal covers besides the files of the entry.
    fn known(&self, entry: &Path) -> std::io::Result<Vec<u8>> {
        let lock = match JobFile::new(entry, LOCK_FILE).read(MAX_LOCK_FILE_BYTES) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            other => Some(other?),
        };
        let packages: Vec<_> = self.packages.iter().map(|package| (&package.path, &package.seal)).collect();
        Ok(serde_json::to_vec(&(packages, self.fetched, lock))?)
    }
}

/// What an entry is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitPurpose {
    /// A build uses the versions of its import.
    Build,
    /// An import uses the newest allowed versions, unless the template contains a lock file.
    Import { locked: bool },
}

/// The cached directories; daemons may share them. All methods block.
#[derive(Debug, Clone)]
pub(crate) struct InitCache {
    root: PathBuf,
    seals: Seals,
}

impl InitCache {
    pub(crate) const fn new(root: PathBuf, seals: Seals) -> Self {
        Self { root, seals }
    }

    fn entry(&self, key: &InitKey) -> PathBuf {
        self.root.join(&key.0)
    }

    /// Copies an entry into `dir`; returns false when there is no usable one.
    pub(crate) fn restore(&self, key: &InitKey, purpose: InitPurpose, dir: &Path, now: SystemTime) -> bool {
        let entry = self.entry(key);
        let Some(manifest) = std::fs::read(entry.join(MANIFEST)).ok() else { return false };
        let Ok(manifest) = serde_json::from_slice::<EntryManifest>(&manifest) else { return false };
        if manifest.fetched && purpose == (InitPurpose::Import { locked: false }) {
            return false;
        }
        if !self.has_valid_seal(&manifest, &entry) {
            tracing::warn!(entry = %entry.display(), "an entry of the init cache, or a provider of it in the plugin cache, was changed; the template is initialized again");
            let _ = std::fs::remove_dir_all(&entry);
            return false;
        }
        match copy_tree(&entry.join(DATA), &dir.join(DATA)).and_then(|_| copy_lock(&entry, dir)) {
            Ok(()) => {
                // Sets the time of use, for the removal of unused modules.
                let touched = std::fs::File::open(&entry).and_then(|file| file.set_modified(now));
                if let Err(error) = touched {
                    tracing::debug!(%error, "an entry's time cannot be set");
                }
                manifest.packages.iter().for_each(|package| plugins::mark_used(&package.path, now));
                true
            }
            Err(error) => {
                tracing::warn!(entry = %entry.display(), %error, "an entry of the init cache cannot be used");
                let _ = std::fs::remove_dir_all(dir.join(DATA));
                false
            }
        }
    }

    /// Whether an entry and its providers are unchanged.
    fn has_valid_seal(&self, manifest: &EntryManifest, entry: &Path) -> bool {
        let is_own = || {
            let known = manifest.known(entry);
            known.is_ok_and(|known| self.seals.verify(&entry.join(DATA), &known, &manifest.seal))
        };
        manifest.packages.iter().all(|package| self.seals.verify(&package.path, &[], &package.seal))
            && is_own()
    }

    /// Stores what `init` has created in `dir`, atomically.
    pub(crate) fn store(&self, key: &InitKey, dir: &Path, now: SystemTime) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.root)?;
        self.remove_stale(now);
        let new = self.root.join(format!("new-{}", Uuid::new_v4()));
        let stored = self.fill(&new, &self.entry(key), dir).and_then(|()| {
            // Another daemon may have been faster; its entry is equivalent.
            std::fs::rename(&new, self.entry(key)).or_else(|_| std::fs::remove_dir_all(&new))
        });
        if stored.is_err() {
            let _ = std::fs::remove_dir_all(&new);
        }
        stored
    }

    fn fill(&self, new: &Path, entry: &Path, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(new)?;
        let mut manifest = EntryManifest::default();
        let data = dir.join(DATA);
        if is_plain_dir(dir, Path::new(DATA)) {
            if total_bytes(&data)? > MAX_BYTES {
                return Err(std::io::Error::other("it is too large for the cache"));
            }
            copy_tree(&data, &new.join(DATA))?;
            // Only these links are followed; the targets of others are not the daemon's concern.
            for link in plugins::links(&data.join(PROVIDERS)) {
                let package = std::fs::canonicalize(link)?;
                let seal = self.seals.make(&package, &[])?;
                manifest.packages.push(CachedProvider { path: package, seal });
            }
        } else if data.symlink_metadata().is_ok() {
            return Err(std::io::Error::other(format!("{DATA} is not a directory")));
        } else {
            std::fs::create_dir_all(new.join(DATA))?;
        }
        manifest.fetched = !manifest.packages.is_empty()
            || data.join(PROVIDERS).exists()
            || data.join("modules").read_dir().is_ok_and(|entries| entries.count() > 1);
        copy_lock(dir, new)?;
        manifest.seal = self.seals.make_at(&new.join(DATA), &entry.join(DATA), &manifest.known(new)?)?;
        std::fs::write(new.join(MANIFEST), serde_json::to_vec(&manifest)?)
    }

    fn remove_stale(&self, now: SystemTime) {
        for entry in self.root.read_dir().into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|entry| entry.modified()).ok();
            let age = modified.and_then(|at| now.duration_since(at).ok());
            // Lock files are not entries.
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && age.is_some_and(|age| age > MAX_UNUSED)
                && let Err(error) = std::fs::remove_dir_all(entry.path())
            {
                tracing::debug!(%error, "an unused entry of the init cache could not be removed");
            }
        }
    }
}

/// A file lock for work that must not run twice at once: initializing a template, downloading providers. All
/// processes of the machine respect it; the operating system releases it with its holder.
#[derive(Debug)]
pub(crate) struct FileLock {
    _lock: std::fs::File,
}

impl FileLock {
    /// Waits for the lock of a file; `None` when its holder takes too long.
    pub(crate) async fn wait(path: &Path) -> std::io::Result<Option<Self>> {
        let until = tokio::time::Instant::now() + LOCK_TIMEOUT;
        loop {
            let lock = std::fs::File::create(path)?;
            match lock.try_lock() {
                Ok(()) => return Ok(Some(Self { _lock: lock })),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if tokio::time::Instant::now() >= until {
                return Ok(None);
            }
            // A blocking lock could not be canceled with the job.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn copy_lock(from: &Path, to: &Path) -> std::io::Result<()> {
    match JobFile::new(from, LOCK_FILE).read(MAX_LOCK_FILE_BYTES) {
        Ok(content) => JobFile::new(to, LOCK_FILE).write(&content),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies a directory; links stay links.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut pending = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = pending.pop() {
        std::fs::create_dir_all(&to)?;
        for entry in from.read_dir()? {
            let entry = entry?;
            let (source, target) = (entry.path(), to.join(entry.file_name()));
            let kind = entry.file_type()?;
            if kind.is_dir() {
                pending.push((source, target));
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(std::fs::read_link(&source)?, target)?;
            } else if kind.is_file() {
                std::fs::copy(source, target)?;
            }
        }
    }
    Ok(())
}

/// Total size of the files in a directory, without the targets of links.
pub(crate) fn total_bytes(dir: &Path) -> std::io::Result<u64> {
    let mut files = Vec::new();
    FileStamp::below(dir, MAX_FILES, &mut files)?;
    Ok(files.iter().map(|file| file.size).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terraform::binary::{BinaryOrigin, Product, Version};

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn binary() -> Binary {
        Binary {
            path: "/bin/terraform".into(),
            version: Version::parse("1.11.4").unwrap(),
            product: Product::Terraform,
            origin: BinaryOrigin::Configured,
        }
    }

    fn key(template: &str) -> InitKey {
        InitKey::of(template.as_bytes(), None, &binary(), &Environment::of_daemon())
    }

    /// A directory as `init` leaves it, with a provider in a plugin cache beside it.
    fn initialised(root: &Path) -> (PathBuf, PathBuf) {
        let (dir, package) = (root.join("job"), root.join("plugins/host/ns/type/1.0.0/linux_amd64"));
        let link = dir.join(".terraform/providers/host/ns/type/1.0.0/linux_amd64");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::fs::write(package.join("provider"), "program").unwrap();
        std::os::unix::fs::symlink(&package, link).unwrap();
        std::fs::create_dir_all(dir.join(".terraform/modules/m")).unwrap();
        std::fs::write(dir.join(".terraform/modules/m/main.tf"), "module").unwrap();
        std::fs::write(dir.join(LOCK_FILE), "lock").unwrap();
        (dir, package.join("provider"))
    }

    fn prepared(root: &Path) -> InitCache {
        InitCache::new(root.join("init"), Seals::of(root))
    }

    #[test]
    fn a_job_that_writes_into_its_copy_changes_no_other() {
        let root = tempfile::tempdir().unwrap();
        let (dir, _) = initialised(root.path());
        let prepared = prepared(root.path());
        prepared.store(&key("a"), &dir, NOW).unwrap();
        prepared.store(&key("a"), &dir, NOW).unwrap();
        let module = |job: &Path| job.join(".terraform/modules/m/main.tf");
        for name in ["one", "two"] {
            let job = root.path().join(name);
            std::fs::create_dir(&job).unwrap();
            assert!(prepared.restore(&key("a"), InitPurpose::Build, &job, NOW));
            assert_eq!(std::fs::read_to_string(module(&job)).unwrap(), "module");
            assert_eq!(std::fs::read_to_string(job.join(LOCK_FILE)).unwrap(), "lock");
            let provider = job.join(".terraform/providers/host/ns/type/1.0.0/linux_amd64/provider");
            assert_eq!(std::fs::read_to_string(provider).unwrap(), "program");
            std::fs::write(module(&job), "changed").unwrap();
            std::fs::remove_file(job.join(LOCK_FILE)).unwrap();
        }
        assert!(!prepared.restore(&key("b"), InitPurpose::Build, &root.path().join("three"), NOW));
    }

    #[test]
    fn a_provider_that_was_touched_is_not_used_again() {
        let root = tempfile::tempdir().unwrap();
        let (dir, provider) = initialised(root.path());
        let prepared = prepared(root.path());
        prepared.store(&key("a"), &dir, NOW).unwrap();
        let modified = provider.metadata().unwrap().modified().unwrap();
        std::fs::write(&provider, "PROGRAM").unwrap();
        std::fs::File::options().write(true).open(&provider).unwrap().set_modified(modified).unwrap();
        assert!(!prepared.restore(&key("a"), InitPurpose::Build, &root.path().join("one"), NOW));
        // A process that sees it for the first time rejects it too, whatever was written into the entry.
        std::fs::write(&provider, "program").unwrap();
        prepared.store(&key("a"), &dir, NOW).unwrap();
        let of_later = || self::prepared(root.path());
        let job = |name: &str| {
            let job = root.path().join(name);
            std::fs::create_dir(&job).unwrap();
            of_later().restore(&key("a"), InitPurpose::Build, &job, NOW)
        };
        assert!(job("two"));
        std::fs::write(&provider, "PROGRAM").unwrap();
        assert!(!job("three"));
        for (name, content) in [
            (".terraform/modules/m/main.tf", "hostile"),
            (LOCK_FILE, "hostile"),
            (MANIFEST, "{\"packages\":[],\"fetched\":false,\"seal\":\"00\"}"),
        ] {
            std::fs::write(&provider, "program").unwrap();
            prepared.store(&key("a"), &dir, NOW).unwrap();
            std::fs::write(root.path().join("init").join(key("a").as_str()).join(name), content).unwrap();
            assert!(!job(&format!("{} {content}", name.replace('/', " "))), "{name}");
        }
    }

    #[test]
    fn an_import_takes_the_newest_unless_it_is_locked() {
        let root = tempfile::tempdir().unwrap();
        let (dir, _) = initialised(root.path());
        let prepared = prepared(root.path());
        prepared.store(&key("a"), &dir, NOW).unwrap();
        let bare = root.path().join("bare");
        std::fs::create_dir(&bare).unwrap();
        prepared.store(&key("bare"), &bare, NOW).unwrap();
        let check = |name: &str, purpose, wanted| {
            let job = root.path().join(Uuid::new_v4().to_string());
            std::fs::create_dir(&job).unwrap();
            assert_eq!(prepared.restore(&key(name), purpose, &job, NOW), wanted, "{name} {purpose:?}");
        };
        check("a", InitPurpose::Import { locked: false }, false);
        check("a", InitPurpose::Import { locked: true }, true);
        check("bare", InitPurpose::Import { locked: false }, true);
        check("bare", InitPurpose::Build, true);
    }

    #[test]
    fn links_made_by_a_job_are_not_followed_into_the_cache() {
        let root = tempfile::tempdir().unwrap();
        let prepared = prepared(root.path());
        let other = root.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("state"), "SECRET").unwrap();
        // A link is stored as a link, and nobody follows it: it may lead anywhere.
        let (dir, _) = initialised(root.path());
        std::os::unix::fs::symlink("/", dir.join(".terraform/modules/m/link")).unwrap();
        prepared.store(&key("a"), &dir, NOW).unwrap();
        let job = root.path().join("restored");
        std::fs::create_dir(&job).unwrap();
        assert!(prepared.restore(&key("a"), InitPurpose::Build, &job, NOW));
        assert!(job.join(".terraform/modules/m/link").is_symlink());
        for name in [DATA, LOCK_FILE] {
            let dir = root.path().join(format!("job of {name}"));
            std::fs::create_dir(&dir).unwrap();
            std::os::unix::fs::symlink(&other, dir.join(name)).unwrap();
            assert!(prepared.store(&key(name), &dir, NOW).is_err(), "{name}");
            assert!(!prepared.restore(&key(name), InitPurpose::Build, &job, NOW));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_fills_the_plugin_cache() {
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().join("plugins");
        let turn = FileLock::wait(&cache).await.unwrap().unwrap();
        assert!(FileLock::wait(&cache).await.unwrap().is_none(), "nobody waits for ever");
        drop(turn);
        assert!(FileLock::wait(&cache).await.unwrap().is_some());
    }
}
