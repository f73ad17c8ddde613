//! `coder server`, and `coder server check`.

mod builtin;
mod check;
mod config;
mod database;
mod flags;
mod ignored;

use std::sync::Arc;

use anyhow::Context as _;
use coder_domain::clock::SystemClock;
use coder_server::{Build, Deps, Server};
use tokio_util::sync::CancellationToken;

pub(crate) use flags::Args;

use crate::context::Context;
use crate::signals::{Request, Signals};
use crate::{logging, runtime, versions};

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    match &args.command {
        Some(flags::Sub::Check) => runtime::small()?.block_on(check::run(ctx, &args.database)),
        None => {
            logging::install(&args.logs.settings(ctx.global.verbose))?;
            runtime::server()?.block_on(serve(ctx, args))
        }
    }
}

async fn serve(ctx: &Context, args: Args) -> anyhow::Result<()> {
    for flag in &args.ignored.given {
        tracing::warn!(target: "coderd", "flag --{flag} is accepted but has no effect yet");
    }
    let config = config::validate(&args)?;
    let store = database::open(&args.database).await?;
    let deps = Deps {
        store: store.clone(),
        clock: Arc::new(SystemClock),
        build: Build { compatible: versions::compatible(), product: versions::PRODUCT.to_owned() },
    };
    let daemons = config.provisioning.builtin_daemons;
    let force_cancel = config.provisioning.force_cancel_after;
    let access_url = config.access_url.clone();
    let server = Server::build(config, deps).await.context("the server cannot start")?;
    let handle = server.handle();
    announce(ctx, &handle, access_url.as_ref());
    let mut signals = Signals::take()?;
    let (stop, force) = (CancellationToken::new(), CancellationToken::new());
    let builtin = builtin::start(&handle, &args, daemons, force_cancel)?;
    let running = tokio::spawn(server.run(stop.clone()));
    let waiting = tokio::spawn({
        let (stop, force) = (stop.clone(), force.clone());
        async move {
            let first = signals.next().await;
            let how = if first == Request::Drain { "SIGTERM" } else { "SIGINT" };
            tracing::info!(target: "coderd", "stopping on {how}; the same signal again stops at once");
            stop.cancel();
            signals.next().await;
            force.cancel();
        }
    });
    let result = tokio::select! {
        result = running => result.context("the server's task ended")?.context("the server failed"),
        () = force.cancelled() => {
            tracing::warn!(target: "coderd", "stopped at once");
            Ok(())
        }
    };
    waiting.abort();
    if !force.is_cancelled() {
        builtin.stop(&force).await;
        store.close().await;
    }
    result
}

/// Tells people where to go; the log alone is too much to read.
fn announce(ctx: &Context, handle: &coder_server::Handle, access_url: Option<&url::Url>) {
    let local = handle.http.map(|address| format!("http://{address}"));
    let secure = handle.https.map(|address| format!("https://{address}"));
    for address in [&local, &secure].into_iter().flatten() {
        tracing::info!(target: "coderd", "listening on {address}");
    }
    let given = access_url.map(|url| url.as_str().trim_end_matches('/').to_owned());
    if let Some(url) = given.or(local).or(secure) {
        ctx.printer.note(&format!("View the server at {url}, log in with: coder login {url}"));
    }
}
