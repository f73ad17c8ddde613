//! Building a server from its settings and store, and running it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use coder_domain::clock::Clock;
use coder_store::{Store, organizations, settings};
use tokio_util::sync::CancellationToken;

use crate::agents::connected_agents::ConnectedAgents;
use crate::agents::pending::PendingReports;
use crate::apps::state::AppsState;
use crate::authn::password;
use crate::config::Config;
use crate::context::{App, Build, Ctx};
use crate::events::Events;
use crate::external_auth;
use crate::external_auth::providers::ExternalAuthProviders;
use crate::http::connection::{ConnectionService, Service};
use crate::http::connection_limit::ConnectionLimit;
use crate::http::limits::RateLimits;
use crate::http::listen::Listener;
use crate::http::open_count::OpenCount;
use crate::http::tls;
use crate::http::websocket_limit::WebSocketLimit;
use crate::lifecycle::Lifecycle;
use crate::memory::Memory;
use crate::metrics;
use crate::metrics::counters::Metrics;
use crate::network::Network;
use crate::provisioning::dispatch::scheduler::Scheduler;
use crate::router;
use crate::routes::workspace_agents::{MOST_ACCOUNT_WAITS, MOST_CLAIM_STREAMS};
use crate::tasks;

/// Most connections to the metrics listener.
const METRICS_CONNECTIONS: usize = 32;

/// What a server needs besides its settings.
pub struct Deps {
    /// The migrated database.
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    /// Versions to report.
    pub build: Build,
}

/// Why a server could not be built or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed at the start.
    #[error("cannot read the deployment's identity from the database")]
    Store(#[from] coder_store::Error),
    /// TLS settings.
    #[error("cannot set up TLS")]
    Tls(#[from] tls::Error),
    /// External authentication providers.
    #[error("cannot set up external authentication")]
    ExternalAuth(#[from] external_auth::SetupError),
    /// An address that cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Neither address was given.
    #[error("no address to listen on: give --http-address or --tls-address")]
    NoAddress,
}

/// A server that is bound but does not run yet.
pub struct Server {
    app: App,
    listeners: Vec<Listener>,
    metrics: Option<Listener>,
    http: Option<SocketAddr>,
    https: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
}

/// A reference to a server: its context, its addresses, and its routes without a socket.
#[derive(Clone)]
pub struct Handle {
    /// The context.
    pub app: App,
    /// The bound address of plain HTTP.
    pub http: Option<SocketAddr>,
    /// The bound address of HTTPS.
    pub https: Option<SocketAddr>,
    /// The bound address of the metrics.
    pub metrics: Option<SocketAddr>,
}

impl Handle {
    /// The route table as a service, for requests in process.
    #[must_use]
    pub fn service(&self) -> Service {
        router::service(self.app.clone())
    }
}

impl Server {
    /// Reads the deployment's identity, sets up TLS and binds the addresses. [`Self::run`] serves them.
    pub async fn build(mut config: Config, deps: Deps) -> Result<Self, Error> {
        let (mut listeners, mut http, mut https) = (Vec::new(), None, None);
        if let Some(address) = config.listen.http {
            let listener = bind(address, None).await?;
            http = listener.address().ok();
            listeners.push(listener);
        }
        if let Some(settings) = &config.listen.https {
            let listener = bind(settings.address, Some(tls::acceptor(settings)?)).await?;
            https = listener.address().ok();
            listeners.push(listener);
        }
        let metrics = match config.listen.metrics {
            Some(address) => Some(bind(address, None).await?),
            None => None,
        };
        let metrics_address = metrics.as_ref().and_then(|listener| listener.address().ok());
        // Port 0 is a free one in both.
        if let Some(url) = config.tailnet.relay_url.as_mut().filter(|url| url.port() == Some(0)) {
            let bound = if url.scheme() == "https" { https } else { http };
            // It fails only for URLs without a host.
            let _ = url.set_port(bound.map(|address| address.port()));
        }
        let app = context(config, deps).await?;
        Ok(Self { app, listeners, metrics, http, https, metrics_address })
    }

    /// A handle, which can be cloned.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { app: self.app.clone(), http: self.http, https: self.https, metrics: self.metrics_address }
    }

    /// Serves requests and runs the background tasks until `stop`, then waits for requests and tasks in progress.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        if self.listeners.is_empty() {
            return Err(Error::NoAddress);
        }
        let app = self.app;
        let life = app.lifecycle.clone();
        let limits = app.config.limits.clone();
        tasks::start(&app);
        let proxies = &app.config.proxies;
        let connection_service =
            |service| ConnectionService::new(service, limits.clone(), proxies.clone(), life.soft().clone());
        let http = connection_service(router::service(app.clone()));
        let limit = ConnectionLimit::new(connections(limits.connections), proxies.clone());
        for listener in self.listeners {
            life.spawn("listener", listener.run(Arc::clone(&http), Arc::clone(&limit), life.clone()));
        }
        if let Some(listener) = self.metrics {
            // A separate limit, so that metrics can be read when the server has no free connection.
            let limit = ConnectionLimit::new(METRICS_CONNECTIONS, proxies.clone());
            life.spawn(
                "metrics",
                listener.run(connection_service(metrics::service(app.clone())), limit, life.clone()),
            );
        }
        stop.cancelled().await;
        let dropped = life.stop(limits.shutdown_grace).await;
        if dropped > 0 {
            tracing::warn!(dropped, "some connections or tasks did not end in time");
        }
        Ok(())
    }
}

/// With fewer connections the log has a warning.
const FEW_CONNECTIONS: usize = 4096;

/// How many connections may be open. Half of the open files of this process are left for the database, upgraded connections
/// and everything else.
fn connections(configured: usize) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX));
    if half < configured.min(FEW_CONNECTIONS) {
        tracing::warn!(
            connections = half,
            open_files = files,
            "the limit of open files leaves few connections: raise it with ulimit -n, or LimitNOFILE of systemd"
        );
    }
    configured.min(half)
}

async fn bind(address: SocketAddr, tls: Option<tokio_rustls::TlsAcceptor>) -> Result<Listener, Error> {
    Listener::bind(address, tls).await.map_err(|source| Error::Bind { address, source })
}

/// Makes the context without listeners. Tests call the router with it.
pub async fn context(config: Config, deps: Deps) -> Result<App, Error> {
    let Deps { store, clock, build } = deps;
    coder_store::encryption::register(&store, clock.now()).await?;
    let mut tx = store.reader().await?;
    let deployment_id = settings::deployment_id(&mut tx).await?;
    let default_organization = organizations::get_default(&mut tx).await?.id;
    drop(tx);
    let events = if config.provisioning.wake_ups { Events::new() } else { Events::disabled() };
    let scheduler = Scheduler::new(store.clone(), clock.clone(), events.clone());
    let passwords = password::Hasher::new(config.sessions.password_concurrency);
    let rates = RateLimits::new(&config.limits);
    let websockets = WebSocketLimit::new(config.limits.websockets_per_user);
    let memory = Memory::new(&config.limits);
    let external_auth = ExternalAuthProviders::new(&config.external_auth)?;
    let network = Network::load(&store, &config, events.outbox().own()).await?;
    let apps = AppsState::load(&store, &config, Arc::clone(&network.server_node)).await?;
    Ok(Arc::new(Ctx {
        config,
        store,
        clock,
        events,
        scheduler,
        build,
        deployment_id,
        default_organization,
        lifecycle: Lifecycle::new(),
        passwords,
        memory,
        rates,
        websockets,
        claim_streams: OpenCount::new(MOST_CLAIM_STREAMS),
        account_waits: OpenCount::new(MOST_ACCOUNT_WAITS),
        external_auth,
        network,
        apps,
        agents: ConnectedAgents::default(),
        pending: PendingReports::default(),
        schedules_changed: Arc::default(),
        ended_tokens: Arc::default(),
        metrics: Metrics::default(),
    }))
}
