//! `load latency|throughput|builds|idle|fleet|listing|agents|terminal --url URL`, with the token in `CODER_SESSION_TOKEN`: each line it
//! prints is a JSON object, the last one is the report.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use coder_domain::ids::AgentId;
use coder_domain::secret::Secret;
use coder_testkit::load::{Agents, Fleet, Latency, Target};
use serde_json::{Value, json};

#[derive(Parser)]
#[command(about = "Drives a server through its REST API and the daemon protocol")]
struct Args {
    #[command(subcommand)]
    mode: Mode,
    /// The server.
    #[arg(long, global = true, default_value = "http://127.0.0.1:3000")]
    url: String,
}

#[derive(Subcommand)]
enum Mode {
    /// From the POST of an import until a daemon has the job, one client.
    Latency {
        /// How many imports.
        #[arg(long, default_value_t = 300)]
        rounds: usize,
    },
    /// Imports a second.
    Throughput {
        /// Fake daemons.
        #[arg(long, default_value_t = 20)]
        daemons: usize,
        /// Clients that post.
        #[arg(long, default_value_t = 8)]
        clients: usize,
        /// How long.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Workspace builds a second.
    Builds {
        /// Fake daemons.
        #[arg(long, default_value_t = 20)]
        daemons: usize,
        /// Clients, each with a workspace.
        #[arg(long, default_value_t = 8)]
        clients: usize,
        /// How long.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Very many daemons: prints the time until all joined, waits, then posts jobs for them.
    Fleet {
        /// Fake daemons.
        #[arg(long, default_value_t = 1000)]
        daemons: usize,
        /// Pools with tags of their own; one is untagged.
        #[arg(long, default_value_t = 1)]
        tag_sets: usize,
        /// Idle time before the jobs.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// How many imports to post.
        #[arg(long, default_value_t = 300)]
        rounds: usize,
    },
    /// A page of the jobs list while jobs wait that no daemon can take.
    Listing {
        /// How many jobs to add first.
        #[arg(long, default_value_t = 1000)]
        waiting: usize,
        /// How many pages.
        #[arg(long, default_value_t = 200)]
        rounds: usize,
    },
    /// Very many agents with nothing to do: prints the time until all were connected, and keeps them.
    Agents {
        /// Agents, each of a workspace of its own.
        #[arg(long, default_value_t = 2000)]
        agents: usize,
        /// How long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// From a key in a web terminal to its echo.
    Terminal {
        /// The agent.
        #[arg(long)]
        agent: AgentId,
        /// How many keys.
        #[arg(long, default_value_t = 1000)]
        keys: usize,
    },
    /// Keeps idle daemons connected.
    Idle {
        /// Fake daemons.
        #[arg(long, default_value_t = 100)]
        daemons: usize,
        /// How long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let token =
        std::env::var("CODER_SESSION_TOKEN").context("set CODER_SESSION_TOKEN to a token of an owner")?;
    let target = Target::new(&args.url, Secret::new(token)).await?;
    let report: Value = match args.mode {
        Mode::Latency { rounds } => percentiles(target.latency(rounds).await?),
        Mode::Builds { daemons, clients, seconds } => {
            json!({ "per_second": target.builds(daemons, clients, Duration::from_secs(seconds)).await? })
        }
        Mode::Fleet { daemons, tag_sets, seconds, rounds } => {
            let fleet = Fleet::join(&target, daemons, tag_sets.max(1)).await?;
            print_line(&json!({ "connected_s": fleet.connected_in.as_secs_f64() }))?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            percentiles(fleet.latency(rounds).await?)
        }
        Mode::Listing { waiting, rounds } => {
            target.post_waiting(waiting).await?;
            percentiles(target.listing(rounds).await?)
        }
        Mode::Throughput { daemons, clients, seconds } => {
            json!({ "per_second": target.throughput(daemons, clients, Duration::from_secs(seconds)).await? })
        }
        Mode::Agents { agents, seconds } => {
            let agents = Agents::connect(&target, agents).await?;
            print_line(&json!({ "connected_s": agents.connected_in.as_secs_f64() }))?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            json!({ "seconds": seconds })
        }
        Mode::Terminal { agent, keys } => percentiles(target.terminal(agent, keys).await?),
        Mode::Idle { daemons, seconds } => {
            target.idle(daemons, Duration::from_secs(seconds)).await?;
            json!({ "daemons": daemons, "seconds": seconds })
        }
    };
    print_line(&report)
}

fn percentiles(latency: Latency) -> Value {
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    json!({ "p50_ms": millis(latency.p50), "p99_ms": millis(latency.p99) })
}

fn print_line(line: &Value) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
