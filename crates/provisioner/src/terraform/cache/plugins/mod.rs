//! The plugin cache: providers that were downloaded, kept for all jobs of a machine.
//!
//! ```text
//! plugins/host/namespace/type/version/platform/       a provider; jobs link to it
//! plugins/host/namespace/type/version/platform.json   its seal
//! bundles/<template>/…                                the same, for one template alone
//! installing/<id>/…                                   the scratch directory of one `init`
//! ```
//!
//! No job writes to what others use. An `init` sees links to the cached providers whose seal is valid, and
//! downloads others into a scratch directory. After `init` has succeeded the daemon moves them into the cache
//! atomically. Providers for all jobs come from an `init` in which no code of a template can have run
//! (`steps/from_scratch.rs`); those of any other `init` serve that template alone.

mod lock_file;
mod staging;

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use self::lock_file::LockedHashes;
pub(crate) use self::staging::PluginStaging;
use super::init_cache::{FileStamp, InitKey};
use super::scratch::ScratchDirs;
use super::seal::Seals;

/// Providers that no job has used for this time are removed.
const MAX_UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A provider lies at host/namespace/type/version/platform.
const PROVIDER_DEPTH: usize = 5;

/// No provider has this many files.
pub(super) const MAX_FILES: usize = 10_000;

/// A directory of cached providers.
#[derive(Debug, Clone)]
pub(crate) struct PluginCache {
    root: PathBuf,
    scratch_dirs: ScratchDirs,
    seals: Seals,
}

impl PluginCache {
    /// The providers for all jobs of this cache directory.
    pub(crate) fn shared(cache: &Path, seals: Seals) -> Self {
        Self { root: cache.join("plugins"), scratch_dirs: ScratchDirs::of(cache), seals }
    }

    /// The providers of one template, which its own code may have influenced.
    pub(crate) fn for_template(&self, key: &InitKey) -> Self {
        let root = self.root.with_file_name("bundles").join(key.as_str());
        Self { root, ..self.clone() }
    }

    /// Creates the directories. They must exist before the first job: a job could see what is created later.
    /// Blocks.
    pub(crate) fn prepare(&self) -> Result<()> {
        fs::create_dir_all(&self.root)?;
        self.scratch_dirs.prepare()
    }

    /// Creates a scratch directory for one `init`, with links to the cached providers that the template's lock
    /// file allows, if there is one. Blocks.
    pub(crate) fn stage(&self, lock_file: Option<&str>) -> Result<PluginStaging> {
        let locked = lock_file.map(LockedHashes::read).unwrap_or_default();
        self.prepare()?;
        let staging = PluginStaging::new(self.scratch_dirs.make()?, self.root.clone(), self.seals.clone());
        for package in packages(&self.root) {
            if has_valid_seal(&self.seals, &package) {
                let relative_to = relative_to(&package, &self.root)?;
                if !locked.allows(&package, relative_to) {
                    continue;
                }
                let link = staging.dir().join(relative_to);
                fs::create_dir_all(link.parent().ok_or(ErrorKind::InvalidInput)?)?;
                std::os::unix::fs::symlink(&package, link)?;
            } else {
                tracing::warn!(plugin = %package.display(), "a provider in the plugin cache was changed; it is not used");
            }
        }
        Ok(staging)
    }

    /// Removes providers that no job has used for a month, and empty directories (terraform 1.6). Errors of
    /// single entries are logged. Blocks.
    pub(crate) fn remove_stale(&self, now: SystemTime) {
        let bundles = directories(&self.root.with_file_name("bundles"));
        for root in bundles.iter().chain([&self.root]) {
            for plugin in packages(root) {
                let mark_used = newest(&plugin).max(modified(&seal_file(&plugin)));
                let age = mark_used.and_then(|at| now.duration_since(at).ok());
                if age.is_none_or(|age| age <= MAX_UNUSED) {
                    continue;
                }
                let _ = fs::remove_file(seal_file(&plugin));
                if let Err(error) = fs::remove_dir_all(&plugin) {
                    tracing::warn!(plugin = %plugin.display(), %error, "an old plugin could not be removed");
                    continue;
                }
                tracing::info!(plugin = %plugin.display(), "a plugin that was not used for 30 days was removed");
                for parent in plugin.ancestors().skip(1).take(PROVIDER_DEPTH - 1) {
                    // Fails when the directory is not empty, which ends the cleanup there.
                    if fs::remove_dir(parent).is_err() {
                        break;
                    }
                }
            }
        }
        for bundle in bundles {
            // Fails unless it is empty.
            let _ = fs::remove_dir(bundle);
        }
    }
}

/// Sets the time of use.
pub(super) fn mark_used(package: &Path, now: SystemTime) {
    // If the time cannot be set, the entry is evicted too early, which is harmless.
    let _ = File::options().write(true).open(seal_file(package)).and_then(|file| file.set_modified(now));
}

/// Where the seal of a provider is stored.
fn seal_file(package: &Path) -> PathBuf {
    let mut name = package.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Whether a provider is unchanged. One without a seal comes from an older version of this program.
fn has_valid_seal(seals: &Seals, package: &Path) -> bool {
    let seal =
        fs::read(seal_file(package)).ok().and_then(|text| serde_json::from_slice::<String>(&text).ok());
    seal.is_some_and(|seal| seals.verify(package, &[], &seal))
}

fn relative_to<'p>(path: &'p Path, root: &Path) -> Result<&'p Path> {
    path.strip_prefix(root).map_err(Error::other)
}

/// Directories of providers, without links.
fn packages(root: &Path) -> Vec<PathBuf> {
    at_depth(root, PROVIDER_DEPTH)
}

/// Links in the place of providers.
pub(super) fn links(providers: &Path) -> Vec<PathBuf> {
    let versions = at_depth(providers, PROVIDER_DEPTH - 1);
    let entries = versions.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .map(|entry| entry.path())
        .collect()
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
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

fn modified(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).ok()?.modified().ok()
}

/// The latest modification below `root`.
fn newest(root: &Path) -> Option<SystemTime> {
    let mut newest = None;
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).ok()?;
        newest = newest.max(metadata.modified().ok());
        if metadata.is_dir() {
            pending.extend(fs::read_dir(&path).ok()?.flatten().map(|entry| entry.path()));
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use uuid::Uuid;

    use super::*;

    const PACKAGE: &str = "registry/ns/one/1.0.0/linux_amd64";

    fn plugins(dir: &tempfile::TempDir) -> PluginCache {
        PluginCache::shared(dir.path(), Seals::of(dir.path()))
    }

    /// What `init` does: downloads a provider unless it is cached, and links to it.
    fn init(staging: &PluginStaging, template: &Path, package: &str, content: &str) -> bool {
        let (cached, link) =
            (staging.dir().join(package), template.join(".terraform/providers").join(package));
        let is_there = cached.join("provider").exists();
        if !is_there {
            fs::create_dir_all(&cached).unwrap();
            fs::write(cached.join("provider"), content).unwrap();
        }
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(cached, link).unwrap();
        is_there
    }

    fn template(dir: &tempfile::TempDir) -> PathBuf {
        let template = dir.path().join(Uuid::new_v4().to_string());
        fs::create_dir(&template).unwrap();
        template
    }

    fn provider(template: &Path) -> String {
        fs::read_to_string(template.join(".terraform/providers").join(PACKAGE).join("provider")).unwrap()
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn packages_of_one_init_are_linked_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, one, two) = (plugins(&dir), template(&dir), template(&dir));
        let staging = plugins.stage(None).unwrap();
        assert!(!init(&staging, &one, PACKAGE, "program"));
        assert!(!plugins.root.join(PACKAGE).exists(), "other jobs do not get it before init has ended");
        staging.commit(&one, NOW).unwrap();
        let staging = plugins.stage(None).unwrap();
        assert!(init(&staging, &two, PACKAGE, "another"));
        staging.commit(&two, NOW).unwrap();
        for template in [&one, &two] {
            assert_eq!(provider(template), "program");
            let link = fs::read_link(template.join(".terraform/providers").join(PACKAGE)).unwrap();
            assert_eq!(link, plugins.root.join(PACKAGE), "it outlives the directory of init");
        }
        assert_eq!(directories(&dir.path().join("installing")), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_failed_or_killed_init_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, one) = (plugins(&dir), template(&dir));
        let staging = plugins.stage(None).unwrap();
        init(&staging, &one, PACKAGE, "half");
        drop(staging);
        assert!(packages(&plugins.root).is_empty());
        // A killed daemon leaves the directory without its lock.
        let left = dir.path().join("installing/left");
        fs::create_dir_all(left.join(PACKAGE)).unwrap();
        let running = plugins.stage(None).unwrap();
        let _other = plugins.stage(None).unwrap();
        assert!(!left.exists() && running.dir().exists());
    }

    #[test]
    fn a_provider_that_was_changed_is_installed_again() {
        let dir = tempfile::tempdir().unwrap();
        let plugins = plugins(&dir);
        let install = |content: &str| {
            let (template, staging) = (template(&dir), plugins.stage(None).unwrap());
            let was_there = init(&staging, &template, PACKAGE, content);
            staging.commit(&template, NOW).unwrap();
            (was_there, provider(&template))
        };
        let place = plugins.root.join(PACKAGE);
        // One without a seal.
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("provider"), "hostile").unwrap();
        assert_eq!(install("program"), (false, "program".to_owned()));
        let modified = place.join("provider").metadata().unwrap().modified().unwrap();
        fs::write(place.join("provider"), "hostile").unwrap();
        File::options().write(true).open(place.join("provider")).unwrap().set_modified(modified).unwrap();
        assert_eq!(install("program"), (false, "program".to_owned()));
        fs::write(place.join("another"), "hostile").unwrap();
        assert_eq!(install("program"), (false, "program".to_owned()));
        assert_eq!(install("program"), (true, "program".to_owned()));
        assert!(!place.join("another").exists());
    }

    #[test]
    fn a_template_of_its_own_changes_nothing_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, one) = (plugins(&dir), template(&dir));
        let own = plugins.for_template(&InitKey::for_test("key"));
        let staging = own.stage(None).unwrap();
        init(&staging, &one, PACKAGE, "hostile");
        staging.commit(&one, NOW).unwrap();
        assert_eq!(provider(&one), "hostile");
        assert!(packages(&plugins.root).is_empty() && packages(&own.root).len() == 1);
    }

    #[test]
    fn packages_of_a_mirror_in_a_folder_are_linked_to() {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, one) = (plugins(&dir), template(&dir));
        let mirror = dir.path().join("mirror").join(PACKAGE);
        fs::create_dir_all(&mirror).unwrap();
        fs::write(mirror.join("provider"), "mirrored").unwrap();
        let staging = plugins.stage(None).unwrap();
        let link = staging.dir().join(PACKAGE);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&mirror, &link).unwrap();
        init(&staging, &one, PACKAGE, "");
        staging.commit(&one, NOW).unwrap();
        assert_eq!(fs::read_link(one.join(".terraform/providers").join(PACKAGE)).unwrap(), mirror);
    }

    #[test]
    fn packages_outside_the_lock_file_are_not_taken_from_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let plugins = plugins(&dir);
        let install = |lock: Option<&str>, content: &str| {
            let (template, staging) = (template(&dir), plugins.stage(lock).unwrap());
            let was_there = init(&staging, &template, PACKAGE, content);
            staging.commit(&template, NOW).map(|()| (was_there, provider(&template)))
        };
        assert_eq!(install(None, "program").unwrap(), (false, "program".to_owned()));
        // As `terraform providers lock` computes it for a package with this one file.
        let own = lock_file::hash(&plugins.root.join(PACKAGE)).unwrap();
        assert_eq!(own, "h1:pmtQDONBf4T2uhvy0t2XYRzB7Yuo894ux05h6U08iJw=");
        let lock = |version: &str, hash: &str| {
            format!(
                "provider \"registry/ns/one\" {{\n  version     = \"{version}\"\n  constraints = \">= 1.0.0\"\n  hashes = [\n    \"{hash}\",\n    \"zh:00\",\n  ]\n}}\n"
            )
        };
        assert_eq!(install(Some(&lock("1.0.0", &own)), "").unwrap(), (true, "program".to_owned()));
        assert_eq!(install(Some(&lock("1.1.0", "h1:other")), "").unwrap(), (true, "program".to_owned()));
        // The lock file was made on another platform: the provider is downloaded again, and cached once.
        let elsewhere = lock("1.0.0", "h1:of another platform");
        assert_eq!(install(Some(&elsewhere), "program").unwrap(), (false, "program".to_owned()));
        // Different content: a job gets no provider that its lock file does not allow.
        let error = install(Some(&elsewhere), "PROGRAM").unwrap_err().to_string();
        assert!(error.contains("lock file"), "{error}");
        assert_eq!(install(None, "").unwrap(), (true, "program".to_owned()));
    }

    #[test]
    fn only_unused_providers_go() {
        let dir = tempfile::tempdir().unwrap();
        let plugins = plugins(&dir);
        let make = |root: &Path, path: &str| {
            let package = root.join(path);
            fs::create_dir_all(&package).unwrap();
            fs::write(package.join("provider"), "x").unwrap();
            fs::write(seal_file(&package), "[]").unwrap();
            package
        };
        let old = make(&plugins.root, "registry/ns/old/1.0.0/linux_amd64");
        let recent = make(&plugins.root, "registry/ns/used/1.0.0/linux_amd64");
        let bundled = make(&dir.path().join("bundles/key"), "registry/ns/old/1.0.0/linux_amd64");
        let other = plugins.root.join("registry/notes");
        fs::create_dir_all(&other).unwrap();
        let now = modified(&seal_file(&old)).unwrap();
        plugins.remove_stale(now);
        assert!(old.exists() && bundled.exists());
        let later = now + MAX_UNUSED + Duration::from_secs(3600);
        mark_used(&recent, later);
        plugins.remove_stale(later);
        assert!(!old.exists() && !seal_file(&old).exists() && recent.exists() && other.exists());
        assert!(!plugins.root.join("registry/ns/old").exists() && !dir.path().join("bundles/key").exists());
    }
}
