//! Flags that every program with daemons has: `coder provisioner start`, `coder server` and `coder quickstart`.

pub(crate) mod jobs;
pub(crate) mod terraform;
