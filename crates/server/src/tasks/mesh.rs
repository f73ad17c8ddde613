//! Connects this server to all others on the same Postgres, so that users reach agents that are connected to any of them
//! (docs/network.md). Each server enters its relay URL in the database, and dials those that the others entered.

use std::collections::HashMap;
use std::time::Duration;

use coder_api::client::{Client, Options, Proxies};
use coder_api::paths;
use coder_domain::backoff::Backoff;
use coder_store::replicas::{self, Replica};
use coder_store::{Error as StoreError, Store};
use coder_tailnet::derp::upgrade::{self, Form};
use coder_tailnet::mesh::{self, Mesh};
use http::{HeaderMap, Uri};
use jiff::SignedDuration;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use url::Url;
use uuid::Uuid;

use crate::context::App;

/// Interval at which the own row is renewed and the others are read. A server that connects is read at once.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(15);
/// A server that did not renew its row for so long is not dialled. The clocks of servers may differ by minutes.
const STALE_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// Its row is removed after this time.
const PURGE_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// Other servers that are dialled.
const MAX_SERVERS: i64 = 64;
/// How long the upgrade may take.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Why there is no connection to another server.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Dial(#[from] coder_api::client::Error),
    #[error("the relay URL of the other server has no path for servers")]
    Url(#[from] url::ParseError),
    #[error("the relay URL of the other server cannot be requested")]
    Uri(#[from] http::uri::InvalidUri),
    #[error(transparent)]
    Upgrade(#[from] upgrade::Error),
    #[error("the other server does not answer the upgrade")]
    Silent,
    #[error(transparent)]
    Mesh(#[from] mesh::Error),
}

/// Runs until the soft stop. It returns at once when this server has no relay URL, or is the only one on SQLite.
pub async fn run(app: &App) {
    let (Some(mesh), Some(url)) = (&app.network.mesh, &app.config.tailnet.relay_url) else { return };
    let own = mesh.own().to_string();
    let (mut tasks, mut dialled) = (JoinSet::new(), HashMap::<Uuid, AbortHandle>::new());
    let mut is_failing = false;
    loop {
        match others(app, &own, url).await {
            Ok(others) => {
                is_failing = false;
                dialled.retain(|id, task| {
                    let is_there = others.iter().any(|(other, _)| other == id);
                    if !is_there {
                        task.abort();
                    }
                    is_there
                });
                for (id, url) in others {
                    dialled.entry(id).or_insert_with(|| tasks.spawn(keep_connected(mesh.clone(), id, url)));
                }
            }
            // One line until it succeeds again. Connections stay.
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "cannot read which other servers there are, trying again");
                }
            }
        }
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => break,
            () = app.network.mesh_joined.notified() => {}
            () = sleep(RENEWAL_INTERVAL) => {}
            Some(ended) = tasks.join_next() => if let Err(error) = ended && error.is_panic() {
                tracing::error!(%error, "a connection to another server panicked");
            },
        }
    }
    tasks.shutdown().await;
    if let Err(error) = leave(&app.store, &own).await {
        tracing::debug!(%error, "cannot remove this server from the list of servers");
    }
}

/// Renews the own row and reads the others.
async fn others(app: &App, own: &str, url: &Url) -> Result<Vec<(Uuid, Url)>, StoreError> {
    let (now, mut tx) = (app.now(), app.store.single().await?);
    replicas::renew(&mut tx, own, url.as_str(), now).await?;
    replicas::purge(&mut tx, now - PURGE_AFTER).await?;
    drop(tx);
    let mut tx = app.store.reader().await?;
    let rows = replicas::list_others(&mut tx, own, now - STALE_AFTER, MAX_SERVERS).await?;
    let read = |row: Replica| Some((row.id.parse::<Uuid>().ok()?, row.relay_url.parse::<Url>().ok()?));
    Ok(rows.into_iter().filter_map(read).collect())
}

async fn leave(store: &Store, own: &str) -> Result<(), StoreError> {
    replicas::remove(&mut store.single().await?, own).await
}

/// Dials a server again and again.
async fn keep_connected(mesh: Mesh, other: Uuid, url: Url) {
    let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY).with_jitter();
    let mut is_failing = false;
    loop {
        let began = Instant::now();
        match dial(&mesh, other, &url).await {
            Ok(()) => tracing::info!(server_id = %other, "another server closed the connection"),
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(server_id = %other, relay_url = %url, %error, "no connection to another server, trying again");
                }
            }
        }
        if began.elapsed() > MAX_DELAY {
            backoff.reset();
            is_failing = false;
        }
        sleep(backoff.next_delay()).await;
    }
}

async fn dial(mesh: &Mesh, other: Uuid, url: &Url) -> Result<(), Error> {
    // Servers reach each other without a proxy.
    let options = Options { proxies: Proxies::default(), ..Options::default() };
    let client = Client::new(url.as_str(), None, options)?;
    let url = client.base().join(paths::DERP_MESH)?;
    let io = client.dialer().connection(&url).await?;
    let uri: Uri = url.as_str().parse()?;
    let upgraded = timeout(UPGRADE_TIMEOUT, upgrade::client(io, &uri, &HeaderMap::new(), Form::Derp)).await;
    Ok(mesh.dial(upgraded.map_err(|_| Error::Silent)??, other).await?)
}
