//! `coder quickstart`: everything on this machine, with the daemon as its own process, up to a workspace that one can enter. The
//! workspace's agent is a process of the daemon (`coder_local_agent`, docs/isolation.md).

mod account;
mod daemon;
mod demo;
mod directory;
mod encryption_key;

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
use crate::daemon_flags::jobs::Jobs;
use crate::daemon_flags::terraform::{self, Terraform};
use crate::exit::Canceled;
use crate::signals::{Request, Signals};
use crate::terminal::output::{Printer, Style, strip_control};
use crate::terminal::{resource_tree, spinner};
use crate::{env, logging, runtime, versions};
use daemon::Daemon;
use directory::QuickstartDirectory;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for everything; it is kept, and can be used again. Default: a temporary one that is removed at the end.
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
    for left in directory::remove_orphans() {
        ctx.printer
            .note(&format!("Removed {}, the directory of a quickstart that was killed.", left.display()));
    }
    let directory = match args.data_dir.as_deref() {
        Some(path) => QuickstartDirectory::named(path)?,
        None => QuickstartDirectory::temporary()?,
    };
    let mut has_started = false;
    let result = runtime::server()?.block_on(run_all(ctx, &args, directory.path(), &mut has_started));
    let has_failed = result.is_err() && !is_interrupted(&result);
    if has_failed {
        // The logs are removed together with a temporary directory.
        log_tail(&ctx.printer, directory.path());
    }
    let path = directory.path().to_owned();
    directory.leave(has_failed && !has_started);
    if has_failed && path.exists() {
        ctx.printer.note(&format!("The logs are in {}.", path.display()));
    }
    result
}

/// Prints the last warnings and errors of the server and the daemon.
fn log_tail(printer: &Printer, directory: &Path) {
    const LINES: usize = 10;
    for name in ["server.log", "daemon.log"] {
        let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let problems: Vec<_> =
            text.lines().filter(|line| line.contains(" [warn] ") || line.contains(" [erro] ")).collect();
        for line in problems.iter().skip(problems.len().saturating_sub(LINES)) {
            printer.note(&printer.paint(Style::Faint, &format!("{name}: {}", strip_control(line))));
        }
    }
}

fn is_interrupted(result: &anyhow::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.downcast_ref::<Canceled>().is_some())
}

async fn run_all(ctx: &Context, args: &Args, directory: &Path, has_started: &mut bool) -> anyhow::Result<()> {
    let mut signals = Signals::take()?;
    find_terraform(args, &ctx.printer, directory).await?;
    // From here on: what is wrong with Terraform is in the error.
    let log = directory.join("server.log").display().to_string();
    logging::install(&logging::Settings { human: log, ..logging::Settings::default() })?;
    let _lock = Lock::take(directory)?;
    let mut database = coder_store::Config::new(Location::Sqlite(directory.join("coder.sqlite")));
    database.state_keys = encryption_key::of(directory)?;
    let store = Store::open(&database, SystemClock.now()).await.context("open the database")?;
    let (server, url) = server(args, store.clone()).await?;
    step(&ctx.printer, &format!("Server on {url}, without built-in daemons"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(stop.clone()));
    let mut daemon = None;
    let result = tokio::select! {
        result = demonstrate(ctx, args, directory, &url, &mut daemon) => result,
        request = signals.next() => Err(stop_reason(request)),
    };
    let result = match result {
        Ok(()) => {
            *has_started = true;
            wait_for_stop(&ctx.printer, &mut signals, daemon.as_mut()).await
        }
        Err(error) => Err(error),
    };
    // The daemon stops first, because it reports the results of its jobs to the server.
    if let Some(daemon) = daemon {
        daemon.stop().await;
    }
    stop.cancel();
    let stopped = running.await.context("the server's task ended")?;
    store.close().await;
    result.and(stopped.context("the server failed"))
}

fn stop_reason(request: Request) -> anyhow::Error {
    match request {
        Request::Cancel => Canceled::Interrupted.into(),
        Request::Drain => anyhow::anyhow!("stopped by a signal"),
    }
}

/// Checked before anything starts: nothing works without Terraform.
async fn find_terraform(args: &Args, printer: &Printer, directory: &Path) -> anyhow::Result<()> {
    let cache = daemon::cache(directory);
    let mut config = coder_provisioner::Config::new("quickstart", &cache);
    args.terraform.apply(&mut config, &terraform::installed(&cache))?;
    let never = || async { Err(coder_provisioner::ConnectError::Retry("not connected".to_owned())) };
    let daemon = coder_provisioner::Daemon::new(config, never);
    let found =
        spinner::waiting(printer, "Looking for Terraform, or installing it", daemon.check_terraform());
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
    directory: &Path,
    url: &str,
    daemon: &mut Option<Daemon>,
) -> anyhow::Result<()> {
    let printer = &ctx.printer;
    // Requests to this machine must not use a proxy of the environment.
    let options = Options { proxies: Proxies::none(), ..Options::default() };
    let anonymous = Client::new(url, None, options)?;
    let account = account::prepare(&anonymous, directory, url).await?;
    step(printer, &format!("User {} is signed in", account.email));
    let client = account.client.clone();
    let organization = client.organization(coder_api::paths::DEFAULT_ORGANIZATION).await?.id;
    let key = demo::key(&client, organization).await?;
    step(printer, &format!("Provisioner key {:?} with tag {}={}", demo::KEY_NAME, demo::TAG.0, demo::TAG.1));
    // Jobs and workspaces must not see the database, its key and the password.
    let mut jobs = args.jobs.clone();
    jobs.job_hide.push(directory.to_owned());
    let variables = args.terraform.variables().into_iter().chain(jobs.variables());
    let started = daemon.insert(Daemon::start(directory, url, &key, variables)?);
    started.wait_until_joined(&client, organization, printer).await?;
    let (name, pid) = (daemon::NAME, started.pid());
    step(printer, &format!("Daemon {name:?} has joined with that key, as process {pid}"));
    let template = demo::push(&client, printer, organization).await?;
    step(printer, &format!("Template {:?} is imported", demo::TEMPLATE));
    let built = demo::workspace(&client, printer, organization, template).await?;
    if built.worker_name != daemon::NAME {
        bail!("the workspace was built by {:?}, not by {name:?}", built.worker_name);
    }
    step(printer, &format!("Workspace {:?} is running", demo::WORKSPACE));
    let workspace = demo::agent_connected(ctx, &client, directory, &built.workspace).await?;
    step(printer, "Its agent is connected");
    let lines = resource_tree::lines(printer, &workspace.latest_build.resources, None, true);
    printer.data("");
    lines.iter().for_each(|line| printer.data(line));
    summary(printer, url, directory, &account, &built.worker_name, pid);
    Ok(())
}

/// How to call this program: by its name if the shell finds it.
fn program() -> String {
    let name = || "coder".to_owned();
    let Ok(own) = std::env::current_exe() else { return name() };
    let path = env::get(env::PATH).unwrap_or_default();
    let is_found = std::env::split_paths(&path)
        .map(|directory| directory.join("coder"))
        .find(|candidate| candidate.is_file())
        .is_some_and(|candidate| candidate.canonicalize().is_ok_and(|found| found == own));
    if is_found { name() } else { own.display().to_string() }
}

fn step(printer: &Printer, text: &str) {
    printer.note(&format!("{} {text}", printer.paint(Style::Good, "●")));
}

fn summary(
    printer: &Printer,
    url: &str,
    directory: &Path,
    account: &account::Account,
    worker: &str,
    pid: u32,
) {
    let bold = |text: &str| printer.paint(Style::Bold, text);
    printer.data("");
    printer.data(&format!("Built by   daemon {} (worker_name of the job), process {pid}", bold(worker)));
    printer.data(&format!("Server     {}", bold(url)));
    printer.data(&format!(
        "Log in     {}  password {}",
        bold(&account.email),
        bold(account.password.expose())
    ));
    printer.data(&format!("App        {}", bold(&demo::app_url(url))));
    printer.data(&format!("Data       {}", directory.display()));
    printer.data("");
    let program = program();
    printer.data("Continue in another terminal:");
    printer.data("");
    let config = account::config_directory(directory);
    for line in [
        format!("export CODER_CONFIG_DIR={}", config.display()),
        format!("{program} ssh {}", demo::WORKSPACE),
        format!("{program} list"),
        format!("{program} stop {} -y", demo::WORKSPACE),
        format!("{program} provisioner list"),
        format!("{program} provisioner jobs list"),
    ] {
        printer.data(&format!("    {}", printer.paint(Style::Code, &line)));
    }
    printer.data("");
    printer.data("Press Ctrl-C here to stop everything.");
}

/// Waits for a signal. A daemon that ends meanwhile is an error.
async fn wait_for_stop(
    printer: &Printer,
    signals: &mut Signals,
    daemon: Option<&mut Daemon>,
) -> anyhow::Result<()> {
    let exited = async {
        match daemon {
            Some(daemon) => daemon.exited().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = signals.next() => {
            printer.note("Stopping the daemon and the server.");
            Ok(())
        }
        error = exited => Err(error),
    }
}
