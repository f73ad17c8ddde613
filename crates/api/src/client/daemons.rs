//! Joining as a provisioner daemon, and filters of the lists of daemons and jobs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use coder_domain::ids::UserId;
use coder_domain::protocol::{self, ApiVersion};
use coder_domain::secret::Secret;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Client, Error, UpgradedConnection, secret_value};
use crate::{headers, paths};

/// The hint for a 401 to a provisioner key.
pub(super) const CHECK_KEY: &str =
    "the provisioner key is unknown or was deleted; create one with `coder provisioner keys create`";

#[derive(Clone, Debug)]
pub enum Credential {
    /// A provisioner key; organization and tags come from it.
    Key(Secret),
    /// The deployment's pre-shared key.
    Psk(Secret),
    /// The client's session.
    Session,
}

/// How a daemon joins (wire-protocol 1.2).
#[derive(Clone, Debug)]
pub struct ServeProvisionerDaemonRequest {
    /// A name, an id, or `default`, which keys and the pre-shared key require.
    pub organization: String,
    pub credential: Credential,
    /// Its display name, part of its identity.
    pub name: String,
    /// The provisioner types that it can run.
    pub provisioners: Vec<String>,
    /// Its tags; must be empty with a key.
    pub tags: BTreeMap<String, String>,
    /// The protocol version it offers.
    pub api_version: ApiVersion,
    /// Its build version, shown in lists.
    pub build_version: String,
    /// The extensions that it offers, `NAME/VERSION, …`. The response has the granted ones in the header of the same name.
    pub extensions: Option<String>,
}

impl ServeProvisionerDaemonRequest {
    /// A Terraform daemon of the default organization without tags.
    #[must_use]
    pub fn new(credential: Credential, name: impl Into<String>, build_version: impl Into<String>) -> Self {
        Self {
            organization: paths::DEFAULT_ORGANIZATION.to_owned(),
            credential,
            name: name.into(),
            provisioners: vec!["terraform".to_owned()],
            tags: BTreeMap::new(),
            api_version: protocol::CURRENT,
            build_version: build_version.into(),
            extensions: None,
        }
    }
}

impl Client {
    /// Joins as a daemon. The result's stream carries WebSocket frames, client side.
    ///
    /// # Errors
    /// [`Error::Status`] if the server refuses; only a 403 is permanent (wire-protocol 1.7).
    pub async fn serve(&self, serve: &ServeProvisionerDaemonRequest) -> Result<UpgradedConnection, Error> {
        let version = serve.api_version.to_string();
        let tags: Vec<String> = serve.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut query = vec![("name", serve.name.as_str())];
        query.extend(serve.provisioners.iter().map(|kind| ("provisioner", kind.as_str())));
        query.extend(tags.iter().map(|tag| ("tag", tag.as_str())));
        query.push(("version", &version));
        let joined = self.open(&paths::serve(&serve.organization), &query, self.serve_headers(serve)?).await;
        joined.map_err(|error| match serve.credential {
            Credential::Key(_) => error.with_advice(CHECK_KEY),
            Credential::Psk(_) => error.with_advice("the pre-shared key differs from the server's"),
            Credential::Session => error,
        })
    }

    fn serve_headers(&self, serve: &ServeProvisionerDaemonRequest) -> Result<HeaderMap, Error> {
        let invalid = |name: &'static str| move |()| Error::InvalidHeader(name.to_owned());
        let (mut map, credential) = match &serve.credential {
            Credential::Session => (self.cookie()?, None),
            Credential::Key(key) => (HeaderMap::new(), Some((headers::PROVISIONER_KEY, key))),
            Credential::Psk(psk) => (HeaderMap::new(), Some((headers::PROVISIONER_PSK, psk))),
        };
        if let Some((name, secret)) = credential {
            map.insert(HeaderName::from_static(name), secret_value(secret).map_err(invalid(name))?);
        }
        let plain = [
            (headers::BUILD_VERSION, Some(&serve.build_version)),
            (headers::PROVISIONER_EXTENSIONS, serve.extensions.as_ref()),
        ];
        for (name, value) in plain {
            if let Some(value) = value {
                let value = HeaderValue::from_str(value).map_err(|_| invalid(name)(()))?;
                map.insert(HeaderName::from_static(name), value);
            }
        }
        Ok(map)
    }
}

/// Which daemons to list (http-api 5.3).
#[derive(Clone, Debug, Default)]
pub struct DaemonFilter {
    /// At most this many; 50 by default.
    pub limit: Option<u32>,
    /// Also those not seen for 90 s.
    pub offline: bool,
    /// Only those with one of these statuses.
    pub status: Vec<String>,
    /// Only those seen within this time.
    pub max_age: Option<Duration>,
    /// Only those that could run a job with these tags.
    pub tags: BTreeMap<String, String>,
}

/// Which jobs to list (http-api 5.4).
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// At most this many; 50 by default.
    pub limit: Option<u32>,
    /// Only those with one of these statuses.
    pub status: Vec<String>,
    /// Only those a user started.
    pub initiator: Option<UserId>,
    /// Only those with these tags.
    pub tags: BTreeMap<String, String>,
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "provisioner key",
            Self::Psk(_) => "pre-shared key",
            Self::Session => "user session",
        })
    }
}
