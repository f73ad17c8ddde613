//! Leader election by a Lease: of several operators one works.
//!
//! A leader renews its lease every third of its duration. It stops working when it could not renew it for two thirds, and
//! another takes over only when the lease did not change for its whole duration, by its own clock; clocks need not agree.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use coder_domain::clock::Clock;

/// Settings of the election.
#[derive(Clone, Debug)]
pub struct Election {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// Who this is; different for each process.
    pub holder: String,
    /// After which time without renewal another may take over.
    pub duration: Duration,
}

/// What was seen of the lease last, and when it changed.
type Seen = Option<(Option<String>, Instant)>;

impl Election {
    /// Waits until this process is the leader.
    pub(crate) async fn win(&self, kube: &Client, clock: &dyn Clock) {
        let mut seen: Seen = None;
        loop {
            match self.attempt(kube, clock, &mut seen).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, lease = self.name, "cannot take the lease"),
            }
            tokio::time::sleep(self.duration / 5).await;
        }
    }

    /// Renews the lease until that fails for too long or somebody else has it.
    pub(crate) async fn keep(&self, kube: &Client, clock: &dyn Clock) {
        let mut renewed = Instant::now();
        let mut seen: Seen = None;
        while renewed.elapsed() < self.duration * 2 / 3 {
            tokio::time::sleep(self.duration / 5).await;
            let attempt = tokio::time::timeout(self.duration / 4, self.attempt(kube, clock, &mut seen));
            match attempt.await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => {
                    tracing::warn!(lease = self.name, "another operator has the lease");
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "cannot renew the lease"),
                Err(_) => tracing::warn!(lease = self.name, "cannot renew the lease in time"),
            }
        }
    }

    /// Gives the lease back, so that another operator need not wait.
    pub(crate) async fn release(&self, kube: &Client) {
        let leases: Api<Lease> = Api::namespaced(kube.clone(), &self.namespace);
        let Ok(Some(mut lease)) = leases.get_opt(&self.name).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_deref() != Some(&self.holder) {
            return;
        }
        spec.holder_identity = None;
        if let Err(error) = leases.replace(&self.name, &PostParams::default(), &lease).await {
            tracing::debug!(%error, "cannot give the lease back");
        }
    }

    /// Takes or renews the lease. The version of the object makes sure that one of two succeeds.
    async fn attempt(&self, kube: &Client, clock: &dyn Clock, seen: &mut Seen) -> Result<bool, kube::Error> {
        let leases: Api<Lease> = Api::namespaced(kube.clone(), &self.namespace);
        let now = MicroTime(clock.now());
        let seconds = i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX);
        let Some(mut lease) = leases.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let spec = LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: Some(seconds),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            };
            let created = leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await;
            return won(created);
        };
        let version = lease.metadata.resource_version.clone();
        let mut spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
        if holder.as_ref().is_some_and(|holder| *holder != self.holder) {
            let changed = match seen {
                Some((known, at)) if *known == version => *at,
                _ => seen.insert((version, Instant::now())).1,
            };
            let theirs = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let theirs = theirs.map_or(self.duration, Duration::from_secs);
            if changed.elapsed() < theirs {
                return Ok(false);
            }
        }
        if holder.as_ref() != Some(&self.holder) {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
        }
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds = Some(seconds);
        spec.renew_time = Some(now);
        lease.spec = Some(spec);
        won(leases.replace(&self.name, &PostParams::default(), &lease).await)
    }
}

/// A conflict means that another was faster.
fn won(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
