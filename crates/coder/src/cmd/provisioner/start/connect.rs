//! How an external daemon connects to its server: dial, upgrade, WebSocket.

use std::sync::{Arc, Mutex, PoisonError};

use coder_api::client::{Client, Credential, Error, ServeProvisionerDaemonRequest};
use coder_domain::protocol::ApiVersion;
use coder_provisioner::{ConnectError, ConnectFuture, Connector, Transport};
use coder_wire::error_chain;
use coder_wire::extension::Extensions;
use coder_wire::ws::Socket;

use super::Identity;
use crate::versions;

// A server only reports that it does not accept a credential.
pub(super) const UNKNOWN_KEY: &str =
    "the provisioner key was deleted, has expired, is not complete, or is a key of another server";
const OTHER_PSK: &str = "the pre-shared key is not that of the server";
pub(super) const ENDED_SESSION: &str = "the session or token has expired or was ended";

/// Dials a server.
pub(super) struct ServerConnector {
    client: Client,
    /// The offered protocol version is lowered for an older server (wire-protocol 1.6).
    serve: Arc<Mutex<ServeProvisionerDaemonRequest>>,
}

impl ServerConnector {
    pub(super) fn new(client: Client, identity: &Identity, name: &str) -> Self {
        let mut serve =
            ServeProvisionerDaemonRequest::new(identity.credential.clone(), name, versions::compatible());
        serve.organization.clone_from(&identity.organization);
        serve.tags = identity.tags.clone();
        serve.extensions = Some(Extensions::ALL.to_string());
        Self { client, serve: Arc::new(Mutex::new(serve)) }
    }

    fn serve(&self) -> ServeProvisionerDaemonRequest {
        self.serve.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lower(&self, version: ApiVersion) {
        self.serve.lock().unwrap_or_else(PoisonError::into_inner).api_version = version;
    }

    async fn dial(&self) -> Result<Transport, ConnectError> {
        loop {
            let serve = self.serve();
            let error = match self.client.serve(&serve).await {
                Ok(upgraded) => {
                    let extensions =
                        Extensions::from_headers(&upgraded.headers).intersection(Extensions::ALL);
                    let stream = Box::new(Socket::client(upgraded.stream));
                    return Ok(Transport { stream, extensions, protocol: serve.api_version });
                }
                Err(error) => explain(&error, &serve),
            };
            match self.next_version(&error).await {
                Some(version) => self.lower(version),
                None => return Err(error),
            }
        }
    }

    /// The version to offer to a server that refused the first one: the server's version, from the error or from its
    /// build info.
    async fn next_version(&self, error: &ConnectError) -> Option<ApiVersion> {
        let ConnectError::Version { offered, server, .. } = error else { return None };
        let server = match server {
            Some(server) => *server,
            None => self.client.build_info().await.ok()?.provisioner_api_version.parse().ok()?,
        };
        let lower = server.major == offered.major && server.minor < offered.minor;
        if lower {
            tracing::info!(target: "provisioner", %server, ours = %offered, "the server is older; its protocol version is used");
        }
        lower.then_some(server)
    }
}

impl Connector for ServerConnector {
    fn connect(&self) -> ConnectFuture<'_> {
        Box::pin(self.dial())
    }
}

fn explain(error: &Error, serve: &ServeProvisionerDaemonRequest) -> ConnectError {
    if error.status().is_some_and(|status| status == 401) {
        let reason = match &serve.credential {
            Credential::Key(_) => UNKNOWN_KEY,
            Credential::Psk(_) => OTHER_PSK,
            Credential::Session => ENDED_SESSION,
        };
        return ConnectError::Unauthorized(reason.to_owned());
    }
    if let (Some(status), Some(body)) = (error.status(), error.body()) {
        let body = serde_json::to_vec(body).unwrap_or_default();
        return ConnectError::from_response(status.as_u16(), &body, serve.api_version);
    }
    let mut text = error.to_string();
    for cause in error_chain::causes(error).skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if let Some(hint) = error.hint() {
        text = format!("{text} ({hint})");
    }
    ConnectError::Retry(text)
}
