//! The module cache: modules that were fetched, kept for all jobs of a machine.
//!
//! ```text
//! modules/<hash>/       a package as it was downloaded
//! modules/<hash>.json   Terraform's entry for it, and its seal
//! ```
//!
//! Only immutable content is cached: a version in a registry, a commit of a repository, an archive with the
//! server's entity tag. What a source currently refers to is resolved each time (`steps/module_fetch.rs`),
//! which downloads nothing. Jobs get copies and do not see this directory, because a module may be meant only
//! for those who know its source.

pub(crate) mod archive;
pub(crate) mod calls;
pub(crate) mod registry;
pub(crate) mod repository;
pub(crate) mod source;

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::init_cache::{MAX_BYTES, copy_tree, total_bytes};
use super::seal::Seals;
use crate::files::job_file::is_plain_dir;
use crate::terraform::binary::Product;
use crate::terraform::template::modules::{MODULES, ModuleEntry};

/// A server that takes longer is left to Terraform.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Modules that no job has used for this time are removed.
const MAX_UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The cached modules; daemons may share them. All methods block.
#[derive(Debug, Clone)]
pub(crate) struct ModuleCache {
    root: PathBuf,
    seals: Seals,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleKey(String);

impl ModuleKey {
    /// `pin` tells the content from what the source referred to at other times.
    pub(crate) fn of(product: Product, source: &str, pin: &str) -> Self {
        let mut sum = Sha256::new();
        for part in [product.word(), source, pin] {
            sum.update((part.len() as u64).to_be_bytes());
            sum.update(part);
        }
        Self(hex::encode(sum.finalize()))
    }

    /// As hexadecimal digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct ModuleRecord {
    /// As in Terraform's module manifest.
    source: String,
    version: String,
    /// The module's directory in the package.
    folder: PathBuf,
    seal: String,
}

impl ModuleRecord {
    /// What the seal covers besides the files.
    fn known(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(&(&self.source, &self.version, &self.folder))?)
    }
}

impl ModuleCache {
    pub(crate) const fn new(root: PathBuf, seals: Seals) -> Self {
        Self { root, seals }
    }

    /// Copies a module into a template's directory under the key `key`, and returns its manifest entry; `None`
    /// when it is not cached, or its content has changed.
    pub(crate) fn restore(
        &self,
        name: &ModuleKey,
        key: &str,
        template: &Path,
        now: SystemTime,
    ) -> Result<Option<ModuleEntry>> {
        let Some(record) = self.record(name) else { return Ok(None) };
        let package = self.root.join(&name.0);
        if !self.seals.verify(&package, &record.known()?, &record.seal) {
            tracing::warn!(module = record.source, "a module in the cache was changed; it is fetched again");
            self.remove(name)?;
            return Ok(None);
        }
        let relative = Path::new(MODULES).join(key);
        fs::create_dir_all(template.join(MODULES))?;
        if !is_plain_dir(template, Path::new(MODULES)) || template.join(&relative).symlink_metadata().is_ok()
        {
            return Err(Error::from(ErrorKind::AlreadyExists));
        }
        copy_tree(&package, &template.join(&relative))?;
        self.used(name, now);
        let dir = relative.join(&record.folder);
        let dir = dir.to_str().ok_or(ErrorKind::InvalidData)?.trim_end_matches('/').to_owned();
        Ok(Some(ModuleEntry { key: key.to_owned(), source: record.source, version: record.version, dir }))
    }

    /// Moves a module from `fetched`, where Terraform has put it as `entry`, into the cache. All programs that
    /// ran there must have ended. The move is atomic.
    pub(crate) fn store(
        &self,
        name: &ModuleKey,
        fetched: &Path,
        entry: &ModuleEntry,
        now: SystemTime,
    ) -> Result<()> {
        if self.record(name).is_some() {
            // Another daemon was faster.
            return Ok(());
        }
        let relative = Path::new(MODULES).join(&entry.key);
        let folder = Path::new(&entry.dir).strip_prefix(&relative).map_err(Error::other)?;
        if !is_plain_dir(fetched, &relative.join(folder)) {
            return Err(Error::other("it is not a directory"));
        }
        let package = fetched.join(&relative);
        match fs::remove_dir_all(package.join(".git")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if total_bytes(&package)? > MAX_BYTES {
            return Err(Error::other("it is too large for the cache"));
        }
        fs::create_dir_all(&self.root)?;
        self.remove_stale(now);
        self.remove(name)?;
        let place = self.root.join(&name.0);
        fs::rename(&package, &place)?;
        let mut record = ModuleRecord {
            source: entry.source.clone(),
            version: entry.version.clone(),
            folder: folder.to_owned(),
            seal: String::new(),
        };
        record.seal = self.seals.make(&place, &record.known()?)?;
        let new = self.record_file(name).with_extension("new");
        fs::write(&new, serde_json::to_vec(&record)?)?;
        fs::rename(new, self.record_file(name))?;
        self.used(name, now);
        Ok(())
    }

    /// Sets the time of use, for the removal of unused modules.
    fn used(&self, name: &ModuleKey, now: SystemTime) {
        let record = fs::File::options().write(true).open(self.record_file(name));
        if let Err(error) = record.and_then(|record| record.set_modified(now)) {
            tracing::debug!(%error, "a module's time cannot be set");
        }
    }

    fn record_file(&self, name: &ModuleKey) -> PathBuf {
        self.root.join(format!("{}.json", name.0))
    }

    fn record(&self, name: &ModuleKey) -> Option<ModuleRecord> {
        serde_json::from_slice(&fs::read(self.record_file(name)).ok()?).ok()
    }

    /// The record first: without it the directory is ignored.
    fn remove(&self, name: &ModuleKey) -> Result<()> {
        let missing = |result: Result<()>| match result {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        missing(fs::remove_file(self.record_file(name)))?;
        missing(fs::remove_dir_all(self.root.join(&name.0)))
    }

    fn remove_stale(&self, now: SystemTime) {
        for entry in self.root.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            let name =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
            let modified = entry.metadata().and_then(|entry| entry.modified()).ok();
            let age = modified.and_then(|at| now.duration_since(at).ok());
            if let Some(name) = name
                && age.is_some_and(|age| age > MAX_UNUSED)
                && let Err(error) = self.remove(&ModuleKey(name.to_owned()))
            {
                tracing::debug!(%error, "an unused module could not be removed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn name(source: &str) -> ModuleKey {
        ModuleKey::of(Product::Terraform, source, "1.0.0")
    }

    /// A directory as `terraform get` leaves it.
    fn fetched(root: &Path) -> (PathBuf, ModuleEntry) {
        let dir = root.join("fetched");
        let package = dir.join(MODULES).join("m");
        fs::create_dir_all(package.join("sub")).unwrap();
        fs::create_dir_all(package.join(".git")).unwrap();
        fs::write(package.join(".git/config"), "url = https://token@example.test").unwrap();
        fs::write(package.join("sub/main.tf"), "module").unwrap();
        let entry = ModuleEntry {
            key: "m".to_owned(),
            source: "registry.terraform.io/a/b/c".to_owned(),
            version: "1.0.0".to_owned(),
            dir: format!("{MODULES}/m/sub"),
        };
        (dir, entry)
    }

    fn kept(root: &Path) -> ModuleCache {
        let (dir, entry) = fetched(root);
        let kept = ModuleCache::new(root.join("modules"), Seals::of(root));
        kept.store(&name("a"), &dir, &entry, NOW).unwrap();
        kept
    }

    #[test]
    fn a_module_is_copied_to_wherever_it_is_called() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept(root.path());
        for (template, key) in [("one", "m"), ("two", "outer.inner")] {
            let template = root.path().join(template);
            let entry = kept.restore(&name("a"), key, &template, NOW).unwrap().unwrap();
            assert_eq!(entry.dir, format!("{MODULES}/{key}/sub"));
            assert_eq!((&*entry.source, &*entry.version), ("registry.terraform.io/a/b/c", "1.0.0"));
            let file = template.join(&entry.dir).join("main.tf");
            assert_eq!(fs::read_to_string(&file).unwrap(), "module");
            assert!(!template.join(MODULES).join(key).join(".git").exists());
            fs::write(file, "changed").unwrap();
        }
        assert!(kept.restore(&name("b"), "m", &root.path().join("three"), NOW).unwrap().is_none());
        // Existing content is not overwritten.
        kept.restore(&name("a"), "m", &root.path().join("one"), NOW).unwrap_err();
    }

    #[test]
    fn changed_modules_are_fetched_again() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept(root.path());
        fs::write(root.path().join("modules").join(name("a").as_str()).join("sub/main.tf"), "hostil")
            .unwrap();
        assert!(kept.restore(&name("a"), "m", &root.path().join("one"), NOW).unwrap().is_none());
        let (dir, entry) = fetched(&root.path().join("again"));
        kept.store(&name("a"), &dir, &entry, NOW).unwrap();
        assert!(kept.restore(&name("a"), "m", &root.path().join("one"), NOW).unwrap().is_some());
    }

    #[test]
    fn links_lead_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let (dir, entry) = fetched(root.path());
        let kept = ModuleCache::new(root.path().join("modules"), Seals::of(root.path()));
        let package = dir.join(MODULES).join("m");
        fs::rename(&package, root.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(root.path().join("elsewhere"), &package).unwrap();
        kept.store(&name("a"), &dir, &entry, NOW).unwrap_err();
        kept.store(&name("a"), &dir, &ModuleEntry { dir: "/etc".to_owned(), ..entry }, NOW).unwrap_err();
        assert!(kept.restore(&name("a"), "m", &root.path().join("one"), NOW).unwrap().is_none());
    }

    #[test]
    fn unused_modules_are_removed_after_a_month() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept(root.path());
        let (month, now) = (MAX_UNUSED + Duration::from_secs(1), NOW + MAX_UNUSED / 2);
        let store = |source: &str, at: SystemTime| {
            let (dir, entry) = fetched(&root.path().join(source));
            kept.store(&name(source), &dir, &entry, at).unwrap();
        };
        assert!(kept.restore(&name("a"), "m", &root.path().join("one"), now).unwrap().is_some());
        store("b", now + month / 2);
        assert!(kept.record(&name("a")).is_some());
        store("c", now + month * 2);
        assert!(kept.record(&name("a")).is_none() && kept.record(&name("c")).is_some());
        assert!(!root.path().join("modules").join(name("a").as_str()).exists());
    }
}
