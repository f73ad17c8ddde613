//! `coder quickstart`: everything on this machine, with the daemon as its own process, up to a running workspace.

mod account;
mod child;
mod demo;
mod key;
mod place;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use coder_api::client::{Client, Options, Proxies};
use coder_domain::clock::{Clock as _, SystemClock};
use coder_server::config::{Listen, Provisioning};
use coder_server::{Build, Config, Deps, Server};
use coder_store::{Location, Store};
use tokio_util::sync::CancellationToken;

use crate::cmd::server::lock::Lock;
use crate::context::Context;
use crate::exit::Canceled;
use crate::job_flags::Jobs;
use crate::output::{Look, Printer};
use crate::signals::{Request, Signals};
use crate::terraform::{self, Terraform};
use crate::{logging, progress, runtime, versions};
use child::Daemon;
use place::Place;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for everything; it is kept, and can be used again. Default: a fresh one that is removed at the end.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address to listen on; default 127.0.0.1:3000, or a free port when that one is taken.
    #[arg(long, value_name = "HOST:PORT")]
    http_address: Option<SocketAddr>,
    #[command(flatten)]
    terraform: Terraform,
    #[command(flatten)]
    jobs: Jobs,
}

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    for left in place::remove_left() {
        ctx.printer.note(&format!("Removed {}, which a quickstart left that was killed.", left.display()));
    }
    let place = match args.data_dir.as_deref() {
        Some(path) => Place::named(path)?,
        None => Place::fresh()?,
    };
    let log = place.path().join("server.log").display().to_string();
    logging::install(&logging::Settings { human: log, ..logging::Settings::default() })?;
    let result = runtime::server()?.block_on(all(ctx, &args, place.path()));
    // What went wrong is in the logs, so then a fresh directory stays.
    if result.is_err()
        && !is_interrupted(&result)
        && let Some(kept) = place.keep()
    {
        ctx.printer.note(&format!("The logs are in {}.", kept.display()));
    }
    result
}

fn is_interrupted(result: &anyhow::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.downcast_ref::<Canceled>().is_some())
}

async fn all(ctx: &Context, args: &Args, place: &Path) -> anyhow::Result<()> {
    let mut signals = Signals::take()?;
    find_terraform(args, &ctx.printer, place).await?;
    let _lock = Lock::take(place)?;
    let mut database = coder_store::Config::new(Location::Sqlite(place.join("coder.sqlite")));
    database.state_keys = key::of(place)?;
    let store = Store::open(&database, SystemClock.now()).await.context("open the database")?;
    let (server, url) = server(args, store.clone()).await?;
    step(&ctx.printer, &format!("Server on {url}, without built-in daemons"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(stop.clone()));
    let mut daemon = None;
    let result = tokio::select! {
        result = demonstrate(ctx, args, place, &url, &mut daemon) => result,
        request = signals.next() => Err(leave(request)),
    };
    let result = match result {
        Ok(()) => stay(&ctx.printer, &mut signals, daemon.as_mut()).await,
        Err(error) => Err(error),
    };
    // The daemon first: it reports to the server how its job ended.
    if let Some(daemon) = daemon {
        daemon.stop().await;
    }
    stop.cancel();
    let stopped = running.await.context("the server's task ended")?;
    store.close().await;
    result.and(stopped.context("the server failed"))
}

fn leave(request: Request) -> anyhow::Error {
    match request {
        Request::Cancel => Canceled::Interrupted.into(),
        Request::Drain => anyhow::anyhow!("stopped by a signal"),
    }
}

/// Before anything starts: without Terraform nothing can be shown.
async fn find_terraform(args: &Args, printer: &Printer, place: &Path) -> anyhow::Result<()> {
    let cache = child::cache(place);
    let mut config = coder_provisioner::Config::new("quickstart", &cache);
    args.terraform.apply(&mut config, &terraform::installed(&cache))?;
    let never = || async { Err(coder_provisioner::ConnectError::Retry("not connected".to_owned())) };
    let daemon = coder_provisioner::Daemon::new(config, never);
    let found =
        progress::waiting(printer, "Looking for Terraform, or installing it", daemon.check_terraform());
    found.await.context("quickstart builds its workspace with Terraform")?;
    Ok(())
}

async fn server(args: &Args, store: Store) -> anyhow::Result<(Server, String)> {
    let deps = |store| Deps {
        store,
        clock: Arc::new(SystemClock),
        build: Build { compatible: versions::compatible(), product: versions::PRODUCT.to_owned() },
    };
    let config = |address| Config {
        listen: Listen { http: Some(address), ..Listen::default() },
        provisioning: Provisioning { builtin_daemons: 0, ..Provisioning::default() },
        executable: std::env::current_exe().ok(),
        ..Config::default()
    };
    let usual = SocketAddr::from(([127, 0, 0, 1], 3000));
    let server = match args.http_address {
        Some(address) => Server::build(config(address), deps(store)).await?,
        None => match Server::build(config(usual), deps(store.clone())).await {
            Err(coder_server::Error::Bind { .. }) => {
                Server::build(config(SocketAddr::from(([127, 0, 0, 1], 0))), deps(store)).await?
            }
            other => other?,
        },
    };
    let address = server.handle().http.context("the server has no address")?;
    Ok((server, format!("http://{address}")))
}

/// From an empty server to a running workspace.
async fn demonstrate(
    ctx: &Context,
    args: &Args,
    place: &Path,
    url: &str,
    daemon: &mut Option<Daemon>,
) -> anyhow::Result<()> {
    let printer = &ctx.printer;
    // Nothing here may go through a proxy of the environment.
    let options = Options { proxies: Proxies::none(), ..Options::default() };
    let anonymous = Client::new(url, None, options)?;
    let account = account::prepare(&anonymous, place, url).await?;
    step(printer, &format!("User {} is signed in", account.email));
    let client = account.client.clone();
    let organization = client.organization(coder_api::paths::DEFAULT_ORGANIZATION).await?.id;
    let key = demo::key(&client, organization).await?;
    step(printer, &format!("Provisioner key {:?} with tag {}={}", demo::KEY_NAME, demo::TAG.0, demo::TAG.1));
    let variables = args.terraform.variables().into_iter().chain(args.jobs.variables());
    let started = daemon.insert(Daemon::start(place, url, &key, variables)?);
    started.wait_until_joined(&client, organization, printer).await?;
    let (name, pid) = (child::NAME, started.pid());
    step(printer, &format!("Daemon {name:?} has joined with that key, as process {pid}"));
    let template = demo::push(&client, printer, organization).await?;
    step(printer, &format!("Template {:?} is imported", demo::TEMPLATE));
    let built = demo::workspace(&client, printer, organization, template).await?;
    if built.worker_name != child::NAME {
        bail!("the workspace was built by {:?}, not by {name:?}", built.worker_name);
    }
    step(printer, &format!("Workspace {:?} is running", demo::WORKSPACE));
    let lines = crate::resources::lines(printer, &built.workspace.latest_build.resources, None, true);
    printer.data("");
    lines.iter().for_each(|line| printer.data(line));
    summary(printer, url, place, &account, &built.worker_name, pid);
    Ok(())
}

fn step(printer: &Printer, text: &str) {
    printer.note(&format!("{} {text}", printer.paint(Look::Good, "●")));
}

fn summary(printer: &Printer, url: &str, place: &Path, account: &account::Account, worker: &str, pid: u32) {
    let bold = |text: &str| printer.paint(Look::Bold, text);
    printer.data("");
    printer.data(&format!("Built by   daemon {} (worker_name of the job), process {pid}", bold(worker)));
    printer.data(&format!("Server     {}", bold(url)));
    printer.data(&format!(
        "Log in     {}  password {}",
        bold(&account.email),
        bold(account.password.expose())
    ));
    printer.data(&format!("Data       {}", place.display()));
    printer.data("");
    let program =
        std::env::current_exe().map_or_else(|_| "coder".to_owned(), |path| path.display().to_string());
    printer.data("Go on in another terminal:");
    printer.data("");
    let config = account::config_directory(place);
    for line in [
        format!("export CODER_CONFIG_DIR={}", config.display()),
        format!("{program} list"),
        format!("{program} stop {} -y", demo::WORKSPACE),
        format!("{program} provisioner list"),
        format!("{program} provisioner jobs list"),
    ] {
        printer.data(&format!("    {}", printer.paint(Look::Code, &line)));
    }
    printer.data("");
    printer.data("Press Ctrl-C here to stop everything.");
}

/// Waits for a signal; a daemon that dies meanwhile is an error.
async fn stay(printer: &Printer, signals: &mut Signals, daemon: Option<&mut Daemon>) -> anyhow::Result<()> {
    let died = async {
        match daemon {
            Some(daemon) => daemon.died().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = signals.next() => {
            printer.note("Stopping the daemon and the server.");
            Ok(())
        }
        error = died => Err(error),
    }
}
