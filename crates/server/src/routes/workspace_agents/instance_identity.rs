//! Agents that prove with a document of their cloud who they are. It is refused: the certificates of the clouds, by which such a
//! document can be checked, are not part of this server, and an unchecked one would open the workspace of anybody.

use crate::http::{Error, NoContent, Result};

/// `POST /workspaceagents/aws-instance-identity`
pub async fn aws() -> Result<NoContent> {
    refuse("aws-instance-identity")
}

/// `POST /workspaceagents/azure-instance-identity`
pub async fn azure() -> Result<NoContent> {
    refuse("azure-instance-identity")
}

/// `POST /workspaceagents/google-instance-identity`
pub async fn google() -> Result<NoContent> {
    refuse("google-instance-identity")
}

fn refuse(auth: &str) -> Result<NoContent> {
    Err(Error::bad_request(format!("This server does not accept agents with auth = {auth:?}.")).detail(
        "Set auth = \"token\" on the coder_agent resource, and give the instance CODER_AGENT_TOKEN in its user data.",
    ))
}
