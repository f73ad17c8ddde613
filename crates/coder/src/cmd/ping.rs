//! `coder ping`: whether and how fast a workspace's agent answers.

use std::time::Duration;

use anyhow::bail;
use coder_api::Timestamp;
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::duration;
use crate::exit::Canceled;
use crate::network::AgentConnection;
use crate::network::target::{self, Name, Preparation, Wait};
use crate::remote;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name, owner/name or name.agent.
    workspace: String,
    /// How many pings to send; 0 for no end.
    #[arg(short, long, default_value_t = 10, value_name = "NUMBER")]
    num: u64,
    /// How long an answer may take.
    #[arg(short, long, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    timeout: Duration,
    /// Time between two pings.
    #[arg(long, default_value = "1s", value_parser = duration::parse, value_name = "DURATION")]
    wait: Duration,
    /// Show the time of each answer.
    #[arg(long)]
    time: bool,
    /// Show the time of each answer in UTC.
    #[arg(long)]
    utc: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let name = Name::parse(&args.workspace)?;
    let how = Preparation { disable_autostart: true, wait: Wait::No };
    let (workspace, agent) = target::prepare(ctx, &client, &name, how).await?;
    let info = client.agent_connection(agent.id).await?;
    let connection = AgentConnection::open(&client, agent.id, &info)?;
    let result = tokio::select! {
        result = ping(ctx, &connection, &workspace.name, &args) => result,
        _ = tokio::signal::ctrl_c() => Err(Canceled::Interrupted.into()),
    };
    connection.close().await;
    result
}

async fn ping(
    ctx: &Context,
    connection: &AgentConnection,
    workspace: &str,
    args: &Args,
) -> anyhow::Result<()> {
    connection.wait_reachable().await?;
    let mut latencies = Vec::new();
    let mut sent = 0;
    while args.num == 0 || sent < args.num {
        if sent > 0 {
            sleep(args.wait).await;
        }
        sent += 1;
        let began = Instant::now();
        match connection.ping(args.timeout).await {
            Ok(pong) => {
                let stamp = if args.time || args.utc { format!("{} ", now(args.utc)) } else { String::new() };
                ctx.printer.data(&format!(
                    "{stamp}pong from {workspace} proxied via DERP({}) in {}ms",
                    connection.region(),
                    pong.latency.as_millis()
                ));
                latencies.push(pong.latency);
            }
            Err(error) if began.elapsed() >= args.timeout => {
                ctx.printer.note(&format!("ping to {workspace:?} timed out: {error:#}"));
            }
            Err(error) => return Err(error),
        }
    }
    let Some(fastest) = latencies.iter().min() else {
        bail!("the agent answered no ping: {sent} sent");
    };
    let slowest = latencies.iter().max().unwrap_or(fastest);
    let total: Duration = latencies.iter().sum();
    let mean = total / u32::try_from(latencies.len()).unwrap_or(u32::MAX);
    let millis = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
    ctx.printer.data(&format!(
        "{} of {sent} answered; minimum, mean, maximum: {}, {}, {} ms",
        latencies.len(),
        millis(*fastest),
        millis(mean),
        millis(*slowest)
    ));
    Ok(())
}

/// The time of an answer, for people.
#[expect(clippy::disallowed_methods, reason = "people read it; nothing is decided by it")]
fn now(utc: bool) -> String {
    let zone = if utc { jiff::tz::TimeZone::UTC } else { jiff::tz::TimeZone::system() };
    Timestamp::now().to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S%.3f %Z").to_string()
}
