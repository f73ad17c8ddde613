//! `coder port-forward`: ports of this machine that lead to ports of a workspace (agent 7.4).

mod spec;
mod tcp;
mod udp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_api::agents::WorkspaceUsage;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use self::spec::{Forward, Protocol};
use crate::context::Context;
use crate::exit::Canceled;
use crate::network::AgentConnection;
use crate::network::target::{self, Name, Preparation, Wait};
use crate::{env, remote};

/// How often the use of the workspace is reported.
const USAGE_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name, owner/name or name.agent.
    workspace: String,
    /// TCP port as [address:]local[:remote], or a range of them; may be repeated.
    #[arg(short = 'p', long, env = env::PORT_FORWARD_TCP, value_delimiter = ',', value_name = "PORTS")]
    tcp: Vec<String>,
    /// UDP port as [address:]local[:remote], or a range of them; may be repeated.
    #[arg(long, env = env::PORT_FORWARD_UDP, value_delimiter = ',', value_name = "PORTS")]
    udp: Vec<String>,
    /// Do not start a stopped workspace.
    #[arg(long, env = env::SSH_DISABLE_AUTOSTART)]
    disable_autostart: bool,
}

/// One listener.
enum Listening {
    Tcp(TcpListener, u16),
    Udp(UdpSocket, u16),
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let forwards = spec::parse(&args.tcp, &args.udp)?;
    if forwards.is_empty() {
        bail!("nothing to forward: name a port with --tcp or --udp, for example --tcp 8080:3000");
    }
    let client = remote::connect(ctx)?;
    let name = Name::parse(&args.workspace)?;
    let how = Preparation { disable_autostart: args.disable_autostart, wait: Wait::No };
    let (workspace, agent) = target::prepare(ctx, &client, &name, how).await?;
    // Ports that are in use are found before anything is connected.
    let mut listening = Vec::new();
    for forward in &forwards {
        listening.extend(listen(ctx, forward).await?);
    }
    let info = client.agent_connection(agent.id).await?;
    let connection = Arc::new(AgentConnection::open(&client, agent.id, &info)?);
    connection.wait_reachable().await?;
    let mut serving = JoinSet::new();
    for one in listening {
        let connection = Arc::clone(&connection);
        match one {
            Listening::Tcp(listener, port) => serving.spawn(tcp::serve(connection, listener, port)),
            Listening::Udp(socket, port) => serving.spawn(udp::serve(connection, socket, port)),
        };
    }
    ctx.printer.note("Ready!");
    let usage = WorkspaceUsage { agent_id: Some(agent.id), app_name: "ssh".to_owned() };
    let reports = async {
        let mut ticks = interval(USAGE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = client.report_usage(workspace.id, &usage).await {
                tracing::debug!(%error, "cannot report the use of the workspace");
            }
        }
    };
    let result = tokio::select! {
        Some(ended) = serving.join_next() => ended.context("a forward ended").and_then(|ended| ended),
        refusal = connection.refused() => Err(refusal),
        () = reports => unreachable!("reports never end"),
        _ = tokio::signal::ctrl_c() => Err(Canceled::Interrupted.into()),
    };
    serving.shutdown().await;
    if let Some(connection) = Arc::into_inner(connection) {
        connection.close().await;
    }
    result
}

/// Listens on the address, or on both loopback addresses when none is named; the second one is left out where it is in use
/// or does not exist.
async fn listen(ctx: &Context, forward: &Forward) -> anyhow::Result<Vec<Listening>> {
    let addresses = match forward.address {
        Some(address) => vec![address],
        None => vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)],
    };
    let mut listening = Vec::new();
    for (index, address) in addresses.into_iter().enumerate() {
        let local = SocketAddr::new(address, forward.local);
        let bound = match forward.protocol {
            Protocol::Tcp => TcpListener::bind(local).await.map(|one| Listening::Tcp(one, forward.remote)),
            Protocol::Udp => UdpSocket::bind(local).await.map(|one| Listening::Udp(one, forward.remote)),
        };
        match bound {
            Ok(bound) => listening.push(bound),
            Err(error) if index > 0 => {
                tracing::debug!(%error, %local, "not listened on");
                continue;
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("listen on {}://{local}: choose another local port", forward.protocol.name())
                });
            }
        }
        let protocol = forward.protocol.name();
        ctx.printer.note(&format!(
            "Forwarding '{protocol}://{local}' locally to '{protocol}://127.0.0.1:{}' in the workspace",
            forward.remote
        ));
    }
    Ok(listening)
}
