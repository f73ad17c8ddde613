//! What protects pods: from evictions while their daemon is busy, and from the network.

use serde_json::{Value, json};

use super::Pool;
use super::pod::PORT;
use crate::names::BUSY;

/// No busy daemon is evicted; the others can be.
#[must_use]
pub fn disruption_budget(pool: &Pool<'_>) -> Option<Value> {
    if !pool.spec.disruption_budget {
        return None;
    }
    let mut labels = pool.names.labels();
    labels.insert(BUSY.to_owned(), "true".to_owned());
    Some(json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": pool.metadata(&pool.names.workload),
        "spec": {
            "maxUnavailable": 0,
            "selector": {"matchLabels": labels},
            // Pods that never became ready would block a node otherwise.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }))
}

/// Incoming connections to probes and metrics only; outgoing ones to DNS and the given destinations if they are restricted.
#[must_use]
pub fn network_policy(pool: &Pool<'_>) -> Option<Value> {
    let policy = pool.spec.network_policy.as_ref()?;
    let mut spec = json!({
        "podSelector": {"matchLabels": pool.names.labels()},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": PORT, "protocol": "TCP"}]}],
    });
    if policy.restrict_egress {
        let dns = json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]});
        let egress: Vec<Value> = std::iter::once(dns).chain(policy.egress.iter().cloned()).collect();
        spec["policyTypes"] = json!(["Ingress", "Egress"]);
        spec["egress"] = json!(egress);
    }
    Some(json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": pool.metadata(&pool.names.workload),
        "spec": spec,
    }))
}
