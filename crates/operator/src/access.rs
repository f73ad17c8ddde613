//! How the server of a pool is reached: its address, the token, authorities and proxies.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use coder_api::client::{Client as Coder, Options, Proxies, Timeouts};
use coder_domain::secret::Secret;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret as KubeSecret};
use kube::{Api, Client};
use parking_lot::Mutex;

use crate::crd::provisioner::{CoderProvisionerSpec, Server};
use crate::crd::reference::{CaBundle, Proxy, SecretEntry};
use crate::crd::{CoderControlPlane, CoderControlPlaneStatus, CoderProvisioner};
use crate::rules::conditions::{ACCESS, CONTROL_PLANE, Finding};
use crate::rules::keys::fingerprint;

/// Most clients that are kept; each has a pool of connections.
const MAX_CLIENTS: usize = 256;
/// How long it is believed what the status of a control plane says about the licence.
const LICENCE_TTL: Duration = Duration::from_secs(120);
/// Most entries of a Secret that a message names.
const MAX_NAMED_ENTRIES: usize = 8;
/// The image of pools whose control plane has none.
pub(crate) const DEFAULT_IMAGE: &str = "ghcr.io/coder/coder:latest";

/// How a server is reached.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) url: String,
    /// None with an existing key.
    pub(crate) token: Option<Secret>,
    pub(crate) ca: Option<Vec<u8>>,
    /// Proxies as variables.
    pub(crate) proxy: BTreeMap<String, String>,
    /// The `CoderControlPlane`.
    pub(crate) control_plane: Option<String>,
    pub(crate) image: String,
    /// What the status of the control plane says about the licence.
    pub(crate) licence: Option<Licence>,
}

/// What the status of a control plane says about the licence.
#[derive(Clone, Debug)]
pub(crate) struct Licence {
    permits: bool,
    read_at: Timestamp,
}

/// What is known about a licence without asking the server, and for how long.
pub(crate) struct Believed {
    pub(crate) permits: bool,
    pub(crate) left: Duration,
}

impl Licence {
    /// None if it is too old.
    pub(crate) fn believed(&self, now: Timestamp) -> Option<Believed> {
        let age = Duration::try_from(now.duration_since(self.read_at)).unwrap_or_default();
        let left = LICENCE_TTL.checked_sub(age).filter(|left| !left.is_zero())?;
        Some(Believed { permits: self.permits, left })
    }
}

/// `unknown` says nothing.
fn licence(status: &CoderControlPlaneStatus) -> Option<Licence> {
    let read_at = status.entitlements_last_checked.as_ref()?.parse().ok()?;
    let permits = match status.external_provisioner_daemons_entitlement.as_deref()? {
        "entitled" | "grace_period" => true,
        "not_entitled" => false,
        _ => return None,
    };
    Some(Licence { permits, read_at })
}

impl Access {
    /// Equal for equal servers and tokens.
    #[must_use]
    pub(crate) fn identity(&self) -> String {
        let token = self.token.as_ref().map(|token| fingerprint(token.expose())).unwrap_or_default();
        let ca = self.ca.as_ref().map(|ca| fingerprint(&String::from_utf8_lossy(ca))).unwrap_or_default();
        format!("{} {token} {ca} {:?}", self.url, self.proxy)
    }
}

/// Why it is not known how a server is reached.
#[derive(Debug)]
pub(crate) enum Unavailable {
    /// Something is missing, which the finding names.
    Missing(Finding),
    /// The API server did not answer.
    Api(kube::Error),
}

impl From<kube::Error> for Unavailable {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

/// Looks up how a pool's server is reached.
///
/// # Errors
/// See [`Unavailable`].
pub(crate) async fn resolve(
    kube: &Client,
    namespace: &str,
    spec: &CoderProvisionerSpec,
) -> Result<Access, Unavailable> {
    let needs_token = spec.key.existing_secret_ref.is_none();
    match (&spec.coder, &spec.control_plane_ref) {
        (Some(server), _) => external(kube, namespace, server, needs_token).await,
        (None, Some(reference)) => {
            let bootstrap = spec.bootstrap.as_ref().map(|bootstrap| &bootstrap.credentials_secret_ref);
            control_plane(kube, namespace, &reference.name, bootstrap, needs_token).await
        }
        (None, None) => {
            Err(missing(CONTROL_PLANE, "ControlPlaneUnavailable", "give controlPlaneRef or coder"))
        }
    }
}

async fn external(
    kube: &Client,
    namespace: &str,
    server: &Server,
    needs_token: bool,
) -> Result<Access, Unavailable> {
    let token = match &server.token_secret_ref {
        Some(entry) => Some(token(kube, namespace, &entry.name, entry.key_or("token")).await?),
        None if needs_token => {
            return Err(missing(ACCESS, "OperatorTokenSecretRefMissing", "coder.tokenSecretRef is missing"));
        }
        None => None,
    };
    let ca = match &server.ca_bundle {
        Some(bundle) => Some(certificates(kube, namespace, bundle).await?),
        None => None,
    };
    let proxy = server.proxy.as_ref().map(variables).unwrap_or_default();
    let url = server.url.trim_end_matches('/').to_owned();
    Ok(Access { url, token, ca, proxy, control_plane: None, image: DEFAULT_IMAGE.to_owned(), licence: None })
}

/// The access to a `CoderControlPlane` of a namespace.
///
/// # Errors
/// See [`Unavailable`].
pub(crate) async fn control_plane(
    kube: &Client,
    namespace: &str,
    name: &str,
    bootstrap: Option<&SecretEntry>,
    needs_token: bool,
) -> Result<Access, Unavailable> {
    let planes: Api<CoderControlPlane> = Api::namespaced(kube.clone(), namespace);
    let unavailable = |message: String| missing(CONTROL_PLANE, "ControlPlaneUnavailable", message);
    // The definitions of the official operator admit this.
    if name.is_empty() {
        return Err(unavailable("controlPlaneRef.name is empty".to_owned()));
    }
    let plane = planes
        .get_opt(name)
        .await?
        .ok_or_else(|| unavailable(format!("there is no CoderControlPlane {name:?} in this namespace")))?;
    let status = plane.status.unwrap_or_default();
    let licence = licence(&status);
    let url = status.url.filter(|url| !url.is_empty());
    let url = url.ok_or_else(|| unavailable(format!("CoderControlPlane {name:?} has no status.url yet")))?;
    let token = match bootstrap {
        Some(entry) => Some(token(kube, namespace, &entry.name, entry.key_or("token")).await?),
        None if !needs_token => None,
        None => {
            if !status.operator_access_ready {
                let message =
                    format!("CoderControlPlane {name:?} has no operator token yet, or does not allow one");
                return Err(missing(ACCESS, "OperatorAccessNotReady", message));
            }
            let entry = status.operator_token_secret_ref.ok_or_else(|| {
                missing(
                    ACCESS,
                    "OperatorTokenSecretRefMissing",
                    "status.operatorTokenSecretRef of the control plane is missing",
                )
            })?;
            if entry.name.is_empty() {
                return Err(missing(
                    ACCESS,
                    "OperatorTokenSecretRefInvalid",
                    "status.operatorTokenSecretRef of the control plane has no name",
                ));
            }
            let key = if entry.key.is_empty() { "token" } else { &entry.key };
            Some(token(kube, namespace, &entry.name, key).await?)
        }
    };
    Ok(Access {
        url: url.trim_end_matches('/').to_owned(),
        token,
        ca: None,
        proxy: BTreeMap::new(),
        control_plane: Some(name.to_owned()),
        image: plane.spec.image,
        licence,
    })
}

async fn token(kube: &Client, namespace: &str, name: &str, key: &str) -> Result<Secret, Unavailable> {
    let unavailable = |message: String| missing(ACCESS, "OperatorTokenSecretUnavailable", message);
    let value = given(kube, namespace, name, key).await?.map_err(unavailable)?;
    let text = String::from_utf8(value).unwrap_or_default().trim().to_owned();
    if text.is_empty() {
        return Err(unavailable(format!("the entry {key:?} of Secret {name:?} is empty or not text")));
    }
    Ok(Secret::new(text))
}

/// An entry of a Secret that somebody makes for a resource; otherwise what that person has to do.
///
/// # Errors
/// The API server did not answer.
pub(crate) async fn given(
    kube: &Client,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<Result<Vec<u8>, String>, kube::Error> {
    if name.is_empty() {
        return Ok(Err("the name of the Secret is empty".to_owned()));
    }
    let secrets: Api<KubeSecret> = Api::namespaced(kube.clone(), namespace);
    let Some(secret) = secrets.get_opt(name).await? else {
        return Ok(Err(format!(
            "there is no Secret {name:?} yet: kubectl create secret generic {name} --namespace {namespace} --from-literal={key}=..."
        )));
    };
    let mut entries = secret.data.unwrap_or_default();
    let value = entries.remove(key).map(|value| value.0);
    Ok(value.ok_or_else(|| {
        let present: Vec<String> = entries.into_keys().take(MAX_NAMED_ENTRIES).collect();
        format!("Secret {name:?} has no entry {key:?}; it has {present:?}")
    }))
}

/// An entry of a Secret; none without a name.
///
/// # Errors
/// The API server did not answer.
pub(crate) async fn entry(
    kube: &Client,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<Option<Vec<u8>>, kube::Error> {
    if name.is_empty() {
        return Ok(None);
    }
    let secrets: Api<KubeSecret> = Api::namespaced(kube.clone(), namespace);
    let found = secrets.get_opt(name).await?;
    Ok(found.and_then(|secret| secret.data?.remove(key)).map(|value| value.0))
}

async fn certificates(kube: &Client, namespace: &str, bundle: &CaBundle) -> Result<Vec<u8>, Unavailable> {
    let (found, what) = if let Some(reference) = &bundle.secret_ref {
        let key = reference.key_or("ca.crt");
        (
            entry(kube, namespace, &reference.name, key).await?,
            format!("Secret {:?} has no entry {key:?}", reference.name),
        )
    } else if let Some(reference) = &bundle.config_map_ref {
        let key = reference.key_or("ca.crt");
        let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), namespace);
        let map = maps.get_opt(&reference.name).await?;
        let text = map.and_then(|map| map.data?.remove(key)).map(String::into_bytes);
        (text, format!("ConfigMap {:?} has no entry {key:?}", reference.name))
    } else {
        (None, "coder.caBundle names nothing".to_owned())
    };
    found.ok_or_else(|| missing(CONTROL_PLANE, "CaBundleUnavailable", what))
}

fn variables(proxy: &Proxy) -> BTreeMap<String, String> {
    let pairs = [("HTTPS_PROXY", &proxy.https), ("HTTP_PROXY", &proxy.http), ("NO_PROXY", &proxy.exceptions)];
    let given = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
    given.collect()
}

fn missing(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Unavailable {
    Unavailable::Missing(Finding::no(kind, reason, message))
}

/// The clients by what they connect to, so that pools of one server share connections.
#[derive(Clone, Default)]
pub(crate) struct Clients(Arc<Mutex<HashMap<String, Coder>>>);

impl Clients {
    /// The client for a server.
    ///
    /// # Errors
    /// The address or the certificates cannot be used.
    pub(crate) fn get(&self, access: &Access) -> Result<Coder, Finding> {
        let identity = access.identity();
        if let Some(client) = self.0.lock().get(&identity) {
            return Ok(client.clone());
        }
        let client = open(access)?;
        let mut clients = self.0.lock();
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(identity, client.clone());
        Ok(client)
    }
}

fn open(access: &Access) -> Result<Coder, Finding> {
    let unusable = |error: &dyn std::error::Error| {
        Finding::no(CONTROL_PLANE, "ControlPlaneUnavailable", error.to_string())
    };
    let mut options = Options {
        user_agent: concat!("coder-operator/", env!("CARGO_PKG_VERSION")).to_owned(),
        timeouts: Timeouts { request: Duration::from_secs(30), ..Timeouts::default() },
        // A reconcile is repeated as a whole.
        retries: 0,
        ..Options::default()
    };
    if !access.proxy.is_empty() {
        options.proxies = Proxies::from_lookup(|name| access.proxy.get(name).cloned());
    }
    // The client reads authorities from files, once.
    let mut file = None;
    if let Some(ca) = &access.ca {
        let written = tempfile::NamedTempFile::new().and_then(|mut file| file.write_all(ca).map(|()| file));
        let kept = file.insert(written.map_err(|error| unusable(&error))?);
        options.ca_files.push(kept.path().to_owned());
    }
    Coder::new(&access.url, access.token.clone(), options).map_err(|error| unusable(&error))
}

/// The Secrets and ConfigMaps of its namespace that a pool reads, but does not own.
#[must_use]
pub(crate) fn references(pool: &CoderProvisioner) -> Vec<&str> {
    let spec = &pool.spec;
    let server = spec.coder.as_ref();
    let bundle = server.and_then(|server| server.ca_bundle.as_ref());
    let entries = [
        server.and_then(|server| server.token_secret_ref.as_ref()),
        spec.bootstrap.as_ref().map(|bootstrap| &bootstrap.credentials_secret_ref),
        spec.key.existing_secret_ref.as_ref(),
        bundle.and_then(|bundle| bundle.secret_ref.as_ref()),
    ];
    entries.into_iter().flatten().map(|entry| entry.name.as_str()).collect()
}
