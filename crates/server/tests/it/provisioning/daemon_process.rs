//! A daemon process with extensions, for tests that cut its connections.

use bytes::Bytes;
use coder_domain::ids::OrganizationId;
use coder_server::App;
use coder_server::provisioning::session::authenticate::Authenticated;
use coder_server::provisioning::session::authenticate::PresentedKey;
use coder_wire::drpc;
use coder_wire::extension::messages::{
    AttachRequest, AttachResponse, HeldJob, HoldRequest, HoldResponse, LogsRequest, LogsResponse,
    notification,
};
use coder_wire::extension::{self, Extensions, Journal};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

pub(super) struct DaemonConnection {
    pub(super) id: DaemonId,
    pub(super) calls: Client,
    pub(super) ext: extension::Client,
    cut: tokio::task::AbortHandle,
}

/// How a daemon joins.
pub(super) struct JoinOptions<'a> {
    pub(super) name: &'a str,
    pub(super) key: KeyId,
    pub(super) extensions: Extensions,
    /// The user whose token it joins with.
    pub(super) user: Option<UserId>,
    /// Its effective tags.
    pub(super) tags: TagSet,
    /// The token.
    pub(super) token: &'a str,
    /// The organization; none for the default one.
    pub(super) organization: Option<OrganizationId>,
    /// Which secret of its key it presents.
    pub(super) presented_key: Option<PresentedKey>,
    /// The number of bytes after which the connection is cut.
    pub(super) cut_after: usize,
}

impl Default for JoinOptions<'_> {
    fn default() -> Self {
        Self {
            name: "d",
            key: KeyId::USER_AUTH,
            extensions: Extensions::ALL,
            user: None,
            tags: TagSet::untagged(),
            token: "",
            organization: None,
            presented_key: None,
            cut_after: usize::MAX,
        }
    }
}

impl DaemonConnection {
    pub(super) async fn open(app: &App, options: JoinOptions<'_>) -> Self {
        let join = NewDaemon {
            organization_id: options.organization.unwrap_or(app.default_organization),
            name: options.name.to_owned(),
            key_id: options.key,
            provisioners: vec!["terraform".to_owned()],
            tags: options.tags.clone(),
            version: String::new(),
            api_version: protocol::CURRENT.to_string(),
        };
        let JoinOptions { extensions, presented_key, user, token, .. } = options;
        // The public half of the token.
        let token = token.split_once('-').map(|(id, _)| id.to_owned());
        let authenticated = Authenticated { join, extensions, presented_key, user, token };
        let mut tx = app.store.single().await.unwrap();
        let joined = daemons::join(
            &mut tx,
            &authenticated.join,
            &authenticated.as_arrival(app.events.outbox().own()),
            app.now(),
        )
        .await
        .unwrap();
        drop(tx);
        let id = joined.id;
        let ((near, left), (right, far)) = (duplex(64 << 10), duplex(64 << 10));
        let session = Session::authenticated(app.clone(), id, &authenticated, "http://coder.test".to_owned());
        let session = session.joined(&joined);
        app.lifecycle.spawn("session", session.run(near));
        let cut = tokio::spawn(carry(left, right, options.cut_after)).abort_handle();
        let session = mux::Session::client(far, mux::Config::default());
        Self { id, calls: Client::new(session.clone()), ext: extension::Client::new(session), cut }
    }

    /// Opens a connection and attaches it as a new process.
    pub(super) async fn fresh(app: &App, name: &str) -> (Self, Bytes) {
        let connection = Self::open(app, JoinOptions { name, ..JoinOptions::default() }).await;
        let session = connection.attach(&Bytes::new(), vec![]).await.unwrap().session;
        (connection, session)
    }

    /// Opens a connection and attaches it as the process of this session with these jobs.
    pub(super) async fn again(
        app: &App,
        name: &str,
        session: &Bytes,
        jobs: Vec<HeldJob>,
    ) -> (Self, AttachResponse) {
        let connection = Self::open(app, JoinOptions { name, ..JoinOptions::default() }).await;
        let answer = connection.attach(session, jobs).await.unwrap();
        (connection, answer)
    }

    pub(super) async fn attach(
        &self,
        session: &Bytes,
        jobs: Vec<HeldJob>,
    ) -> Result<AttachResponse, drpc::Error> {
        self.ext.attach(&AttachRequest { session: session.clone(), jobs }).await
    }

    pub(super) async fn take(&self, want: JobId) {
        let waiting = self.calls.acquire(std::future::pending());
        let got = tokio::time::timeout(WAIT_LIMIT, waiting).await.unwrap().unwrap().unwrap();
        assert_eq!(got.job_id, want.to_string());
    }

    pub(super) async fn hold(&self, job: JobId) -> Result<HoldResponse, drpc::Error> {
        self.ext.hold(&HoldRequest { job_id: job.to_string() }).await
    }

    /// Sends lines with these numbers; their text names the number.
    pub(super) async fn logs(
        &self,
        job: JobId,
        token: &Bytes,
        numbers: std::ops::Range<u64>,
    ) -> Result<LogsResponse, drpc::Error> {
        let first_sequence = numbers.start;
        let lines = numbers.map(|number| line(&format!("line {number}"))).collect();
        let request = LogsRequest { job_id: job.to_string(), token: token.clone(), first_sequence, lines };
        self.ext.logs(&request).await
    }

    pub(super) async fn update(&self, job: JobId) -> Result<UpdateJobResponse, Error> {
        let request = UpdateJobRequest { job_id: job.to_string(), ..UpdateJobRequest::default() };
        self.calls.update_job(&request).await
    }

    /// Cuts the connection without a closing handshake.
    pub(super) fn cut(&self) {
        self.cut.abort();
    }
}

impl Drop for DaemonConnection {
    fn drop(&mut self) {
        self.cut.abort();
    }
}

/// Forwards bytes in both directions until the budget is used up.
async fn carry(mut left: DuplexStream, mut right: DuplexStream, mut budget: usize) {
    let (mut from_left, mut from_right) = (vec![0; 4096], vec![0; 4096]);
    while budget > 0 {
        let carried = tokio::select! {
            read = left.read(&mut from_left) => forward(&from_left, read, &mut right, budget).await,
            read = right.read(&mut from_right) => forward(&from_right, read, &mut left, budget).await,
        };
        let Some(count) = carried else { return };
        budget -= count;
    }
}

async fn forward(
    bytes: &[u8],
    read: std::io::Result<usize>,
    to: &mut DuplexStream,
    budget: usize,
) -> Option<usize> {
    let count = read.ok().filter(|count| *count > 0)?.min(budget);
    to.write_all(&bytes[..count]).await.ok()?;
    Some(count)
}

pub(super) fn held(job: JobId, token: &Bytes) -> HeldJob {
    HeldJob { job_id: job.to_string(), token: token.clone(), next_sequence: 1 }
}

pub(super) fn state(job: JobId, token: &Bytes, lineage: &str, serial: u64) -> Journal {
    let text = format!(r#"{{"serial":{serial},"lineage":"{lineage}"}}"#);
    Journal {
        job_id: job.to_string(),
        token: token.clone(),
        serial,
        lineage: lineage.to_owned(),
        state: text.into(),
    }
}

pub(super) async fn next_notification(
    notifications: &mut extension::Notifications,
) -> notification::Notification {
    let next = tokio::time::timeout(WAIT_LIMIT, notifications.next()).await.unwrap();
    next.unwrap().unwrap().notification.unwrap()
}

/// The texts of a job's log, page by page.
pub(super) async fn log(app: &App, job: JobId) -> Vec<String> {
    let mut tx = app.store.reader().await.unwrap();
    let (mut texts, mut after) = (Vec::new(), 0);
    loop {
        let page = jobs::logs::list(&mut tx, job, after, 1000, 1 << 20).await.unwrap();
        let Some(last) = page.last() else { return texts };
        after = last.id;
        texts.extend(page.into_iter().map(|line| line.line.output));
    }
}
