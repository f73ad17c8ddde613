//! What the daemons of a machine keep for all jobs, in the cache directory that they share.

use std::path::Path;

use super::filling::ScratchDirs;
use super::kept_modules::ModuleCache;
use super::plugins::PluginCache;
use super::prepared::InitCache;
use super::seal::Seals;

/// All of it; a clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct TerraformCache {
    pub(crate) prepared: InitCache,
    pub(crate) plugins: PluginCache,
    pub(crate) modules: ModuleCache,
    pub(crate) fillings: ScratchDirs,
}

impl TerraformCache {
    pub(crate) fn open(dir: &Path) -> Self {
        let seals = Seals::of(dir);
        Self {
            prepared: InitCache::new(dir.join("init"), seals.clone()),
            plugins: PluginCache::shared(dir, seals.clone()),
            modules: ModuleCache::new(dir.join("modules"), seals),
            fillings: ScratchDirs::of(dir),
        }
    }
}
