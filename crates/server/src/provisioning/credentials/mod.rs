//! The keys and tokens that daemons join with, the token of a workspace, and what ends with each of them.

pub mod ended_tokens;
pub mod expiry;
pub mod owner_credentials;
pub mod revoke;
pub mod workspace_token;
