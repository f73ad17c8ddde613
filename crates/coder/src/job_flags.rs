//! The flags by which daemons, external and built-in, keep their jobs apart and within bounds (docs/isolation.md).

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use coder_provisioner::{Config, Isolation, Limits};

use crate::env;

/// Flags about all jobs of a daemon.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Jobs {
    /// Keep jobs apart from the daemon and from each other: auto (as far as possible here), required, or none.
    #[arg(long, env = env::JOB_ISOLATION, default_value = "auto", value_name = "MODE")]
    pub(crate) job_isolation: Isolation,
    /// Further files and directories that jobs must not see, such as caches of other daemons.
    #[arg(long, env = env::JOB_HIDE, value_delimiter = ',', value_name = "PATHS")]
    pub(crate) job_hide: Vec<PathBuf>,
    /// Most memory of one job in MiB, where the kernel offers that; default no limit.
    #[arg(long, env = env::JOB_MEMORY_MIB, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..))]
    pub(crate) job_memory_mib: Option<u64>,
    /// Most processes and threads of one job, where the kernel offers that; default no limit.
    #[arg(long, env = env::JOB_PROCESSES, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(16..))]
    pub(crate) job_processes: Option<u64>,
    /// Most processors of one job, such as 1.5, where the kernel offers that; default no limit.
    #[arg(long, env = env::JOB_PROCESSORS, value_name = "NUMBER", value_parser = processors)]
    pub(crate) job_processors: Option<f64>,
}

impl Jobs {
    /// Sets up a daemon, whose jobs must not see `hidden` either.
    pub(crate) fn apply(&self, config: &mut Config, hidden: Vec<PathBuf>) -> anyhow::Result<()> {
        config.isolation = self.job_isolation;
        for path in hidden.into_iter().chain(self.job_hide.iter().cloned()) {
            config
                .hidden
                .push(std::path::absolute(&path).with_context(|| format!("hide {}", path.display()))?);
        }
        config.limits = Limits {
            memory_bytes: self.job_memory_mib.map(|mib| mib << 20),
            processes: self.job_processes,
            processors: self.job_processors,
        };
        Ok(())
    }
}

fn processors(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.01..=4096.0).contains(&number) { Ok(number) } else { Err("must be 0.01 to 4096".to_owned()) }
}
