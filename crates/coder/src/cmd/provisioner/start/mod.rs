//! `coder provisioner start`: one external daemon, until a signal ends it.

mod connect;
mod flags;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use coder_api::client::{Client, Credential, Error};
use coder_domain::names;
use coder_domain::secret::Secret;
use coder_provisioner::{Config, ConnectError, Daemon, RunError, Shutdown, Stop, http};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) use flags::Args;

use super::keys;
use crate::context::Context;
use crate::daemon_flags::terraform;
use crate::parent_pipe::ParentPipe;
use crate::signals::{Request, Signals};
use crate::{env, logging, remote, runtime, versions};

/// A daemon mostly waits for Terraform; two threads keep heartbeats going while output is read.
const WORKER_THREADS: usize = 2;

/// How the daemon authenticates, and the organization that follows from it.
struct Identity {
    credential: Credential,
    organization: String,
    /// Sent at join; empty with a key.
    tags: BTreeMap<String, String>,
    /// For the log.
    shown_tags: BTreeMap<String, String>,
}

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    refuse_contradictions(&args)?;
    let name = name(args.name.as_deref())?;
    logging::install(&args.log_settings())?;
    coder_provisioner::protect_process();
    runtime::daemon(WORKER_THREADS)?.block_on(serve(ctx, args, name))
}

/// The checks that the official program makes before it connects (scheduling-and-auth 7.1).
fn refuse_contradictions(args: &Args) -> anyhow::Result<()> {
    let (key, psk) = (args.key.is_some(), args.psk.is_some());
    ensure!(
        !(key && psk),
        "cannot use both a provisioner key (--key) and a pre-shared key (--psk): pass one of them"
    );
    ensure!(
        !key || args.tags.is_empty(),
        "cannot use --tag with a provisioner key: the tags are those of the key, make another key with `coder provisioner keys create`"
    );
    ensure!(
        !key || args.organization.org.is_none(),
        "cannot use --org with a provisioner key: the organization is the key's"
    );
    ensure!(
        !psk || args.organization.org.is_none(),
        "cannot use --org with a pre-shared key: it joins the default organization"
    );
    ensure!(
        !args.once || args.slots == 1,
        "cannot use --once with several --slots: one job is run, in one slot"
    );
    Ok(())
}

/// The given name, or the host's up to its first dot.
fn name(given: Option<&str>) -> anyhow::Result<String> {
    let host = rustix::system::uname();
    let name = match given {
        Some(name) => name.to_owned(),
        None => host.nodename().to_string_lossy().split('.').next().unwrap_or_default().to_owned(),
    };
    names::daemon(&name)
        .map_err(|error| anyhow::anyhow!("the daemon name {name:?} {error}: pass another one with --name"))?;
    Ok(name)
}

async fn serve(ctx: &Context, args: Args, name: String) -> anyhow::Result<()> {
    let signals = Signals::take()?;
    let quit = signal(SignalKind::quit()).context("take over SIGQUIT")?;
    let parent = ParentPipe::open(args.end_with_stdin)?;
    let tags = keys::tags(&args.tags)?;
    let (client, identity) = identify(ctx, &args, tags).await?;
    log_notes(&args, &identity);
    let cache = cache_directory(args.cache_dir.as_deref())?;
    let mut config = Config::new(&name, &cache);
    config.tags = identity.shown_tags.clone();
    args.terraform.apply(&mut config, &terraform::installed(&cache))?;
    config.slots = usize::from(args.slots);
    config.once = args.once;
    if args.local_agents {
        config.local_agents = Some(std::env::current_exe().context("find the path of this program")?);
    }
    // Templates must not see the files of `coder login`.
    args.jobs.apply(&mut config, ctx.directory.path().map(Path::to_owned).into_iter().collect())?;
    let daemon = Daemon::new(config, connect::ServerConnector::new(client, &identity, &name));
    let shutdown = Shutdown::new();
    let http = open_http(&args, &daemon, &shutdown).await?;
    let listener = tokio::spawn(handle_signals(signals, quit, parent, shutdown.clone()));
    let result = daemon.run(shutdown.clone()).await;
    listener.abort();
    if let Some(http) = http {
        http.abort();
    }
    result.map_err(|error| {
        let is_refused = matches!(error, RunError::Refused(_));
        let error = anyhow::Error::new(error);
        if is_refused { error } else { error.context("the daemon cannot run on this machine") }
    })?;
    if shutdown.requested() >= Some(Stop::Force) {
        bail!("stopped at once, as a second signal or SIGQUIT asked for");
    }
    Ok(())
}

/// Handles the signals (documented in docs/reference): a second one forces the end, SIGQUIT kills at any time, and so
/// does the end of the process that started this one.
async fn handle_signals(mut signals: Signals, mut quit: Signal, mut parent: ParentPipe, shutdown: Shutdown) {
    let ordinary = async {
        match signals.next().await {
            Request::Drain => shutdown.drain(),
            Request::Cancel => shutdown.cancel(),
        }
        signals.next().await;
        shutdown.force();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = ordinary => {}
        _ = quit.recv() => shutdown.kill(),
        () = parent.closed() => {
            tracing::warn!(target: "provisioner", "the process that started this daemon has ended");
            shutdown.kill();
        }
    }
}

/// Serves metrics and health, if configured.
async fn open_http(
    args: &Args,
    daemon: &Daemon,
    shutdown: &Shutdown,
) -> anyhow::Result<Option<tokio::task::JoinHandle<Infallible>>> {
    if !args.prometheus_enable {
        return Ok(None);
    }
    let address = args.prometheus_address.as_str();
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
        format!("listen on {address} for metrics: pass another address with --prometheus-address")
    })?;
    let address = listener.local_addr().context("ask for the address of the metrics")?;
    tracing::info!(target: "provisioner", %address, "starting Prometheus endpoint");
    let serving = http::serve(listener, versions::compatible(), daemon.status(), shutdown.clone());
    Ok(Some(tokio::spawn(serving)))
}

async fn identify(
    ctx: &Context,
    args: &Args,
    mut tags: BTreeMap<String, String>,
) -> anyhow::Result<(Client, Identity)> {
    let url = ctx.url()?;
    let default = coder_api::paths::DEFAULT_ORGANIZATION.to_owned();
    if let Some(key) = &args.key {
        let key = Secret::new(key.trim());
        let client = remote::open(ctx, &url, None)?;
        let details = client.own_provisioner_key(&key).await.map_err(refused)?;
        let shown_tags = details.tags.as_map().clone();
        let identity = Identity {
            credential: Credential::Key(key),
            organization: default,
            tags: BTreeMap::new(),
            shown_tags,
        };
        return Ok((client, identity));
    }
    if let Some(psk) = &args.psk {
        // A pre-shared key belongs to no user, so there is no user scope (scheduling-and-auth CONF-3).
        tags.insert("scope".to_owned(), "organization".to_owned());
        let client = remote::open(ctx, &url, None)?;
        let credential = Credential::Psk(Secret::new(psk));
        return Ok((client, Identity { credential, organization: default, shown_tags: tags.clone(), tags }));
    }
    let Some(token) = ctx.token()? else {
        bail!(
            "must provide a pre-shared key or provisioner key when not authenticated as a user: pass --key, set \
             CODER_PROVISIONER_DAEMON_KEY, or run `coder login`"
        );
    };
    let client = remote::open(ctx, &url, Some(token))?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await;
    let organization = organization.map_err(|error| match error.downcast::<Error>() {
        Ok(error) if error.status().is_some_and(|status| status == 401) => {
            RunError::Refused(ConnectError::Unauthorized(connect::ENDED_SESSION.to_owned())).into()
        }
        Ok(error) => error.into(),
        Err(other) => other,
    })?;
    let identity = Identity {
        credential: Credential::Session,
        organization: organization.id.to_string(),
        shown_tags: tags.clone(),
        tags,
    };
    Ok((client, identity))
}

/// An unknown or malformed key can never work. Other errors may be temporary.
fn refused(error: Error) -> anyhow::Error {
    match error.status().map(|status| status.as_u16()) {
        Some(400 | 401 | 403) => {
            RunError::Refused(ConnectError::Unauthorized(connect::UNKNOWN_KEY.to_owned())).into()
        }
        _ => error.into(),
    }
}

/// Logs notes about surprising settings.
fn log_notes(args: &Args, identity: &Identity) {
    match &identity.credential {
        Credential::Key(_) => {
            tracing::info!(target: "provisioner", "authenticated with a provisioner key, its tags are used and it has no user scope");
        }
        Credential::Psk(_) => {
            tracing::info!(target: "provisioner", "authenticated with a pre-shared key, so the scope is organization");
        }
        Credential::Session => {}
    }
    let own =
        |(key, value): (&String, &String)| !matches!(key.as_str(), "scope" | "owner") || value == "user";
    if !identity.shown_tags.iter().any(own) {
        tracing::info!(target: "provisioner", "this daemon has no tags, so it only picks up jobs of templates without tags");
    }
    for flag in args.ignored() {
        tracing::warn!(target: "provisioner", "{}", flag.warning());
    }
}

fn cache_directory(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    env::cache_directory().context("the home directory is not known: set HOME, or pass --cache-dir")
}
