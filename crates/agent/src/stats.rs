//! How much the agent is used, in the interval that the server names (agent 2.9).

use std::collections::HashMap;
use std::time::Duration;

use coder_tailnet::node::PeerTraffic;
use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::calls::Calls;
use crate::network::Network;
use crate::sessions::Kind;
use crate::state::AgentState;

/// The interval when the server names none.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);
/// The shortest interval.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// What was reported of each peer. It outlives connections, so that nothing is counted twice.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reported: Mutex<HashMap<Uuid, (u64, u64)>>,
}

/// What happened since the report before.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Delta {
    received: u64,
    sent: u64,
    /// Connections of peers with traffic.
    connections: usize,
}

impl Counters {
    /// The difference to what was reported. A peer whose numbers are smaller than before has a new tunnel.
    fn delta(&self, now: &[PeerTraffic]) -> Delta {
        let reported = self.reported.lock();
        now.iter().fold(Delta::default(), |sum, peer| {
            let before = reported.get(&peer.id).copied().unwrap_or_default();
            let is_new = peer.received < before.0 || peer.sent < before.1;
            let before = if is_new { (0, 0) } else { before };
            let (received, sent) = (peer.received - before.0, peer.sent - before.1);
            let connections = if received > 0 { peer.connections } else { 0 };
            Delta {
                received: sum.received + received,
                sent: sum.sent + sent,
                connections: sum.connections + connections,
            }
        })
    }

    fn set_reported(&self, now: &[PeerTraffic]) {
        *self.reported.lock() = now.iter().map(|peer| (peer.id, (peer.received, peer.sent))).collect();
    }
}

/// Reports over one connection until it fails.
pub(crate) async fn run(
    state: &AgentState,
    network: &Network,
    counters: &Counters,
    calls: &Calls,
) -> Result<(), Error> {
    let mut answer = calls.stats(messages::UpdateStatsRequest { stats: None }).await?;
    loop {
        let interval = answer.report_interval.and_then(|interval| Duration::try_from(interval).ok());
        let interval = interval.filter(|interval| !interval.is_zero()).unwrap_or(DEFAULT_INTERVAL);
        tokio::time::sleep(interval.max(MIN_INTERVAL)).await;
        let traffic = network.node.all_traffic();
        let latency = network.median_latency().await;
        let stats = stats(state, counters.delta(&traffic), latency);
        answer = calls.stats(messages::UpdateStatsRequest { stats: Some(stats) }).await?;
        counters.set_reported(&traffic);
    }
}

fn stats(state: &AgentState, delta: Delta, latency: Option<Duration>) -> messages::Stats {
    let count = |kind| state.sessions.count(kind);
    let sessions: i64 = Kind::ALL.into_iter().map(count).sum();
    // A silent session is a use of the workspace all the same.
    let connections = i64::try_from(delta.connections).unwrap_or(i64::MAX).max(sessions);
    let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
    let by_protocol = (connections > 0).then(|| ("TCP".to_owned(), connections));
    messages::Stats {
        connections_by_proto: by_protocol.into_iter().collect(),
        connection_count: connections,
        connection_median_latency_ms: latency.map_or(-1.0, |latency| latency.as_secs_f64() * 1000.0),
        rx_bytes: signed(delta.received),
        tx_bytes: signed(delta.sent),
        session_count_vscode: count(Kind::VsCode),
        session_count_jetbrains: count(Kind::JetBrains),
        session_count_reconnecting_pty: count(Kind::ReconnectingPty),
        session_count_ssh: count(Kind::Ssh),
        ..messages::Stats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u128, received: u64, sent: u64, connections: usize) -> PeerTraffic {
        PeerTraffic { id: Uuid::from_u128(id), address: None, received, sent, connections }
    }

    #[test]
    fn counters_are_since_the_last_report() {
        let counters = Counters::default();
        let first = [peer(1, 100, 10, 2), peer(2, 0, 0, 3)];
        assert_eq!(counters.delta(&first), Delta { received: 100, sent: 10, connections: 2 });
        assert_eq!(counters.delta(&first).received, 100, "nothing was reported yet");
        counters.set_reported(&first);
        assert_eq!(counters.delta(&first), Delta::default());
        let restarted = [peer(1, 30, 30, 1), peer(2, 5, 0, 3), peer(3, 0, 7, 1)];
        assert_eq!(counters.delta(&restarted), Delta { received: 35, sent: 37, connections: 4 });
    }
}
