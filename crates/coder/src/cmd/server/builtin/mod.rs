//! The daemons inside the server: the same code as external daemons, connected through memory instead of a socket.

mod daemon;
mod sessions;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use coder_provisioner::{Config, Daemon, Metrics, Shutdown};
use coder_server::Handle;
use daemon::BuiltinDaemon;
use tokio::task::JoinSet;

use super::flags::Provisioning;
use crate::daemon_flags::terraform;
use crate::env;

/// Heartbeats of a built-in daemon's job (wire-protocol 5.5).
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// The running daemons.
pub(super) struct Daemons {
    tasks: JoinSet<()>,
}

impl Daemons {
    /// Starts all daemons. They end with `shutdown`.
    ///
    /// Their jobs cannot see the paths `hidden`.
    pub(super) fn start(
        handle: &Handle,
        flags: &Provisioning,
        hidden: &[PathBuf],
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let mut tasks = JoinSet::new();
        if flags.provisioner_daemons == 0 {
            return Ok(Self { tasks });
        }
        let cache = cache_directory(flags.cache_dir.as_deref())?;
        let metrics = Metrics::shared(flags.provisioner_daemons);
        let exported = metrics.clone();
        handle.app.metrics.add_source(move || exported.text());
        for index in 0..flags.provisioner_daemons {
            let mut config =
                Config::new(format!("built-in-{index}"), cache.join(format!("provisioner-{index}")));
            config.update_interval = UPDATE_INTERVAL;
            config.force_cancel_after = flags.provisioner_force_cancel_interval;
            flags.terraform.apply(&mut config, &terraform::installed(&cache))?;
            config.file_cache = cache.join("files");
            let others = (0..flags.provisioner_daemons).filter(|other| *other != index);
            let others = others.map(|other| cache.join(format!("provisioner-{other}")));
            flags.jobs.apply(&mut config, hidden.iter().cloned().chain(others).collect())?;
            config.built_in = true;
            // Before it can get a job.
            let builtin = BuiltinDaemon::new(handle, index, &config.cache_dir);
            let daemon = Daemon::new(config, builtin.connector()).with_metrics(&metrics);
            tasks.spawn(builtin.run(daemon, shutdown.clone()));
        }
        Ok(Self { tasks })
    }

    /// Waits until all have ended.
    pub(super) async fn ended(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(target: "provisioner", %error, "a built-in daemon failed");
            }
        }
    }
}

fn cache_directory(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    env::cache_directory().context("the home directory is not known: set HOME, or pass --cache-dir")
}
