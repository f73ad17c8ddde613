//! The agent of a request, by its token (agent 1.5). There is no cache: the end of a build ends its agents' access at once.

use axum::extract::FromRequestParts;
use coder_store::workspaces::agent_connections::{self, AgentIdentity};
use http::request::Parts;
use http::{HeaderMap, Uri};
use uuid::Uuid;

use crate::authn::session::presented;
use crate::context::App;
use crate::http::{Error, Result};

/// The authenticated agent of a request. Routes marked `Agent` in the table take one.
#[derive(Clone, Debug)]
pub struct AgentCaller(pub AgentIdentity);

impl FromRequestParts<App> for AgentCaller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        authenticate(app, &parts.headers, &parts.uri).await.map(Self)
    }
}

/// The agent whose token a request has. Requests that wait call it again: the access may have ended meanwhile.
pub async fn authenticate(app: &App, headers: &HeaderMap, uri: &Uri) -> Result<AgentIdentity> {
    let refuse = |detail: &str| Error::unauthorized("Workspace agent not authorized.").detail(detail);
    let found = presented(headers, uri);
    let token = found.ok_or_else(|| refuse("An agent token is needed."))?.token;
    // Tokens of users have another form, and are not looked up.
    if Uuid::try_parse(token.expose()).is_err() {
        return Err(refuse("The agent token is not a UUID."));
    }
    let found = agent_connections::authenticate(&mut app.store.reader().await?, &token).await?;
    // One text for all reasons: a caller without rights learns nothing about a token.
    found.ok_or_else(|| {
        refuse(
            "The agent token is unknown, or its build is not the latest one of the workspace. A new build of the \
             workspace has a new agent.",
        )
    })
}
