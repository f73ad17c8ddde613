//! What all passes share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coder_api::client::Client as Coder;
use coder_domain::backoff::Backoff;
use coder_domain::clock::Clock;
use coder_domain::ids::OrganizationId;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use parking_lot::Mutex;

use crate::access::{Access, Believed, Clients};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::queue::{PoolId, Queues};
use crate::rules::conditions::Finding;
use crate::rules::keys::Check;

/// How long an answer of a server about organizations, licences and keys is believed.
pub(crate) const ANSWER_TTL: SignedDuration = SignedDuration::from_mins(5);

/// Why a licence permits no daemons.
pub(crate) const NOT_ENTITLED: &str = "the licence of the server has no external provisioner daemons";

/// What all passes share.
pub(crate) struct Context {
    pub(crate) kube: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) clients: Clients,
    pub(crate) queues: Queues,
    pub(crate) metrics: Metrics,
    events: Events,
    memory: Mutex<HashMap<PoolId, Memory>>,
    organizations: Mutex<HashMap<(String, String), Organization>>,
}

/// What is remembered of a pool between passes. A restart of the operator forgets it, and loses only time.
pub(crate) struct Memory {
    pub(crate) backoff: Backoff,
    /// The last way to the server that worked, for a deletion during which the token disappears.
    pub(crate) access: Option<(Access, Coder)>,
    /// What the server said about the key with this fingerprint, and when.
    pub(crate) check: Option<(String, Timestamp, Check)>,
    /// How long the server is left alone after a failure.
    pub(crate) hold: Option<Hold>,
    /// When the deletion of the keys was first attempted.
    pub(crate) cleanup_since: Option<Timestamp>,
}

impl Default for Memory {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(120)).with_jitter();
        Self { backoff, access: None, check: None, hold: None, cleanup_since: None }
    }
}

/// A server that is left alone for a while: whatever starts a pass must not ask it sooner.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) until: Timestamp,
    /// Of the resource; a changed one is worth another attempt.
    pub(crate) generation: Option<i64>,
    /// Of the way to the server.
    pub(crate) identity: String,
    /// What the status says meanwhile.
    pub(crate) finding: Finding,
}

/// An organization, and the deployment that it is in.
#[derive(Clone, Debug)]
pub(crate) struct Organization {
    pub(crate) id: OrganizationId,
    pub(crate) name: String,
    pub(crate) deployment_id: String,
    /// Whether the licence permits external daemons; why not otherwise.
    pub(crate) entitled: Result<(), (&'static str, String)>,
    read_at: Timestamp,
}

impl Context {
    /// A context without any memory.
    #[must_use]
    pub(crate) fn new(kube: Client, clock: Arc<dyn Clock>, queues: Queues, metrics: Metrics) -> Self {
        Self {
            events: Events::new(kube.clone(), Arc::clone(&clock)),
            kube,
            clock,
            clients: Clients::default(),
            queues,
            metrics,
            memory: Mutex::default(),
            organizations: Mutex::default(),
        }
    }

    /// Reads or changes what is remembered of a pool.
    pub(crate) fn remember<T>(&self, pool: &PoolId, with: impl FnOnce(&mut Memory) -> T) -> T {
        with(self.memory.lock().entry(pool.clone()).or_default())
    }

    /// Forgets a pool that does not exist any more.
    pub(crate) fn forget(&self, pool: &PoolId) {
        self.memory.lock().remove(pool);
        self.queues.forget(pool);
    }

    /// Reports what happened to an object.
    pub(crate) async fn event(&self, about: &ObjectReference, is_warning: bool, reason: &str, note: &str) {
        self.events.report(about, is_warning, reason, note).await;
    }

    /// The organization of a server, not asked again within [`ANSWER_TTL`].
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn organization(
        &self,
        access: &Access,
        client: &Coder,
        name: &str,
    ) -> Result<Organization, coder_api::client::Error> {
        let at = (access.identity(), name.to_owned());
        let now = self.clock.now();
        let known = self.organizations.lock().get(&at).cloned();
        if let Some(known) = known
            && now.duration_since(known.read_at) < ANSWER_TTL
        {
            return Ok(known);
        }
        let organization = client.organization(name).await?;
        let deployment_id = client.build_info().await?.deployment_id;
        let believed = access.licence.as_ref().and_then(|licence| licence.believed(now));
        let entitled = match believed {
            Some(Believed { permits: true, .. }) => Ok(()),
            _ => entitled(client).await?,
        };
        let read = Organization {
            id: organization.id,
            name: organization.name,
            deployment_id,
            entitled,
            read_at: now,
        };
        self.organizations.lock().insert(at, read.clone());
        Ok(read)
    }

    /// Asks again about an organization at the next opportunity, for example after a call about it failed.
    pub(crate) fn forget_organization(&self, access: &Access, name: &str) {
        self.organizations.lock().remove(&(access.identity(), name.to_owned()));
    }
}

/// Whether the licence permits external daemons.
async fn entitled(client: &Coder) -> Result<Result<(), (&'static str, String)>, coder_api::client::Error> {
    use coder_api::deployment::{EXTERNAL_PROVISIONER_DAEMONS, Entitlement};
    let entitlements = match client.entitlements().await {
        Ok(entitlements) => entitlements,
        Err(error) => {
            return match error.status().map(|status| status.as_u16()) {
                Some(404) => {
                    Ok(Err(("NotSupported", "the server has no external provisioner daemons".to_owned())))
                }
                Some(401 | 403) => Ok(Err(("Forbidden", format!("cannot read the licence: {error}")))),
                _ => Err(error),
            };
        }
    };
    let feature = entitlements.features.get(EXTERNAL_PROVISIONER_DAEMONS);
    let is_entitled = feature.is_some_and(|feature| {
        matches!(feature.entitlement, Entitlement::Entitled | Entitlement::GracePeriod)
    });
    Ok(if is_entitled { Ok(()) } else { Err(("NotEntitled", NOT_ENTITLED.to_owned())) })
}
