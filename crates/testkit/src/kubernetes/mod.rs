//! Kubernetes for tests: a real API server with etcd and the controller manager, a kubelet that runs pods as local processes,
//! and the network of services for them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod kubelet;
mod pod;
mod services;

pub use cluster::{Cluster, apply, cluster, cluster_without_definitions, documents, rendered};
pub use kubelet::{Counts, Kubelet, Settings};
pub use services::Services;
