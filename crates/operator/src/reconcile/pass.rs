//! The order of a pass, and how it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use coder_api::client::Client as Coder;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};

use super::resource::{Error, RESYNC_INTERVAL, pool_id, resync};
use crate::access::{self, Access, Believed};
use crate::context::{Context, Hold, NOT_ENTITLED, Organization};
use crate::crd::{CoderProvisioner, CoderProvisionerStatus};
use crate::failure::{Failure, Retry};
use crate::names::Names;
use crate::objects::{KeyEntry, Pool};
use crate::queue::PoolId;
use crate::rules::conditions::{self, ACCESS, CONTROL_PLANE, ENTITLED, Finding};

/// A pass over one resource that is not being deleted.
pub(super) struct Pass<'a> {
    pub(super) ctx: &'a Context,
    pub(super) resource: &'a CoderProvisioner,
    pub(super) id: PoolId,
    pub(super) names: Names,
    pub(super) owner: OwnerReference,
    pub(super) uid: String,
    pub(super) about: ObjectReference,
    /// The status as it will be written.
    pub(super) status: CoderProvisionerStatus,
    /// When the next pass is due at the latest.
    pub(super) next: Duration,
    /// The way to the server, once it is known.
    server: Option<Reached>,
    /// What is known about the parts, before it is entered into the status: a part that is found good first and bad later has
    /// not changed twice.
    findings: Vec<Finding>,
}

/// The way to a server.
#[derive(Clone)]
pub(super) struct Reached {
    pub(super) access: Access,
    pub(super) client: Coder,
}

/// The key that new pods use.
pub(super) struct ActiveKey {
    pub(super) secret: String,
    pub(super) entry: String,
    pub(super) id: String,
    pub(super) tags: BTreeMap<String, String>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(ctx: &'a Context, resource: &'a CoderProvisioner) -> Self {
        let (namespace, name) = (resource.namespace().unwrap_or_default(), resource.name_any());
        Self {
            ctx,
            resource,
            id: pool_id(resource),
            names: Names::new(&namespace, &name),
            owner: resource.controller_owner_ref(&()).unwrap_or_default(),
            uid: resource.uid().unwrap_or_default(),
            about: resource.object_ref(&()),
            status: resource.status.clone().unwrap_or_default(),
            next: resync(&resource.uid().unwrap_or_default()),
            server: None,
            findings: Vec::new(),
        }
    }

    /// Makes the next pass earlier.
    pub(super) fn within(&mut self, time: Duration) {
        self.next = self.next.min(time);
    }

    /// Notes what became of a part. A later finding about the same part replaces it.
    pub(super) fn find(&mut self, finding: Finding) {
        self.findings.retain(|known| known.kind != finding.kind);
        self.findings.push(finding);
    }

    /// Enters the findings into the status. An Event tells about a problem that is news.
    pub(super) async fn enter_findings(&mut self) {
        let (generation, now) = (self.resource.meta().generation, self.ctx.clock.now());
        for finding in std::mem::take(&mut self.findings) {
            let is_news = conditions::set(&mut self.status.conditions, &finding, generation, now);
            if is_news && !finding.is_true {
                self.ctx.event(&self.about, true, finding.reason, &finding.message).await;
            }
        }
    }

    pub(super) async fn run(mut self) -> Result<Action, Error> {
        if self.resource.spec.paused {
            self.status.phase = Some("Paused".to_owned());
            self.write_status().await?;
            return Ok(Action::requeue(RESYNC_INTERVAL));
        }
        let outcome = self.steps().await;
        match outcome {
            Ok(()) => {
                self.ctx.remember(&self.id, |memory| {
                    memory.backoff.reset();
                    memory.hold = None;
                });
                self.status.observed_generation = self.resource.meta().generation;
            }
            Err(failure) => self.fail(failure),
        }
        self.conclude().await?;
        Ok(Action::requeue(self.next))
    }

    fn fail(&mut self, failure: Failure) {
        tracing::info!(
            namespace = self.id.0,
            provisioner = self.id.1,
            reason = failure.finding.reason,
            message = failure.finding.message,
            "the pass ended early"
        );
        let delay = match failure.retry {
            Retry::After(delay) => delay,
            Retry::Backoff => self.ctx.remember(&self.id, |memory| memory.backoff.next_delay()),
        };
        self.ctx.metrics.failed(failure.finding.reason);
        if failure.retry == Retry::Backoff && failure.is_of_server() {
            self.hold(&failure.finding, delay);
        }
        self.within(delay);
        self.find(failure.finding);
    }

    /// Notes that the server is left alone for a while.
    fn hold(&self, finding: &Finding, delay: Duration) {
        let Some(server) = &self.server else { return };
        let until = self.ctx.clock.now() + SignedDuration::try_from(delay).unwrap_or(SignedDuration::ZERO);
        let hold = Hold {
            until,
            generation: self.resource.meta().generation,
            identity: server.access.identity(),
            finding: finding.clone(),
        };
        self.ctx.remember(&self.id, |memory| memory.hold = Some(hold));
    }

    /// Ends the pass if the server is to be left alone, unless the resource or the token was changed meanwhile.
    fn respect_hold(&self, reached: &Reached) -> Result<(), Failure> {
        let Some(hold) = self.ctx.remember(&self.id, |memory| memory.hold.clone()) else { return Ok(()) };
        let left = hold.until.duration_since(self.ctx.clock.now());
        let is_same =
            hold.generation == self.resource.meta().generation && hold.identity == reached.access.identity();
        match Duration::try_from(left) {
            Ok(left) if is_same && !left.is_zero() => Err(Failure::new(hold.finding, Retry::After(left))),
            _ => Ok(()),
        }
    }

    async fn steps(&mut self) -> Result<(), Failure> {
        let reached = self.reach().await?;
        self.respect_hold(&reached)?;
        let key = if self.resource.spec.key.existing_secret_ref.is_some() {
            self.existing_key(&reached).await?
        } else {
            let organization = self.organization(&reached).await?;
            self.own_key(&reached, &organization).await?
        };
        let pool_access = reached.access.clone();
        let (resource, names, owner) = (self.resource, self.names.clone(), self.owner.clone());
        let pool = Pool {
            names: &names,
            spec: &resource.spec,
            owner: &owner,
            default_image: &pool_access.image,
            url: &pool_access.url,
            ca_bundle: resource.spec.coder.as_ref().and_then(|server| server.ca_bundle.as_ref()),
            proxy: &pool_access.proxy,
            key: KeyEntry { secret: &key.secret, entry: &key.entry, id: &key.id },
        };
        self.supporting_objects(&pool).await?;
        self.workload(&pool, &key, &reached).await?;
        self.retire_keys(&reached).await?;
        self.prune(&key).await
    }

    /// The way to the server.
    async fn reach(&mut self) -> Result<Reached, Failure> {
        let access = access::resolve(&self.ctx.kube, &self.names.namespace, &self.resource.spec).await?;
        self.find(Finding::yes(
            CONTROL_PLANE,
            "ControlPlaneAvailable",
            format!("the server is {}", access.url),
        ));
        if access.token.is_some() {
            self.find(Finding::yes(ACCESS, "OperatorAccessReady", "the token is there"));
        } else {
            conditions::clear(&mut self.status.conditions, ACCESS);
        }
        let client = self.ctx.clients.get(&access)?;
        self.status.control_plane_url = Some(access.url.clone());
        self.status.control_plane_ref_name.clone_from(&access.control_plane);
        let reached = Reached { access, client };
        let kept = (reached.access.clone(), reached.client.clone());
        self.ctx.remember(&self.id, |memory| memory.access = Some(kept));
        self.server = Some(reached.clone());
        Ok(reached)
    }

    /// The organization, if the licence permits daemons in it.
    async fn organization(&mut self, reached: &Reached) -> Result<Organization, Failure> {
        let name = match self.resource.spec.organization_name.as_str() {
            "" => "default",
            name => name,
        };
        let licence = reached.access.licence.as_ref();
        let believed = licence.and_then(|licence| licence.believed(self.ctx.clock.now()));
        if let Some(Believed { permits: false, left }) = believed {
            let finding = Finding::no(ENTITLED, "NotEntitled", NOT_ENTITLED);
            return Err(Failure::new(finding, Retry::After(left)));
        }
        let found = self.ctx.organization(&reached.access, &reached.client, name).await;
        let organization =
            found.map_err(|error| Failure::server(&format!("find the organization {name:?}"), &error))?;
        match &organization.entitled {
            Ok(()) => {
                let finding =
                    Finding::yes(ENTITLED, "Entitled", "the server accepts external provisioner daemons");
                self.find(finding);
            }
            Err((reason, message)) => {
                self.ctx.forget_organization(&reached.access, name);
                let finding = Finding::no(ENTITLED, reason, message.clone());
                return Err(Failure::new(finding, Retry::After(Duration::from_secs(120))));
            }
        }
        self.status.organization_id = Some(organization.id.to_string());
        self.status.organization_name = Some(organization.name.clone());
        Ok(organization)
    }
}
