//! One connected daemon: how it joined, what it is to the server, what it holds. `serve` lists the calls that it can make.

pub mod admit;
pub mod attach;
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

use self::admit::{Admitted, PresentedKey};
use self::connected_daemons::{Connection, Who};
use self::held_jobs::Hand;
use super::dispatch::wait_queue::Domain;
use crate::context::App;
use crate::memory::Holder;

/// How soon the end of a connection is seen after a message could not be sent over it.
const END_SEEN: Duration = Duration::from_secs(1);

/// What a daemon is to the server while it is connected. Its id, organization and tags come from here, never from its
/// messages.
pub struct Session {
    /// The shared context.
    pub app: App,
    /// Its row, which owns its jobs.
    pub daemon: DaemonId,
    /// Under which URL it reached the server.
    pub url: String,
    /// What was granted to it.
    pub granted: Extensions,
    pub(crate) hand: Arc<Hand>,
    pub(crate) presented_key: Option<PresentedKey>,
    pub(crate) user: Option<UserId>,
    /// The id of the token that it joined with.
    pub(crate) token: Option<Arc<str>>,
    pub(crate) organization: OrganizationId,
    /// The session that its process gets at its first Attach; any when none is given.
    pub(crate) preset: Option<Bytes>,
    pub(crate) connection: Connection,
    /// Whom its memory counts against.
    pub(crate) holds: Holder,
    /// What its row calls this connection.
    row_connection: Option<Arc<str>>,
    domain: Arc<Domain>,
    close: CancellationToken,
    /// Fires when the connection has ended, for handlers that still run.
    gone: CancellationToken,
}

impl Session {
    /// A session of an official daemon whose row was just written.
    #[must_use]
    pub fn new(app: App, daemon: DaemonId, join: &NewDaemon, url: String) -> Self {
        let admitted = Admitted::official(join.clone());
        Self::admitted(app, daemon, &admitted, url)
    }

    /// A session of a daemon that was admitted and whose row was just written.
    #[must_use]
    pub fn admitted(app: App, daemon: DaemonId, admitted: &Admitted, url: String) -> Self {
        let (close, join, hand) = (CancellationToken::new(), &admitted.join, Arc::new(Hand::default()));
        let token: Option<Arc<str>> = admitted.token.as_deref().map(Arc::from);
        let who = Who {
            daemon,
            organization: join.organization_id,
            key: join.key_id,
            user: admitted.user,
            token: token.clone(),
            is_personal: join.tags.is_user_scoped(),
            is_deaf: admitted.is_deaf(),
            since: app.now(),
        };
        let connection = app.scheduler.connected().add(who, close.clone(), Arc::clone(&hand));
        let domain = Domain::new(join.organization_id, join.provisioners.clone(), join.tags.clone());
        let holds = app.memory.holder(match admitted.user {
            Some(user) => user.0.as_u128(),
            None => join.key_id.0.as_u128(),
        });
        Self {
            app,
            daemon,
            url,
            granted: admitted.extensions,
            hand,
            presented_key: admitted.presented_key.clone(),
            user: admitted.user,
            token,
            organization: join.organization_id,
            preset: None,
            connection,
            holds,
            row_connection: None,
            domain: Arc::new(domain),
            close,
            gone: CancellationToken::new(),
        }
    }

    /// Its process gets this session, which somebody else knows, too.
    #[must_use]
    pub fn with_session(self, session: Bytes) -> Self {
        Self { preset: Some(session), ..self }
    }

    /// Its row was written for this connection: its end is noted there, and a drain holds on that it could not be told.
    #[must_use]
    pub fn joined(self, joined: &JoinedDaemon) -> Self {
        if let Some(drain) = joined.drain.as_ref().filter(|_| !self.granted.has(Extension::Drain)) {
            self.hand.park(true);
            self.hand.drain(&drain.reason);
        }
        let row: Arc<str> = joined.connection.as_str().into();
        self.app.scheduler.connected().set_row(&self.connection, Some(Arc::clone(&row)));
        Self { row_connection: Some(row), ..self }
    }

    /// How often drains and their ends were heard of over this connection; ask before its row is read.
    #[must_use]
    pub fn drains_heard(&self) -> u64 {
        self.hand.parkings()
    }

    /// What its row said when it was read after `heard`: somebody may have asked since it was written. Whoever asked since
    /// it was read knows better.
    pub fn set_drained(&self, draining: bool, heard: u64) {
        if !self.granted.has(Extension::Drain) {
            self.hand.park_unless_newer(draining, heard);
        }
    }

    /// Whether it takes its user's jobs only.
    pub(crate) fn is_personal(&self) -> bool {
        self.domain.tags.is_user_scoped()
    }

    /// Whether its jobs outlive the connection.
    #[must_use]
    pub fn resumes(&self) -> bool {
        self.granted.has(Extension::Resume)
    }

    /// Who this connection is to the database when it speaks of a job.
    #[must_use]
    pub fn holder(&self, job: JobId) -> JobHolder {
        self.hand.holder(self.daemon, job)
    }

    /// The daemon has shown that it holds this job.
    pub(crate) fn heard_of(&self, job: JobId, canceled: bool, now: Timestamp) {
        self.hand.notice_official(job);
        if canceled {
            self.hand.cancel(job, now);
        }
    }

    /// The job has ended by the daemon's report.
    pub(crate) fn let_go(&self, job: JobId) {
        self.hand.end(job, None);
    }

    /// Waits a moment for the end of the connection; says whether it has come.
    async fn is_ending(&self) -> bool {
        tokio::time::timeout(END_SEEN, self.gone.cancelled()).await.is_ok()
    }
}
