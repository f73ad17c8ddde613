//! Dials the server, attaches, uses the connection until it ends, and dials again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_domain::protocol::{self, ApiVersion};
use coder_wire::bytes::BoxedStream;
use coder_wire::drpc;
use coder_wire::extension::{Extension, Extensions};
use coder_wire::mux;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Connection;
use super::error::ConnectError;
use super::held_jobs::HeldJobs;
use super::notifications;
use super::status_reports;
use crate::cancel::Shutdown;
use crate::daemon::status::Status;

/// Delays between attempts to connect (wire-protocol 1.7).
const MIN_REDIAL_DELAY: Duration = Duration::from_millis(81);
const MAX_REDIAL_DELAY: Duration = Duration::from_secs(10);

/// The same while jobs run: the server waits only for a limited time.
const MAX_REDIAL_DELAY_BUSY: Duration = Duration::from_secs(1);

/// A connection that ends sooner does not reset the delay before the next one.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// The first call of a connection (docs/extensions.md, Attach).
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

/// After this many refusals in a row a credential that has worked counts as revoked. A single refusal may come
/// from a proxy, or from a server that is being set up.
const MAX_REFUSALS: u32 = 5;

/// An authenticated byte stream to a server, and what was negotiated for it.
pub struct Transport {
    /// The bytes after the 101 response, below the multiplexer: a WebSocket, or an in-process pipe.
    pub stream: BoxedStream,
    /// The subset of [`Extensions::ALL`] that the server granted; none for an official server.
    pub extensions: Extensions,
    /// The negotiated protocol version. Fields that this version does not have are not sent.
    pub protocol: ApiVersion,
}

impl From<BoxedStream> for Transport {
    /// The newest official protocol that this program speaks, without extensions.
    fn from(stream: BoxedStream) -> Self {
        Self { stream, extensions: Extensions::NONE, protocol: protocol::CURRENT }
    }
}

/// The future that a [`Connector`] returns.
pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = Result<Transport, ConnectError>> + Send + 'a>>;

/// Opens connections to a server.
pub trait Connector: Send + Sync + 'static {
    /// Dials once. The daemon decides when to retry.
    fn connect(&self) -> ConnectFuture<'_>;
}

impl<F, Connecting> Connector for F
where
    F: Fn() -> Connecting + Send + Sync + 'static,
    Connecting: Future<Output = Result<BoxedStream, ConnectError>> + Send + 'static,
{
    fn connect(&self) -> ConnectFuture<'_> {
        let connecting = self();
        Box::pin(async move { connecting.await.map(Transport::from) })
    }
}

/// Keeps a daemon connected.
pub(crate) struct Dialer<'a> {
    pub(crate) connector: &'a dyn Connector,
    pub(crate) held_jobs: Arc<HeldJobs>,
    pub(crate) status: &'a watch::Sender<Status>,
    pub(crate) shutdown: &'a Shutdown,
    /// Log connections at debug level only.
    pub(crate) quiet: bool,
}

impl Dialer<'_> {
    fn log(&self, message: &str) {
        if self.quiet {
            tracing::debug!(target: "provisioner", "{message}");
        } else {
            tracing::info!(target: "provisioner", "{message}");
        }
    }

    /// Reconnects until the server permanently refuses this daemon.
    pub(crate) async fn run(&self, current: watch::Sender<Option<Connection>>) -> ConnectError {
        let mut backoff = Backoff::new(MIN_REDIAL_DELAY, MAX_REDIAL_DELAY);
        let mut number = 0;
        let mut refusals = 0;
        loop {
            match self.connector.connect().await {
                Ok(connection) => {
                    refusals = 0;
                    number += 1;
                    let connected_at = Instant::now();
                    self.serve(connection, number, &current).await;
                    if connected_at.elapsed() >= STABLE_AFTER {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    self.status.send_modify(|status| status.last_error = Some(error.to_string()));
                    if matches!(error, ConnectError::Unauthorized(_)) {
                        refusals += 1;
                    } else {
                        refusals = 0;
                    }
                    // Before the first success, a 401 can only be a wrong credential.
                    if error.is_final() || refusals >= MAX_REFUSALS || (refusals > 0 && number == 0) {
                        tracing::error!(target: "provisioner", %error, "not authorized to dial coderd");
                        return error;
                    }
                    tracing::warn!(target: "provisioner", %error, "coderd client failed to dial");
                }
            }
            let delay = backoff.next_delay();
            let busy = self.status.borrow().is_busy();
            tokio::time::sleep(if busy { delay.min(MAX_REDIAL_DELAY_BUSY) } else { delay }).await;
        }
    }

    /// Uses one connection until it ends.
    async fn serve(&self, connection: Transport, number: u64, current: &watch::Sender<Option<Connection>>) {
        let session = mux::Session::client(connection.stream, mux::Config::default());
        let connection = Connection::new(session, connection.extensions, connection.protocol, number);
        if let Err(error) = self.attach(&connection).await {
            tracing::warn!(target: "provisioner", %error, "attaching to the server failed; reconnecting");
            self.status.send_modify(|status| status.last_error = Some(format!("attach: {error}")));
            connection.client().session().close().await;
            return;
        }
        self.log("successfully connected to coderd");
        self.status.send_modify(|status| {
            status.connected = true;
            status.last_error = None;
            status.reconnects = number - 1;
            status.extensions = connection.granted();
        });
        current.send_replace(Some(connection.clone()));
        let reports_of = self.status.subscribe();
        let ended = tokio::select! {
            ended = connection.client().session().closed() => ended,
            never = notifications::listen(&connection, &self.held_jobs, self.shutdown) => match never {},
            never = status_reports::report(&connection, &reports_of) => match never {},
        };
        current.send_replace(None);
        self.status.send_modify(|status| status.connected = false);
        self.log(&format!("connection to coderd closed: {ended}"));
    }

    async fn attach(&self, connection: &Connection) -> Result<(), drpc::Error> {
        let granted = connection.granted();
        if granted.is_empty() {
            self.held_jobs.clear_grace();
            return Ok(());
        }
        let request = self.held_jobs.attach_request(granted.has(Extension::Resume));
        let attaching = tokio::time::timeout(ATTACH_TIMEOUT, connection.extensions().attach(&request));
        let response = attaching.await.unwrap_or(Err(drpc::Error::Stalled))?;
        self.held_jobs.apply_attach_response(&request, response, connection);
        Ok(())
    }
}
