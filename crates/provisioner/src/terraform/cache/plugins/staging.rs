//! The downloads of one `init`, and how they get into the plugin cache.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use super::lock_file::hash;
use super::{has_valid_seal, links, mark_used, packages, relative_to, seal_file};
use crate::files::job_file::{JobFile, is_plain_dir};
use crate::terraform::cache::init_cache::{DATA, PROVIDERS};
use crate::terraform::cache::scratch::ScratchDir;
use crate::terraform::cache::seal::Seals;

/// The scratch directory of one `init`; removed when dropped.
#[derive(Debug)]
pub(crate) struct PluginStaging {
    with_writable: ScratchDir,
    root: PathBuf,
    seals: Seals,
}

impl PluginStaging {
    pub(super) const fn new(with_writable: ScratchDir, root: PathBuf, seals: Seals) -> Self {
        Self { with_writable, root, seals }
    }

    /// Terraform's plugin cache directory for this `init`.
    pub(crate) fn dir(&self) -> &Path {
        self.with_writable.dir()
    }

    /// After `init` has succeeded and all its programs have ended: moves new providers into the cache, and
    /// updates the links of the job's template at `template`. Blocks.
    pub(crate) fn commit(self, template: &Path, now: SystemTime) -> Result<()> {
        for new in packages(self.dir()) {
            self.install(&new)?;
        }
        let providers = Path::new(DATA).join(PROVIDERS);
        if !is_plain_dir(template, &providers) {
            // There are no providers.
            return Ok(());
        }
        for link in links(&template.join(&providers)) {
            let target = fs::read_link(&link)?;
            let Ok(of_package) = target.strip_prefix(self.dir()) else { continue };
            if !of_package.components().all(|part| matches!(part, Component::Normal(_))) {
                continue;
            }
            let staged = self.dir().join(of_package);
            // Terraform links to packages of a filesystem mirror.
            let target = fs::read_link(&staged).unwrap_or_else(|_| self.root.join(of_package));
            JobFile::new(template, relative_to(&link, template)?).link_to(&target)?;
            if target.starts_with(&self.root) {
                mark_used(&target, now);
            }
        }
        Ok(())
    }

    /// Moves a provider into the cache; it is used only after its seal is written.
    fn install(&self, new: &Path) -> Result<()> {
        let place = self.root.join(relative_to(new, self.dir())?);
        fs::create_dir_all(place.parent().ok_or(ErrorKind::InvalidInput)?)?;
        if place.symlink_metadata().is_ok() {
            if has_valid_seal(&self.seals, &place) {
                // The template's lock file did not allow the cached provider; the new one is the same unless
                // the source has changed it.
                if hash(&place)? == hash(new)? {
                    return Ok(());
                }
                return Err(Error::other(format!(
                    "{} in the plugin cache is not the provider that the template's lock file names: make the lock file anew, or remove the directory",
                    place.display()
                )));
            }
            let _ = fs::remove_file(seal_file(&place));
            fs::remove_dir_all(&place).or_else(|_| fs::remove_file(&place))?;
        }
        fs::rename(new, &place)?;
        let written = self.seals.make(&place, &[]).and_then(|seal| {
            let unfinished = seal_file(&place).with_extension("new");
            fs::write(&unfinished, serde_json::to_vec(&seal)?)?;
            fs::rename(unfinished, seal_file(&place))
        });
        if written.is_err() {
            // Without its seal it is of no use.
            fs::remove_dir_all(&place)?;
        }
        written
    }
}
