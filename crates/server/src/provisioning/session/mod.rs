//! A connected daemon. `serve` lists its calls.

pub mod attach;
pub mod authenticate;
pub mod connected_daemons;
pub mod extensions;
pub mod held_jobs;
pub mod notifications;
pub mod presence;
pub mod serve;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId, OrganizationId, UserId};
use coder_store::daemons::{JoinedDaemon, NewDaemon};
use coder_store::jobs::Holder as JobHolder;
use coder_wire::extension::{Extension, Extensions};
use tokio_util::sync::CancellationToken;

use self::authenticate::{Authenticated, PresentedKey};
use self::connected_daemons::{DaemonIdentity, DaemonRegistration};
use self::held_jobs::HeldJobs;
use super::dispatch::wait_queue::Domain;
use crate::context::App;
use crate::memory::Holder;

/// How long the end of a connection may take to be noticed after a message could not be sent.
const END_SEEN: Duration = Duration::from_secs(1);

/// A connected daemon. Its id, organization and tags come from here, never from its messages.
pub struct Session {
    /// The shared context.
    pub app: App,
    /// Its row, which owns its jobs.
    pub daemon: DaemonId,
    /// The URL at which it reached the server.
    pub url: String,
    /// The extensions that were granted.
    pub granted: Extensions,
    pub(crate) held_jobs: Arc<HeldJobs>,
    pub(crate) presented_key: Option<PresentedKey>,
    pub(crate) user: Option<UserId>,
    /// The id of the token that it joined with.
    pub(crate) token: Option<Arc<str>>,
    pub(crate) organization: OrganizationId,
    /// The session that its process gets at its first Attach; a random one when `None`.
    pub(crate) preset: Option<Bytes>,
    pub(crate) registration: DaemonRegistration,
    /// The accounts for its memory.
    pub(crate) holds: Holder,
    /// The id of this connection in its row.
    row_connection: Option<Arc<str>>,
    domain: Arc<Domain>,
    close: CancellationToken,
    /// Fires when the connection has ended.
    ended: CancellationToken,
}

impl Session {
    /// A session of an official daemon whose row was just written.
    #[must_use]
    pub fn new(app: App, daemon: DaemonId, join: &NewDaemon, url: String) -> Self {
        let authenticated = Authenticated::official(join.clone());
        Self::authenticated(app, daemon, &authenticated, url)
    }

    /// A session of an authenticated daemon whose row was just written.
    #[must_use]
    pub fn authenticated(app: App, daemon: DaemonId, authenticated: &Authenticated, url: String) -> Self {
        let (close, join, held_jobs) =
            (CancellationToken::new(), &authenticated.join, Arc::new(HeldJobs::default()));
        let token: Option<Arc<str>> = authenticated.token.as_deref().map(Arc::from);
        let identity = DaemonIdentity {
            daemon,
            organization: join.organization_id,
            key: join.key_id,
            user: authenticated.user,
            token: token.clone(),
            is_personal: join.tags.is_user_scoped(),
            cannot_drain: authenticated.cannot_drain(),
            since: app.now(),
        };
        let registration = app.scheduler.connected().add(identity, close.clone(), Arc::clone(&held_jobs));
        let domain = Domain::new(join.organization_id, join.provisioners.clone(), join.tags.clone());
        let holds = app.memory.holder(match authenticated.user {
            Some(user) => user.0.as_u128(),
            None => join.key_id.0.as_u128(),
        });
        Self {
            app,
            daemon,
            url,
            granted: authenticated.extensions,
            held_jobs,
            presented_key: authenticated.presented_key.clone(),
            user: authenticated.user,
            token,
            organization: join.organization_id,
            preset: None,
            registration,
            holds,
            row_connection: None,
            domain: Arc::new(domain),
            close,
            ended: CancellationToken::new(),
        }
    }

    /// Gives its process this session at its first Attach.
    #[must_use]
    pub fn with_session(self, session: Bytes) -> Self {
        Self { preset: Some(session), ..self }
    }

    /// Its row names this connection. A drain of a daemon without the extension `drain` continues.
    #[must_use]
    pub fn joined(self, joined: &JoinedDaemon) -> Self {
        if let Some(drain) = joined.drain.as_ref().filter(|_| !self.granted.has(Extension::Drain)) {
            self.held_jobs.set_paused(true);
            self.held_jobs.drain(&drain.reason);
        }
        let row: Arc<str> = joined.connection.as_str().into();
        self.app.scheduler.connected().set_row(&self.registration, Some(Arc::clone(&row)));
        Self { row_connection: Some(row), ..self }
    }

    /// A counter of drains and undrains of this connection. Read it before the row.
    #[must_use]
    pub fn drain_changes(&self) -> u64 {
        self.held_jobs.pause_changes()
    }

    /// Sets whether its row was drained, unless it was drained or undrained since `drain_changes` was read.
    pub fn set_drained(&self, draining: bool, drain_changes: u64) {
        if !self.granted.has(Extension::Drain) {
            self.held_jobs.set_paused_unless_newer(draining, drain_changes);
        }
    }

    /// Whether it takes only its user's jobs.
    pub(crate) fn is_personal(&self) -> bool {
        self.domain.tags.is_user_scoped()
    }

    /// Whether its jobs outlive the connection.
    #[must_use]
    pub fn resumes(&self) -> bool {
        self.granted.has(Extension::Resume)
    }

    /// The holder of a job when this connection reports on it.
    #[must_use]
    pub fn holder(&self, job: JobId) -> JobHolder {
        self.held_jobs.holder(self.daemon, job)
    }

    /// The daemon reported on this job, so it holds it.
    pub(crate) fn note_report(&self, job: JobId, canceled: bool, now: Timestamp) {
        self.held_jobs.note_official(job);
        if canceled {
            self.held_jobs.cancel(job, now);
        }
    }

    /// The daemon's report ended the job.
    pub(crate) fn job_ended(&self, job: JobId) {
        self.held_jobs.end(job, None);
    }

    /// Waits a moment for the end of the connection. Returns whether it ended.
    async fn is_ending(&self) -> bool {
        tokio::time::timeout(END_SEEN, self.ended.cancelled()).await.is_ok()
    }
}
