//! The Deployment of a pool, and the Job of one ephemeral daemon.

use serde_json::{Value, json};

use super::{Pool, digest, pod};
use crate::names::TEMPLATE;

/// Longest beginning of an ephemeral Job's name, which leaves room for the suffixes of Job and pod.
const JOB_PREFIX: usize = 50;

/// The Deployment. Without `replicas` somebody else decides their number.
#[must_use]
pub fn deployment(pool: &Pool<'_>, replicas: Option<i32>, is_held: bool) -> Value {
    let mut deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pool.metadata(&pool.names.workload),
        "spec": {
            "selector": {"matchLabels": pool.names.labels()},
            "template": pod::template(pool),
            // New pods come first, so that the pool has its number of daemons during an update.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
        },
    });
    if is_held {
        deployment["spec"]["paused"] = json!(true);
    }
    if let Some(replicas) = replicas {
        deployment["spec"]["replicas"] = json!(replicas);
    }
    deployment
}

/// The hash of the template, by which ephemeral pods of an older one are recognized.
#[must_use]
pub fn template_hash(pool: &Pool<'_>) -> String {
    digest(&pod::template(pool))
}

/// One ephemeral daemon.
#[must_use]
pub fn job(pool: &Pool<'_>, suffix: &str) -> Value {
    let hash = template_hash(pool);
    let prefix = pool.names.workload.get(..JOB_PREFIX).unwrap_or(&pool.names.workload).trim_end_matches('-');
    let mut metadata = pool.metadata(&format!("{prefix}-{suffix}"));
    metadata["labels"][TEMPLATE] = json!(hash);
    let mut template = pod::template(pool);
    template["metadata"]["labels"][TEMPLATE] = json!(hash);
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": 300, "template": template},
    })
}
