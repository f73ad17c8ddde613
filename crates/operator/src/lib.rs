//! The Kubernetes operator: keeps pools of provisioner daemons as `CoderProvisioner` resources describe them.
