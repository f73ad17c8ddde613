//! `coder operator`: keeps pools of provisioner daemons in Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coder_domain::clock::SystemClock;
use coder_operator::{Config, Election};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::signals::Signals;
use crate::{duration, env, logging, runtime};

/// Passes wait for servers most of the time.
const WORKER_THREADS: usize = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Namespace to look at; all by default.
    #[arg(long, env = env::OPERATOR_NAMESPACE, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Keep servers as CoderControlPlane resources describe them; not if another operator does it.
    #[arg(long, env = env::OPERATOR_CONTROL_PLANES, default_value = "true", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = crate::args::boolean)]
    control_planes: bool,
    /// Address of /healthz, /readyz and /metrics; empty turns them off.
    #[arg(long, env = env::OPERATOR_HTTP_ADDRESS, default_value = "0.0.0.0:8080", value_name = "HOST:PORT")]
    http_address: String,
    /// Elect one of several operators, which alone works.
    #[arg(long, env = env::OPERATOR_LEADER_ELECTION, default_value = "true", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = crate::args::boolean)]
    leader_election: bool,
    /// Namespace of the lease of the election; by default that of the operator.
    #[arg(long, env = env::OPERATOR_LEASE_NAMESPACE, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// Name of the lease.
    #[arg(long, env = env::OPERATOR_LEASE_NAME, default_value = "coder-operator", value_name = "NAME")]
    lease_name: String,
    /// Time without renewal after which another operator takes over, 5 s or more.
    #[arg(long, env = env::OPERATOR_LEASE_DURATION, default_value = "15s", value_name = "DURATION", value_parser = duration::parse)]
    lease_duration: Duration,
    /// File for the human-readable log; empty turns it off.
    #[arg(long, env = env::OPERATOR_LOG_HUMAN, default_value = "/dev/stderr", value_name = "FILE")]
    log_human: String,
    /// File for the log as JSON lines.
    #[arg(long, env = env::OPERATOR_LOG_JSON, default_value = "", value_name = "FILE")]
    log_json: String,
    /// Regular expression: matching debug messages are shown; may be repeated.
    #[arg(long, env = env::OPERATOR_LOG_FILTER, value_delimiter = ',', value_name = "REGEX")]
    log_filter: Vec<String>,
}

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    ensure!(
        args.lease_duration >= Duration::from_secs(5),
        "the duration of the lease is too short: pass 5s or more with --lease-duration"
    );
    logging::install(&logging::Settings {
        file: None,
        human: args.log_human.clone(),
        json: args.log_json.clone(),
        stackdriver: String::new(),
        filter: args.log_filter.clone(),
        verbose: ctx.global.verbose,
    })?;
    runtime::daemon(WORKER_THREADS)?.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let mut signals = Signals::take()?;
    let kube = coder_operator::connect()
        .await
        .context("cannot find a cluster: run in a pod, or name a kubeconfig in KUBECONFIG")?;
    let election = args.leader_election.then(|| Election {
        namespace: args.lease_namespace.clone().unwrap_or_else(|| kube.default_namespace().to_owned()),
        name: args.lease_name.clone(),
        holder: holder(),
        duration: args.lease_duration,
    });
    let pages = match args.http_address.as_str() {
        "" => None,
        address => Some(TcpListener::bind(address).await.with_context(|| {
            format!("listen on {address} for health and metrics: pass another address with --http-address")
        })?),
    };
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let listener = tokio::spawn(async move {
        signals.next().await;
        stopped.cancel();
    });
    let config = Config { namespace: args.namespace, control_planes: args.control_planes, election };
    coder_operator::run(kube, config, Arc::new(SystemClock), pages, stop).await;
    listener.abort();
    Ok(())
}

/// The host's name is the pod's, which a restarted container keeps; the rest tells processes apart.
fn holder() -> String {
    let host = rustix::system::uname();
    let mut unique = [0; 4];
    if getrandom::fill(&mut unique).is_err() {
        unique = std::process::id().to_be_bytes();
    }
    format!("{}_{:08x}", host.nodename().to_string_lossy(), u32::from_be_bytes(unique))
}
