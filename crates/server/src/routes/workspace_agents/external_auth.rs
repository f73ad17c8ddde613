//! The account of the workspace's owner at a provider, for Git and scripts in the workspace (agent 7.5).

use std::time::Duration;

use axum::extract::State;
use coder_api::agents::AgentExternalAuth;
use coder_api::paths;
use coder_domain::external_auth::Provider;
use coder_domain::ids::UserId;
use coder_domain::secret::Secret;
use http::{HeaderMap, StatusCode, Uri};

use super::git_ssh_key::require_user_data;
use crate::agents::authenticate::{AgentCaller, authenticate};
use crate::context::App;
use crate::events::Topic;
use crate::external_auth;
use crate::http::params::Query;
use crate::http::{AccessUrl, Error, Json, Result};

/// How long a request waits for the owner to connect an account; the agent asks again.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(300);
/// Makes up for an account that was connected at another server.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Requests of one agent that wait. Several clones may wait for one account.
pub const MOST_ACCOUNT_WAITS: usize = 32;

/// `GET /workspaceagents/me/external-auth`
pub async fn external_auth(
    State(app): State<App>,
    AgentCaller(identity): AgentCaller,
    headers: HeaderMap,
    uri: Uri,
    query: Query,
    AccessUrl(address): AccessUrl,
) -> Result<Json<AgentExternalAuth>> {
    require_user_data(&app, &identity).await?;
    let provider = find(&app, &query)?;
    let owner = identity.owner_id;
    // Subscribed before the first look.
    let mut changes = app.events.subscribe(Topic::ExternalAuth(owner));
    let listen = async {
        loop {
            if let Some(found) = connected(&app, owner, provider).await? {
                return Ok::<_, Error>(found);
            }
            tokio::select! {
                () = changes.changed() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = app.lifecycle.soft().cancelled() => {
                    return Err(Error::new(StatusCode::SERVICE_UNAVAILABLE, "The server stops."));
                }
            }
            // The build may have ended meanwhile, or the account may be suspended.
            require_user_data(&app, &authenticate(&app, &headers, &uri).await?).await?;
        }
    };
    if query.get("listen").is_some() {
        let _permit = app.account_waits.admit(identity.agent_id).ok_or_else(|| {
            Error::new(StatusCode::TOO_MANY_REQUESTS, "This agent waits for accounts already.")
                .detail(format!("An agent may have {MOST_ACCOUNT_WAITS} such requests: end one of them."))
        })?;
        if let Ok(found) = tokio::time::timeout(LISTEN_TIMEOUT, listen).await {
            return found.map(Json);
        }
    } else if let Some(found) = connected(&app, owner, provider).await? {
        return Ok(Json(found));
    }
    let page = paths::external_auth_page(&provider.id);
    let url = format!("{address}{page}");
    let none = || Secret::new("");
    Ok(Json(AgentExternalAuth {
        access_token: none(),
        token_extra: None,
        url,
        kind: provider.kind.clone(),
        username: none(),
        password: none(),
    }))
}

fn find<'a>(app: &'a App, query: &Query) -> Result<&'a Provider> {
    let (id, address) = (query.text("id"), query.text("match"));
    let found = match (id, address) {
        ("", "") => {
            return Err(Error::bad_request("'url' or 'id' must be provided as query parameters!"));
        }
        ("", address) => app.external_auth.providers().iter().find(|provider| provider.matches(address)),
        (id, _) => app.external_auth.providers().iter().find(|provider| provider.id == id),
    };
    found.ok_or_else(|| {
        Error::new(StatusCode::NOT_FOUND, "No matching external auth provider found in Coder.")
            .detail("An administrator can configure one for this host.")
    })
}

/// The account in the form that Git takes, if there is one with a valid token.
async fn connected(app: &App, owner: UserId, provider: &Provider) -> Result<Option<AgentExternalAuth>> {
    let found = external_auth::token(app, owner, provider).await?;
    let found = found.map_err(|error| {
        Error::new(StatusCode::BAD_GATEWAY, "The external auth provider is unavailable.").detail(error)
    })?;
    Ok(found.map(|link| credentials(&provider.kind, link.tokens.access)))
}

fn credentials(kind: &str, token: Secret) -> AgentExternalAuth {
    let (username, password) = match kind {
        "gitlab" => (Secret::new("oauth2"), token.clone()),
        "bitbucket-cloud" | "bitbucket-server" => (Secret::new("x-token-auth"), token.clone()),
        _ => (token.clone(), Secret::new("")),
    };
    let kind = kind.to_owned();
    AgentExternalAuth { access_token: token, token_extra: None, url: String::new(), kind, username, password }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_gets_the_token_where_the_host_expects_it() {
        let pair = |kind| {
            let found = credentials(kind, Secret::new("t"));
            (found.username.expose().to_owned(), found.password.expose().to_owned())
        };
        let text = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(pair("github"), text("t", ""));
        assert_eq!(pair("gitlab"), text("oauth2", "t"));
        assert_eq!(pair("bitbucket-cloud"), text("x-token-auth", "t"));
    }
}
