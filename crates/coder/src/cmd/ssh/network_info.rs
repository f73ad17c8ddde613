//! A file about the connection, which editors read to show its latency and throughput.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::network::AgentConnection;

/// How long a ping may take.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
struct NetworkInfo<'a> {
    p2p: bool,
    /// Milliseconds.
    latency: f64,
    preferred_derp: &'a str,
    /// Milliseconds by region.
    derp_latency: BTreeMap<&'a str, f64>,
    upload_bytes_sec: i64,
    download_bytes_sec: i64,
    using_coder_connect: bool,
}

/// Writes the file again and again. Returns only when that fails.
pub(super) async fn write(
    connection: &AgentConnection,
    directory: Option<&Path>,
    period: Duration,
) -> anyhow::Error {
    let Some(directory) = directory else { return std::future::pending().await };
    match keep(connection, directory, period.max(Duration::from_millis(100))).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn keep(
    connection: &AgentConnection,
    directory: &Path,
    period: Duration,
) -> anyhow::Result<std::convert::Infallible> {
    let failed = || format!("write network information into {}", directory.display());
    tokio::fs::create_dir_all(directory).await.with_context(failed)?;
    // Editors know the process that they started, which runs this one as its proxy command.
    let parent = rustix::process::getppid().map_or(0, |id| id.as_raw_nonzero().get());
    let path = directory.join(format!("{parent}.json"));
    let partial = directory.join(format!("{parent}.json.{}.tmp", std::process::id()));
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = (0, 0);
    let mut since = Instant::now();
    loop {
        ticks.tick().await;
        // A lost ping is not an error: the next one may be answered.
        let latency =
            connection.ping(PING_TIMEOUT).await.map_or(0.0, |pong| pong.latency.as_secs_f64() * 1e3);
        let now = connection.node().traffic(connection.agent().0).unwrap_or(before);
        let seconds = since.elapsed().as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as i64;
        let info = NetworkInfo {
            p2p: false,
            latency,
            preferred_derp: connection.region(),
            derp_latency: [(connection.region(), latency)].into(),
            upload_bytes_sec: rate(now.1, before.1),
            download_bytes_sec: rate(now.0, before.0),
            using_coder_connect: false,
        };
        (before, since) = (now, Instant::now());
        let text = serde_json::to_vec(&info)?;
        tokio::fs::write(&partial, text).await.with_context(failed)?;
        tokio::fs::rename(&partial, &path).await.with_context(failed)?;
    }
}
