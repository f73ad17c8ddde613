//! `coder netcheck`: whether the server's relays can be reached from here, and how fast they are.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use coder_tailnet::derp::client;
use coder_tailnet::derp::upgrade::Form;
use coder_tailnet::key::NodePrivate;
use coder_wire::error_chain;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use crate::context::Context;
use crate::network::RelayDialer;
use crate::remote;
use crate::terminal::table::Format;

/// How long one relay may take.
const RELAY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "json", value_name = "FORMAT")]
    output: Format,
}

/// The fields of the official report that apply to relays.
#[derive(Debug, Serialize)]
struct Report {
    derp: Derp,
}

#[derive(Debug, Serialize)]
struct Derp {
    healthy: bool,
    severity: &'static str,
    regions: BTreeMap<i64, Region>,
}

#[derive(Debug, Serialize)]
struct Region {
    healthy: bool,
    region: String,
    uses_websocket: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_ping_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let info = client.agents_connection().await?;
    let dialer = RelayDialer::new(&client, &info)?;
    let with_relay: Vec<_> =
        dialer.map().regions.iter().filter(|(id, _)| dialer.map().relay(**id).is_some()).collect();
    if with_relay.is_empty() {
        bail!("the server's DERP map has no relay, so no workspace can be reached: ask an administrator");
    }
    let mut regions = BTreeMap::new();
    for (id, region) in with_relay {
        regions.insert(*id, check(&dialer, *id, &region.region_name).await);
    }
    let healthy = regions.values().all(|region| region.healthy);
    let severity = if healthy { "ok" } else { "error" };
    let report = Report { derp: Derp { healthy, severity, regions } };
    match args.output {
        Format::Json => ctx.printer.json(&report)?,
        Format::Table | Format::Wide => {
            for (id, region) in &report.derp.regions {
                let form = if region.uses_websocket { ", over a WebSocket" } else { "" };
                let state = match (&region.error, region.round_trip_ping_ms) {
                    (Some(error), _) => format!("cannot be reached: {error}"),
                    (None, Some(latency)) => format!("reached, {latency} ms{form}"),
                    (None, None) => format!("reached{form}"),
                };
                ctx.printer.data(&format!("Relay {id} ({}): {state}", region.region));
            }
        }
    }
    if healthy {
        Ok(())
    } else {
        bail!("a relay cannot be reached from here: a proxy or firewall may be in the way")
    }
}

/// Connects to a relay, and measures a round trip of its protocol: the last of the two steps of the handshake.
async fn check(dialer: &RelayDialer, id: i64, name: &str) -> Region {
    let mut region = Region {
        healthy: false,
        region: name.to_owned(),
        uses_websocket: false,
        round_trip_ping_ms: None,
        error: None,
    };
    let connected = async {
        let (mut io, form) = dialer.connect(id).await?;
        region.uses_websocket = form == Form::WebSocket;
        let began = Instant::now();
        client::connect(&mut io, &NodePrivate::generate()).await.map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>(began.elapsed())
    };
    match timeout(RELAY_TIMEOUT, connected).await {
        Ok(Ok(latency)) => {
            region.healthy = true;
            region.round_trip_ping_ms = u64::try_from(latency.as_millis()).ok();
        }
        Ok(Err(error)) => region.error = Some(error_chain::describe(&error)),
        Err(_) => region.error = Some(format!("no answer within {RELAY_TIMEOUT:?}")),
    }
    region
}
