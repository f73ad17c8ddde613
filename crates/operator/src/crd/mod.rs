//! The custom resources, from whose types the definitions in `deploy/crds/` and their reference are generated.

pub mod autoscaling;
pub mod control_plane;
pub mod document;
pub mod provisioner;
pub mod provisioner_status;
pub mod rbac;
pub mod reference;
mod schema;
pub mod variable;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use control_plane::{CoderControlPlane, CoderControlPlaneSpec, CoderControlPlaneStatus};
pub use provisioner::{CoderProvisioner, CoderProvisionerSpec};
pub use provisioner_status::CoderProvisionerStatus;

/// The definitions of both custom resources.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![CoderControlPlane::crd(), CoderProvisioner::crd()]
}
