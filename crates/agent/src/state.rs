//! What the parts of an agent have in common. It outlives every connection to the server.

use std::path::PathBuf;
use std::sync::Arc;

use coder_wire::messages::coder::agent::v2 as messages;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connection_reports::ConnectionReports;
use crate::expand;
use crate::lifecycle::Lifecycle;
use crate::log_queue::LogQueue;
use crate::manifest::Manifest;
use crate::scripts::Completed;
use crate::sessions::Sessions;

/// What the parts share.
pub(crate) struct AgentState {
    pub(crate) config: Config,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) logs: LogQueue,
    pub(crate) completed: Completed,
    pub(crate) connection_reports: ConnectionReports,
    pub(crate) sessions: Sessions,
    manifest: RwLock<Arc<Manifest>>,
    banners: RwLock<Vec<messages::BannerConfig>>,
    /// Ends the sessions of users.
    pub(crate) sessions_end: CancellationToken,
}

impl AgentState {
    pub(crate) fn new(config: Config, completed: Completed) -> Self {
        Self {
            lifecycle: Lifecycle::new(Arc::clone(&config.clock)),
            logs: LogQueue::default(),
            completed,
            connection_reports: ConnectionReports::default(),
            sessions: Sessions::default(),
            manifest: RwLock::default(),
            banners: RwLock::default(),
            sessions_end: CancellationToken::new(),
            config,
        }
    }

    /// The newest manifest.
    pub(crate) fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest.read())
    }

    pub(crate) fn set_manifest(&self, manifest: Arc<Manifest>) {
        *self.manifest.write() = manifest;
    }

    /// What users are shown at login.
    pub(crate) fn banners(&self) -> Vec<messages::BannerConfig> {
        self.banners.read().clone()
    }

    pub(crate) fn set_banners(&self, banners: Vec<messages::BannerConfig>) {
        *self.banners.write() = banners;
    }

    /// The directory of the template with everything expanded; none when the template names none.
    pub(crate) fn expanded_directory(&self, manifest: &Manifest) -> Option<PathBuf> {
        let home = &self.config.user.home;
        expand::path(&manifest.directory, home, home, |name| self.config.variable(name))
    }

    /// The directory in which commands start: the template's if it exists, else the home directory (agent 4.2).
    pub(crate) fn directory(&self, manifest: &Manifest) -> PathBuf {
        let directory = self.expanded_directory(manifest).filter(|directory| directory.is_dir());
        directory.unwrap_or_else(|| self.config.user.home.clone())
    }
}
