//! The keys and tokens that daemons join with, and the token of a workspace: what ends with each of them.

pub mod expiry;
pub mod revoke;
pub mod workspace_token;
