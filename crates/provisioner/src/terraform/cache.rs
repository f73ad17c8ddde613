//! What the daemons of a machine keep for all jobs, in the cache directory that they share.

use std::path::Path;

use super::filling::Fillings;
use super::kept_modules::KeptModules;
use super::plugins::Plugins;
use super::prepared::Prepared;
use super::seal::Seals;

/// All of it; a clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    pub(crate) prepared: Prepared,
    pub(crate) plugins: Plugins,
    pub(crate) modules: KeptModules,
    pub(crate) fillings: Fillings,
}

impl Cache {
    pub(crate) fn at(dir: &Path) -> Self {
        let seals = Seals::of(dir);
        Self {
            prepared: Prepared::new(dir.join("init"), seals.clone()),
            plugins: Plugins::of_all(dir, seals.clone()),
            modules: KeptModules::new(dir.join("modules"), seals),
            fillings: Fillings::of(dir),
        }
    }
}
