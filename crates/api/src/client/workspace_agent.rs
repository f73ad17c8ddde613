//! What an agent, and commands inside its workspace, ask the server. The session is the agent's token.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, Uri};
use url::Url;

use super::error::Error;
use super::{BoxedByteStream, Client, UpgradedConnection, tls};
use crate::agents::{AgentExternalAuth, AgentGitSshKey};
use crate::paths;

impl Client {
    /// Opens the connection for the calls of an agent (agent 2.1).
    ///
    /// # Errors
    /// As [`super::Dialer::open`].
    pub async fn agent_rpc(&self, version: &str) -> Result<UpgradedConnection, Error> {
        self.open(paths::AGENT_RPC, &[("version", version)], self.cookie()?).await
    }

    /// Connects to a host as for every call, proxy and TLS included, for protocols that upgrade by themselves. The headers are
    /// the client's extra ones.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub async fn connect(&self, url: &Url) -> Result<(BoxedByteStream, HeaderMap), Error> {
        let stream = self.server.dialer.connection(url).await?;
        Ok((stream, self.server.headers.clone()))
    }

    /// The Git key of the workspace's owner.
    ///
    /// # Errors
    /// As for every call.
    pub async fn git_ssh_key_of_owner(&self) -> Result<AgentGitSshKey, Error> {
        self.get(paths::AGENT_GIT_SSH_KEY, &[]).await
    }

    /// A token for a provider with an id, or for the provider whose pattern matches a URL. With `listen` the server answers
    /// when the owner has connected an account.
    ///
    /// # Errors
    /// As for every call.
    pub async fn external_auth_of_owner(
        &self,
        provider: ExternalAuthQuery<'_>,
        listen: bool,
    ) -> Result<AgentExternalAuth, Error> {
        let mut query = vec![match provider {
            ExternalAuthQuery::Id(id) => ("id", id),
            ExternalAuthQuery::Url(url) => ("match", url),
        }];
        if listen {
            query.push(("listen", "true"));
        }
        self.get(paths::AGENT_EXTERNAL_AUTH, &query).await
    }
}

/// Which provider of external authentication is meant.
#[derive(Clone, Copy, Debug)]
pub enum ExternalAuthQuery<'a> {
    /// The provider's id.
    Id(&'a str),
    /// A URL that the provider's pattern matches.
    Url(&'a str),
}

/// Asks apps of a workspace whether they answer.
#[derive(Clone)]
pub struct AppProbe {
    http: reqwest::Client,
}

impl AppProbe {
    /// A probe. Redirects count as answers and are not followed; no proxy is used.
    ///
    /// # Errors
    /// [`Error::Setup`].
    pub fn new() -> Result<Self, Error> {
        // Without authorities an app with TLS does not answer, which is better than no agent.
        let tls = tls::config(&[]).unwrap_or_else(|_| tls::without_roots());
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(0)
            .no_proxy()
            .build()
            .map_err(Error::Setup)?;
        Ok(Self { http })
    }

    /// Whether a GET is answered within a limit by a status below 500. The body is not read.
    pub async fn answers(&self, url: &str, limit: Duration) -> bool {
        if url.parse::<Uri>().is_err() {
            return false;
        }
        let response = self.http.get(url).timeout(limit).send().await;
        response.is_ok_and(|response| !response.status().is_server_error())
    }
}

impl fmt::Debug for AppProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppProbe").finish_non_exhaustive()
    }
}
