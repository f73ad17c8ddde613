//! What happens on one connection to the server: everything at once, until the first part fails (agent 2.4).

use std::sync::Arc;
use std::time::Duration;

use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use tokio::sync::{OnceCell, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::calls::{Calls, is_unimplemented};
use crate::manifest::{Manifest, ManifestError};
use crate::metadata::{self, Collected};
use crate::network::Network;
use crate::state::AgentState;
use crate::stats::{self, Counters};
use crate::transport::Transport;
use crate::{app_health, editor_settings, resources};

/// How often the banners are asked for.
const BANNER_INTERVAL: Duration = Duration::from_secs(120);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// A call failed, or the connection was lost.
    #[error("a call to the server failed")]
    Call(#[from] Error),
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The node in the overlay network could not be started.
    #[error("the overlay network could not be joined")]
    Network(#[from] coder_tailnet::node::Error),
}

/// What the connections of an agent share.
pub(crate) struct Connections {
    pub(crate) state: Arc<AgentState>,
    pub(crate) transport: Arc<dyn Transport>,
    /// From the first manifest on.
    pub(crate) network: OnceCell<Network>,
    /// The first manifest, for the scripts.
    pub(crate) first_manifest: watch::Sender<Option<Arc<Manifest>>>,
    pub(crate) completed: tokio::sync::Mutex<mpsc::Receiver<messages::Timing>>,
    pub(crate) collected: Arc<Collected>,
    pub(crate) counters: Counters,
    /// The agent ends: only logs, states and connection reports are still sent.
    pub(crate) stopping: CancellationToken,
    /// The coordinator knows that the agent is gone, or there was nothing to tell.
    pub(crate) disconnected: watch::Sender<bool>,
}

impl Connections {
    /// Serves one connection until it fails.
    pub(crate) async fn serve(&self, calls: &Calls) -> ConnectionError {
        let ended = async {
            tokio::try_join!(
                self.with_manifest(calls),
                self.refresh_banners(calls),
                async { Ok(self.state.lifecycle.report(calls).await?) },
                async { Ok(self.state.logs.send(calls).await?) },
                async { Ok(self.state.connection_reports.send(calls).await?) },
                self.report_scripts(calls),
                self.until_stopping(async { Ok(resources::run(&self.state.config.clock, calls).await?) }),
                async { Err::<(), _>(ConnectionError::Call(calls.closed().await)) },
            )
        };
        match ended.await {
            Err(error) => error,
            // No part ends by itself.
            Ok(_) => ConnectionError::Call(Error::NoAnswer),
        }
    }

    /// Everything that needs the manifest.
    async fn with_manifest(&self, calls: &Calls) -> Result<(), ConnectionError> {
        let manifest = calls.manifest(messages::GetManifestRequest {}).await?;
        let manifest = Arc::new(Manifest::try_from(manifest)?);
        tracing::info!(agent_id = %manifest.agent_id, workspace_id = %manifest.workspace_id, "the server sent the manifest");
        self.state.set_manifest(Arc::clone(&manifest));
        if manifest.git_auth_configs > 0 {
            editor_settings::use_own_askpass(&self.state.config.user.home);
        }
        self.first_manifest.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(Arc::clone(&manifest));
            }
            is_first
        });
        let network = self
            .network
            .get_or_try_init(|| async { Network::start(&self.state, &manifest, Arc::clone(&self.transport)) })
            .await?;
        network.set_relays(manifest.derp_map.clone());
        let config = &self.state.config;
        let directory = self.state.expanded_directory(&manifest);
        let startup = messages::Startup {
            version: format!("v{}", config.version),
            expanded_directory: directory.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            subsystems: config.subsystems.iter().map(|subsystem| (*subsystem).into()).collect(),
        };
        calls.startup(messages::UpdateStartupRequest { startup: Some(startup) }).await?;
        self.disconnected.send_replace(false);
        tokio::try_join!(
            self.coordinate(network, calls),
            self.until_stopping(async { Ok(network.follow_relays(calls).await?) }),
            self.until_stopping(async { Ok(stats::run(&self.state, network, &self.counters, calls).await?) }),
            self.until_stopping(async { Ok(app_health::run(&manifest, calls).await?) }),
            self.until_stopping(async {
                Ok(metadata::run(&self.state, &manifest, &self.collected, calls).await?)
            }),
        )?;
        Ok(())
    }

    async fn coordinate(&self, network: &Network, calls: &Calls) -> Result<(), ConnectionError> {
        network.coordinate(calls, &self.stopping).await?;
        // It only ends in order when the agent ends.
        self.disconnected.send_replace(true);
        std::future::pending().await
    }

    /// Does the work until the agent begins to end. From then on it never returns, so that the connection stays open.
    async fn until_stopping(
        &self,
        work: impl Future<Output = Result<(), ConnectionError>>,
    ) -> Result<(), ConnectionError> {
        match self.stopping.run_until_cancelled(work).await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }

    async fn refresh_banners(&self, calls: &Calls) -> Result<(), ConnectionError> {
        loop {
            match calls.banners(messages::GetAnnouncementBannersRequest {}).await {
                Ok(banners) => self.state.set_banners(banners.announcement_banners),
                Err(error) if is_unimplemented(&error) => return std::future::pending().await,
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(BANNER_INTERVAL).await;
        }
    }

    /// Reports runs of scripts. A report that fails is given up (agent 2.6).
    async fn report_scripts(&self, calls: &Calls) -> Result<(), ConnectionError> {
        let mut completed = self.completed.lock().await;
        while let Some(timing) = completed.recv().await {
            let request = messages::WorkspaceAgentScriptCompletedRequest { timing: Some(timing) };
            if let Err(error) = calls.script_completed(request).await {
                tracing::debug!(%error, "the run of a script could not be reported");
            }
        }
        std::future::pending().await
    }
}
