//! `coder server`, and its subcommands, which work on the database.

mod builtin;
mod check;
mod config;
mod create_admin_user;
pub(crate) mod database;
mod flags;
mod ignored;
pub(crate) mod lock;
mod ssh_flags;
mod states;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use coder_domain::clock::SystemClock;
use coder_provisioner::Shutdown;
use coder_server::{Build, Deps, Server};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use flags::{Args, Database};

use builtin::Daemons;

use crate::context::Context;
use crate::signals::{Request, Signals};
use crate::{logging, runtime, versions};

/// How long jobs of built-in daemons may continue after SIGTERM (scheduling-and-auth 3.8).
const DRAIN_GRACE: Duration = Duration::from_secs(30 * 60);
/// How long they may take to stop after SIGINT.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    match &args.command {
        Some(flags::Subcommand::Check) => runtime::small()?.block_on(check::run(ctx, &args.database)),
        Some(flags::Subcommand::States { command }) => {
            runtime::small()?.block_on(states::run(ctx, &args.database, *command))
        }
        Some(flags::Subcommand::CreateAdminUser(new)) => {
            runtime::small()?.block_on(create_admin_user::run(ctx, &args.database, new))
        }
        None => {
            logging::install(&args.logs.settings(ctx.global.verbose))?;
            runtime::server()?.block_on(serve(ctx, args))
        }
    }
}

async fn serve(ctx: &Context, args: Args) -> anyhow::Result<()> {
    for flag in &args.ignored.given {
        tracing::warn!(target: "coderd", "{}", flag.warning());
    }
    let mut config = config::validate(&args)?;
    let (store, _lock) = database::open(&args.database).await?;
    // The directory of the database usually has more space than that for temporary files, which may be in memory.
    config.limits.spool_directory = database::directory(&args.database)?;
    let deps = Deps {
        store: store.clone(),
        clock: Arc::new(SystemClock),
        build: Build { compatible: versions::compatible(), product: versions::PRODUCT.to_owned() },
    };
    let access_url = config.access_url.clone();
    let mut signals = Signals::take()?;
    let server = Server::build(config, deps).await.context("the server cannot start")?;
    if args.database.state_encryption_keys.is_empty() {
        tracing::warn!(
            target: "coderd",
            "secrets in the database are not encrypted: set {} to a key of `openssl rand -base64 32` and keep it apart from the database and its backups",
            crate::env::STATE_ENCRYPTION_KEYS
        );
    }
    let handle = server.handle();
    announce(ctx, &handle, access_url.as_ref());
    let (stop, shutdown) = (CancellationToken::new(), Shutdown::new());
    let mut running = tokio::spawn(server.run(stop.clone()));
    let mut daemons = Daemons::start(&handle, &args.provisioning, &hidden(ctx, &args)?, &shutdown)?;
    let request = tokio::select! {
        ended = &mut running => return ended.context("the server's task ended")?.context("the server failed"),
        request = signals.next() => request,
    };
    let result = tokio::select! {
        result = finish(request, &shutdown, &mut daemons, &stop, &mut running) => result,
        _ = signals.next() => {
            tracing::warn!(target: "coderd", "stopping at once after a second signal");
            shutdown.force();
            Ok(())
        }
    };
    store.close().await;
    result
}

/// Files of the server that jobs of built-in daemons must not see.
fn hidden(ctx: &Context, args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    let mut hidden: Vec<_> = ctx.directory.path().map(Path::to_owned).into_iter().collect();
    hidden.extend(database::directory(&args.database)?);
    hidden.extend(args.tls.tls_key_file.iter().cloned());
    Ok(hidden)
}

/// Stops in order: the daemons report the results of their jobs before the server stops.
async fn finish(
    request: Request,
    shutdown: &Shutdown,
    daemons: &mut Daemons,
    stop: &CancellationToken,
    running: &mut JoinHandle<Result<(), coder_server::Error>>,
) -> anyhow::Result<()> {
    tracing::info!(target: "coderd", "stopping; another signal stops at once");
    let grace = match request {
        Request::Drain => {
            shutdown.drain();
            DRAIN_GRACE
        }
        Request::Cancel => {
            shutdown.cancel();
            CANCEL_GRACE
        }
    };
    if tokio::time::timeout(grace, daemons.ended()).await.is_err() {
        tracing::warn!(target: "coderd", "built-in daemons did not finish in time");
        shutdown.force();
        daemons.ended().await;
    }
    stop.cancel();
    running.await.context("the server's task ended")?.context("the server failed")
}

/// Prints the URL for people, because it is hard to find in the log.
fn announce(ctx: &Context, handle: &coder_server::Handle, access_url: Option<&url::Url>) {
    let local = handle.http.map(|address| format!("http://{address}"));
    let secure = handle.https.map(|address| format!("https://{address}"));
    for address in [&local, &secure].into_iter().flatten() {
        tracing::info!(target: "coderd", "listening on {address}");
    }
    if let Some(address) = handle.metrics {
        tracing::info!(target: "coderd", "starting Prometheus endpoint on http://{address}");
    }
    let given = access_url.map(|url| url.as_str().trim_end_matches('/').to_owned());
    if let Some(url) = given.or(local).or(secure) {
        ctx.printer.note(&format!("View the server at {url}, log in with: coder login {url}"));
    }
}
