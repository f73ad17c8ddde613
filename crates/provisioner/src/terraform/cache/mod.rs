//! What the daemons of a machine cache for all jobs in the cache directory.

pub(crate) mod init_cache;
pub(crate) mod modules;
pub(crate) mod plugins;
pub(crate) mod scratch;
pub(crate) mod seal;

use std::path::Path;

use self::init_cache::InitCache;
use self::modules::ModuleCache;
use self::plugins::PluginCache;
use self::scratch::ScratchDirs;
use self::seal::Seals;

/// All caches; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct TerraformCache {
    pub(crate) init_cache: InitCache,
    pub(crate) plugins: PluginCache,
    pub(crate) modules: ModuleCache,
    pub(crate) scratch: ScratchDirs,
}

impl TerraformCache {
    pub(crate) fn open(dir: &Path) -> Self {
        let seals = Seals::of(dir);
        Self {
            init_cache: InitCache::new(dir.join("init"), seals.clone()),
            plugins: PluginCache::shared(dir, seals.clone()),
            modules: ModuleCache::new(dir.join("modules"), seals),
            scratch: ScratchDirs::of(dir),
        }
    }
}
