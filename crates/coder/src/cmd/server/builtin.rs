//! The daemons inside the server: the same code as external ones, over memory instead of a socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use coder_provisioner::{Config, ConnectError, Daemon, Shutdown, TerraformSource};
use coder_server::Handle;
use coder_wire::bytes::ByteStream;
use tokio::task::JoinSet;

use super::flags::Provisioning;
use crate::env;

/// Heartbeats of a built-in daemon's job (wire-protocol 5.5).
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// The running daemons.
pub(super) struct Daemons {
    tasks: JoinSet<()>,
}

impl Daemons {
    /// Starts them all; they end by `shutdown`.
    pub(super) fn start(handle: &Handle, flags: &Provisioning, shutdown: &Shutdown) -> anyhow::Result<Self> {
        let mut tasks = JoinSet::new();
        if flags.provisioner_daemons == 0 {
            return Ok(Self { tasks });
        }
        let cache = cache_directory(flags.cache_dir.as_deref())?;
        for index in 0..flags.provisioner_daemons {
            let mut config =
                Config::new(format!("built-in-{index}"), cache.join(format!("provisioner-{index}")));
            config.update_interval = UPDATE_INTERVAL;
            config.force_cancel_after = flags.provisioner_force_cancel_interval;
            if let Some(path) = &flags.terraform_path {
                config.terraform = TerraformSource::File(path.clone());
            }
            let daemon = Daemon::new(config, connector(handle.clone(), index));
            let shutdown = shutdown.clone();
            tasks.spawn(async move {
                if let Err(error) = daemon.run(shutdown).await {
                    tracing::error!(target: "provisioner", index, %error, "a built-in daemon ended");
                }
            });
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

fn connector(handle: Handle, index: u32) -> impl coder_provisioner::Connector {
    move || {
        let handle = handle.clone();
        async move {
            let joined = handle.connect_builtin(index).await;
            let stream = joined.map_err(|error| ConnectError::Retry(error.to_string()))?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        }
    }
}

fn cache_directory(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    env::cache_directory().context("there is no home directory: set HOME, or pass --cache-dir")
}
