//! `load latency|throughput|idle --url URL`, with the token in `CODER_SESSION_TOKEN`: prints one line of JSON.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use coder_domain::secret::Secret;
use coder_testkit::load::Target;
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
    /// From the POST of an import to the job in a daemon's hands, one client.
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
        Mode::Latency { rounds } => {
            let latency = target.latency(rounds).await?;
            let millis = |time: Duration| time.as_secs_f64() * 1000.0;
            json!({ "p50_ms": millis(latency.p50), "p99_ms": millis(latency.p99) })
        }
        Mode::Throughput { daemons, clients, seconds } => {
            json!({ "per_second": target.throughput(daemons, clients, Duration::from_secs(seconds)).await? })
        }
        Mode::Idle { daemons, seconds } => {
            target.idle(daemons, Duration::from_secs(seconds)).await?;
            json!({ "daemons": daemons, "seconds": seconds })
        }
    };
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}
