//! The relay and the coordinator of this process.

use coder_tailnet::mesh::Mesh;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::network::Network;

/// Adds what they count themselves.
pub(super) fn register(registry: &mut Registry, network: &Network) {
    let relay = network.relay.counts();
    let gauge = |value: usize| {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge
    };
    let counter = |value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        counter
    };
    registry.register("coderd_relay_connections", "Connections to the relay here", gauge(relay.connections));
    registry.register("coderd_relay_clients", "Nodes connected to the relay here", gauge(relay.clients));
    registry.register("coderd_relay_packets", "Packets that the relay forwarded", counter(relay.packets));
    registry.register("coderd_relay_bytes", "Bytes that the relay forwarded", counter(relay.bytes));
    registry.register(
        "coderd_relay_dropped_packets",
        "Packets that the relay dropped because a queue was full",
        counter(relay.dropped),
    );
    registry.register(
        "coderd_relay_unknown_packets",
        "Packets for nodes that are not connected to the relay here",
        counter(relay.unknown),
    );
    let mesh = network.mesh.as_ref().map(Mesh::counts).unwrap_or_default();
    registry.register(
        "coderd_mesh_dialled",
        "Other servers that this one is connected to",
        gauge(mesh.dialled),
    );
    registry.register(
        "coderd_mesh_accepted",
        "Other servers that tell this one what is connected there",
        gauge(mesh.accepted),
    );
    registry.register(
        "coderd_mesh_clients",
        "Nodes connected to the relays of other servers",
        gauge(relay.remote_clients),
    );
    registry.register(
        "coderd_mesh_packets",
        "Packets that the relay handed to other servers",
        counter(relay.remote_packets),
    );
    registry.register(
        "coderd_mesh_peers",
        "Peers of the coordinators of other servers",
        gauge(network.hub.remote_peers()),
    );
    registry.register("coderd_tailnet_peers", "Peers of the coordinator here", gauge(network.hub.peers()));
    registry.register(
        "coderd_tailnet_user_connections",
        "Users' connections to the coordinator here",
        gauge(network.users.len()),
    );
    registry.register(
        "coderd_tailnet_server_agents",
        "Agents that the server's own node can reach",
        gauge(network.server_node.agents()),
    );
    registry.register(
        "coderd_tailnet_server_connections",
        "Connections of the server itself to agents, for apps and web terminals",
        gauge(network.server_node.connections()),
    );
}
