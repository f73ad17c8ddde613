//! `coder speedtest`: the throughput to a workspace's agent, with the protocol that official agents speak on port 3.

use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_tailnet::node::TcpStream;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::context::Context;
use crate::duration;
use crate::exit::Canceled;
use crate::network::AgentConnection;
use crate::network::target::{self, Name, Preparation, Wait};
use crate::remote;
use crate::terminal::table::Format;

/// The agent's port.
const PORT: u16 = 3;
const VERSION: u32 = 2;
/// Bytes of one block.
const BLOCK_BYTES: usize = 2 << 20;
/// The length of one interval in the results.
const INTERVAL: Duration = Duration::from_secs(1);
/// Shorter intervals are left out of the results.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// Longest answer to the configuration.
const MAX_ANSWER_BYTES: u64 = 4096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name, owner/name or name.agent.
    workspace: String,
    /// Accepted for compatibility: all traffic goes through a relay.
    #[arg(short, long)]
    direct: bool,
    /// Whether data goes to the workspace (up) or comes from it (down).
    #[arg(long, value_enum, default_value = "down", value_name = "DIRECTION")]
    direction: Direction,
    /// How long to measure.
    #[arg(short, long, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    time: Duration,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// `--direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Direction {
    Up,
    Down,
}

/// The first message.
#[derive(Debug, Serialize)]
struct Configuration {
    version: u32,
    /// Nanoseconds.
    time: u64,
    /// 0 for a download, 1 for an upload.
    direction: u8,
}

/// The agent's answer.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    error: String,
}

/// One interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    start: Duration,
    end: Duration,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    overall: Row,
    intervals: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    start_time_seconds: f64,
    end_time_seconds: f64,
    throughput_mbits: f64,
}

impl Measured {
    fn row(self) -> Row {
        let seconds = (self.end - self.start).as_secs_f64();
        let megabits = self.bytes as f64 * 8.0 / 1e6;
        Row {
            start_time_seconds: self.start.as_secs_f64(),
            end_time_seconds: self.end.as_secs_f64(),
            throughput_mbits: if seconds > 0.0 { megabits / seconds } else { 0.0 },
        }
    }
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    if args.direct {
        ctx.printer.warn("there are no direct connections yet: the relay is measured");
    }
    let client = remote::connect(ctx)?;
    let name = Name::parse(&args.workspace)?;
    let how = Preparation { disable_autostart: true, wait: Wait::No };
    let (_, agent) = target::prepare(ctx, &client, &name, how).await?;
    let info = client.agent_connection(agent.id).await?;
    let connection = AgentConnection::open(&client, agent.id, &info)?;
    let measured = async {
        connection.wait_reachable().await?;
        let stream = connection.connect(PORT).await?;
        measure(stream, args.direction, args.time).await
    };
    let measured = tokio::select! {
        measured = measured => measured,
        _ = tokio::signal::ctrl_c() => Err(Canceled::Interrupted.into()),
    };
    connection.close().await;
    show(ctx, &measured?, args.output)
}

fn show(ctx: &Context, measured: &[Measured], output: Format) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (measured.first(), measured.last()) else {
        bail!("the measurement was too short for a result");
    };
    let bytes = measured.iter().map(|one| one.bytes).sum();
    let overall = Measured { start: first.start, end: last.end, bytes };
    let report = Report { overall: overall.row(), intervals: measured.iter().map(|one| one.row()).collect() };
    match output {
        Format::Json => ctx.printer.json(&report)?,
        Format::Table | Format::Wide => {
            let line = |row: &Row| {
                format!(
                    "{:>6.2}-{:<6.2} sec  {:>10.2} Mbits/sec",
                    row.start_time_seconds, row.end_time_seconds, row.throughput_mbits
                )
            };
            ctx.printer.data("INTERVAL            THROUGHPUT");
            report.intervals.iter().for_each(|row| ctx.printer.data(&line(row)));
            ctx.printer.data(&"-".repeat(40));
            ctx.printer.data(&line(&report.overall));
        }
    }
    Ok(())
}

async fn measure(
    mut stream: TcpStream,
    direction: Direction,
    time: Duration,
) -> anyhow::Result<Vec<Measured>> {
    let nanoseconds = u64::try_from(time.as_nanos()).context("the time is too long")?;
    let is_up = direction == Direction::Up;
    let configuration = Configuration { version: VERSION, time: nanoseconds, direction: is_up.into() };
    let mut text = serde_json::to_vec(&configuration)?;
    text.push(b'\n');
    stream.write_all(&text).await.context("begin the measurement")?;
    let answer: Answer =
        serde_json::from_slice(&line(&mut stream).await?).context("the agent's answer is malformed")?;
    if !answer.error.is_empty() {
        bail!("the agent refused the measurement: {}", answer.error);
    }
    let mut block = vec![0; BLOCK_BYTES];
    if is_up {
        getrandom::fill(&mut block).context("make random data")?;
    }
    // An agent that sends nothing more is not waited for.
    timeout(4 * time + Duration::from_secs(10), transfer(stream, &mut block, is_up, time))
        .await
        .context("the agent did not finish the measurement in time")?
}

/// One line, byte by byte: data follows it.
async fn line(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut limited = stream.take(MAX_ANSWER_BYTES);
    while let Ok(byte) = limited.read_u8().await {
        if byte == b'\n' {
            return Ok(line);
        }
        line.push(byte);
    }
    bail!("the agent ended the measurement before it began")
}

async fn transfer(
    mut stream: TcpStream,
    block: &mut [u8],
    is_up: bool,
    time: Duration,
) -> anyhow::Result<Vec<Measured>> {
    let began = Instant::now();
    let mut measured = Vec::new();
    let mut interval = Measured { start: Duration::ZERO, end: Duration::ZERO, bytes: 0 };
    loop {
        let moved = if is_up {
            if began.elapsed() > time {
                break;
            }
            stream.write_all(block).await.context("send data")?;
            block.len()
        } else {
            match stream.read(block).await.context("receive data")? {
                0 => break,
                count => count,
            }
        };
        interval.bytes += moved as u64;
        interval.end = began.elapsed();
        if interval.end - interval.start >= INTERVAL {
            measured.push(interval);
            interval = Measured { start: interval.end, end: interval.end, bytes: 0 };
        }
    }
    if is_up {
        stream.shutdown().await.context("end the measurement")?;
    }
    if interval.end - interval.start > MIN_INTERVAL {
        measured.push(interval);
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_in_megabits() {
        let second = |start, bytes| Measured {
            start: Duration::from_secs(start),
            end: Duration::from_secs(start + 1),
            bytes,
        };
        assert_eq!(second(0, 1_000_000).row().throughput_mbits, 8.0);
        let configuration = Configuration { version: 2, time: 5_000_000_000, direction: 1 };
        let text = serde_json::to_string(&configuration).unwrap();
        assert_eq!(text, r#"{"version":2,"time":5000000000,"direction":1}"#);
        assert_eq!(serde_json::from_str::<Answer>("{}").unwrap().error, "");
    }
}
