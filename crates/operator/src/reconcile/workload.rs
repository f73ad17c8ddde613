//! The Deployment of a pool: how many pods it has, and which of them leave.

use std::time::Duration;

use coder_api::daemons::ProvisionerDaemon;
use coder_domain::ids::OrganizationId;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::daemons::{Member, activity, problem};
use super::pass::{ActiveKey, Pass, Reached};
use crate::apply::apply;
use crate::crd::provisioner::{Mode, UpdateType};
use crate::crd::provisioner_status::AutoscalingStatus;
use crate::failure::Failure;
use crate::objects::{Pool, contains, pod, workload};
use crate::queue::Demand;
use crate::rules::conditions::{Finding, WORKLOAD};
use crate::rules::demand::desired;
use crate::rules::scaling::{Scaling, decide};
use crate::rules::schedule;
use crate::rules::victims::{Activity, choose};

impl Pass<'_> {
    pub(super) async fn workload(
        &mut self,
        pool: &Pool<'_>,
        key: &ActiveKey,
        reached: &Reached,
    ) -> Result<(), Failure> {
        let demand = self.demand(key, reached);
        let demand = demand.as_deref();
        let members = self.members(demand).await?;
        let wanted = self.desired(&members, demand)?;
        if self.resource.spec.mode == Mode::Ephemeral {
            self.remove::<Deployment>(&self.names.namespace, &self.names.workload).await?;
            return self.ephemeral(pool, members, wanted, demand, reached).await;
        }
        self.remove_jobs().await?;
        self.deployment(pool, members, wanted, demand, reached).await
    }

    /// How many daemons there should be; none if somebody else decides it.
    fn desired(&mut self, members: &[Member], demand: Option<&Demand>) -> Result<i32, Failure> {
        let spec = &self.resource.spec;
        let Some(config) = &spec.autoscaling else {
            self.status.autoscaling = None;
            self.status.desired_replicas = spec.replicas;
            return Ok(spec.replicas);
        };
        let now = self.ctx.clock.now();
        let invalid = |error: schedule::Error| {
            Failure::from(Finding::no(WORKLOAD, "InvalidSchedule", error.to_string()))
        };
        let least = schedule::minimum(config, now).map_err(invalid)?.min(config.max_replicas);
        // A pool that was of a fixed size begins with it.
        let fixed = AutoscalingStatus {
            desired_replicas: self.status.desired_replicas,
            ..AutoscalingStatus::default()
        };
        let last = self.status.autoscaling.clone().unwrap_or(fixed);
        let instant = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
        let last = Scaling {
            desired: last.desired_replicas,
            excess_since: instant(&last.excess_since),
            excess_peak: last.excess_peak,
            shortage_since: instant(&last.shortage_since),
            changed_at: instant(&last.last_scale_time),
        };
        let known = demand.filter(|demand| demand.error.is_none());
        let next = match known {
            // Nothing is changed while the queue cannot be read, except that the bounds hold.
            None => Scaling { desired: last.desired.clamp(least, config.max_replicas), ..last.clone() },
            Some(demand) => {
                let size = |number: i32| usize::try_from(number).unwrap_or(0);
                let busy = members
                    .iter()
                    .filter(|member| member.view.activity == Activity::Busy)
                    .count()
                    .max(demand.busy);
                let needed = desired(
                    busy,
                    demand.waiting,
                    size(config.min_idle),
                    size(least),
                    size(config.max_replicas),
                );
                let ready = members.iter().filter(|member| member.view.is_ready).count();
                decide(config, &last, int(needed), int(ready), now)
            }
        };
        if next.excess_since.is_some() || next.shortage_since.is_some() {
            let seconds = config.scale_down.stabilization_seconds.clamp(1, 10);
            self.within(Duration::from_secs(u64::from(seconds.unsigned_abs())));
        }
        if !config.schedules.is_empty() {
            self.within(Duration::from_secs(30));
        }
        let text = |at: Option<Timestamp>| {
            at.and_then(|at| Timestamp::from_second(at.as_second()).ok()).map(|at| at.to_string())
        };
        self.status.autoscaling = Some(AutoscalingStatus {
            desired_replicas: next.desired,
            excess_since: text(next.excess_since),
            excess_peak: next.excess_peak,
            shortage_since: text(next.shortage_since),
            last_scale_time: text(next.changed_at.or(last.changed_at)),
        });
        self.status.desired_replicas = next.desired;
        Ok(next.desired)
    }

    async fn deployment(
        &mut self,
        pool: &Pool<'_>,
        members: Vec<Member>,
        wanted: i32,
        demand: Option<&Demand>,
        reached: &Reached,
    ) -> Result<(), Failure> {
        let deployments: Api<Deployment> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let live = deployments.get_opt(&self.names.workload).await?;
        let present = live.as_ref().and_then(|live| live.spec.as_ref()?.replicas).unwrap_or(wanted);
        let is_elsewhere =
            self.resource.spec.autoscaling.is_none() && live.as_ref().is_some_and(has_autoscaler);
        let mut leaving = Leaving::default();
        let replicas = if is_elsewhere {
            self.status.desired_replicas = present;
            None
        } else if live.is_some() && wanted < present {
            leaving = self.drain(&members, wanted, present, reached, demand).await?;
            Some(present - int(leaving.pods.len() + leaving.missing))
        } else {
            Some(wanted)
        };
        // Before the first answer about the queue, marks of an earlier operator are right.
        if demand.is_some() || reached.access.token.is_none() {
            self.mark(&members, &leaving.pods).await?;
        }
        let is_held = self.is_held(pool, live.as_ref(), &members);
        if self.status.autoscaling.is_some() && replicas.is_some_and(|replicas| replicas != present) {
            let note = format!(
                "{present} to {} daemons: {} busy, {} waiting jobs",
                replicas.unwrap_or(present),
                self.status.busy,
                demand.map_or(0, |demand| demand.waiting)
            );
            self.ctx.event(&self.about, false, "Scaled", &note).await;
            self.ctx.metrics.scaled();
        }
        let object = workload::deployment(pool, replicas, is_held);
        let applied = apply(&self.ctx.kube, &self.uid, object).await?;
        self.report_members(&members, demand);
        let status = applied.data.get("status").cloned().unwrap_or_default();
        let generation = applied.metadata.generation;
        let pods = Pods {
            replicas: replicas.unwrap_or(present),
            problem: members.iter().find_map(|member| problem(&member.pod)),
        };
        self.find_workload(&status, generation, pods, is_held);
        let unknown = unknown_daemons(demand, reached);
        let updating = updating(&status, generation, is_held);
        self.find_daemons(unknown, updating);
        Ok(())
    }

    /// Chooses the pods that leave, and lets their daemons take no more jobs. Returns those that have no job after that.
    async fn drain(
        &mut self,
        members: &[Member],
        wanted: i32,
        present: i32,
        reached: &Reached,
        demand: Option<&Demand>,
    ) -> Result<Leaving, Failure> {
        if reached.access.token.is_some() && demand.is_none_or(|demand| demand.error.is_some()) {
            // Who is busy is not known at present.
            self.within(Duration::from_secs(5));
            return Ok(Leaving::default());
        }
        let views: Vec<_> = members.iter().map(|member| member.view.clone()).collect();
        // Pods that do not exist yet are taken back first, which needs no drain.
        let surplus = usize::try_from(present - wanted).unwrap_or(0);
        let missing = usize::try_from(present).unwrap_or(0).saturating_sub(views.len()).min(surplus);
        let removal = choose(&views, views.len().saturating_sub(surplus - missing));
        if removal.blocked.is_some() {
            self.within(Duration::from_secs(10));
        }
        let mut leaving = removal.victims;
        // The lowest cost comes first, so that nobody else is removed whatever happens next.
        self.mark(members, &leaving).await?;
        self.drain_daemons(members, &mut leaving, reached).await?;
        Ok(Leaving { pods: leaving, missing })
    }

    /// Drains the daemons of `leaving`, and keeps those that have got a job meanwhile. Without a token nothing is drained.
    pub(super) async fn drain_daemons(
        &self,
        members: &[Member],
        leaving: &mut Vec<String>,
        reached: &Reached,
    ) -> Result<(), Failure> {
        let organization =
            self.status.organization_id.as_ref().and_then(|id| id.parse::<OrganizationId>().ok());
        let Some(organization) = organization.filter(|_| reached.access.token.is_some()) else {
            return Ok(());
        };
        let connected: Vec<_> = members
            .iter()
            .filter(|member| leaving.contains(&member.view.name))
            .filter_map(|member| member.daemon.as_ref())
            .collect();
        if connected.is_empty() {
            return Ok(());
        }
        for daemon in &connected {
            match reached.client.drain(organization, &daemon.id.to_string()).await {
                Ok(_) => {}
                // An official server cannot drain: the pod's end does it. Or the daemon has left already.
                Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 404 | 405)) => {}
                Err(error) => return Err(Failure::server("drain a daemon", &error)),
            }
        }
        let filter = coder_api::client::DaemonFilter { limit: Some(100_000), ..Default::default() };
        let now = reached.client.daemons(organization, &filter).await;
        let now = now.map_err(|error| Failure::server("list the daemons", &error))?;
        let won = |daemon: &&ProvisionerDaemon| {
            activity(daemon) == Activity::Busy && leaving.contains(&daemon.name)
        };
        let winners: Vec<&ProvisionerDaemon> = now.iter().filter(won).collect();
        for daemon in winners {
            leaving.retain(|name| *name != daemon.name);
            // It won a job before it was drained. It finishes the job, and stays if it can.
            if let Err(error) = reached.client.undrain(organization, &daemon.id.to_string()).await {
                tracing::debug!(%error, daemon_name = daemon.name, "cannot undrain");
            }
        }
        Ok(())
    }

    /// Whether a change of the pods waits because daemons are busy.
    fn is_held(&mut self, pool: &Pool<'_>, live: Option<&Deployment>, members: &[Member]) -> bool {
        let strategy = &self.resource.spec.update_strategy;
        let is_busy = members.iter().any(|member| member.view.activity == Activity::Busy);
        let template = live.and_then(|live| serde_json::to_value(&live.spec.as_ref()?.template).ok());
        let is_paused = live.and_then(|live| live.spec.as_ref()?.paused).unwrap_or_default();
        let is_change =
            is_paused || template.is_some_and(|template| !contains(&template, &pod::template(pool)));
        if strategy.kind != UpdateType::OnIdle || !is_busy || !is_change {
            self.status.update_waits_since = None;
            return false;
        }
        let now = self.ctx.clock.now();
        let since = self.status.update_waits_since.as_ref().and_then(|text| text.parse().ok()).unwrap_or(now);
        let limit = strategy.max_wait_seconds.map(SignedDuration::from_secs);
        self.within(Duration::from_secs(5));
        if limit.is_some_and(|limit| now.duration_since(since) >= limit) {
            return false;
        }
        self.status.update_waits_since =
            Timestamp::from_second(since.as_second()).ok().map(|since| since.to_string());
        true
    }

    fn find_workload(&mut self, status: &Value, generation: Option<i64>, pods: Pods, is_held: bool) {
        let Pods { replicas, problem } = pods;
        let number = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
        let is_seen = generation.is_none_or(|generation| number("observedGeneration") >= generation);
        let ready = number("readyReplicas");
        if ready < i64::from(replicas) {
            // The Deployment does not change when a pod gets another problem.
            self.within(Duration::from_secs(10));
        }
        let finding = if replicas == 0 {
            Finding::yes(WORKLOAD, "ScaledToZero", "no daemons are needed")
        } else if ready >= i64::from(replicas) && is_seen {
            let message =
                if is_held { "ready; a change waits for busy daemons" } else { "all pods are ready" };
            Finding::yes(WORKLOAD, "MinimumReplicasReady", message)
        } else if ready > 0 {
            let cause = problem.map(|problem| format!("; {problem}")).unwrap_or_default();
            Finding::yes(
                WORKLOAD,
                "SomeReplicasReady",
                format!("{ready} of {replicas} pods are ready{cause}"),
            )
        } else {
            let cause = refused(status)
                .map(str::to_owned)
                .or(problem)
                .map(|cause| format!("; {cause}"))
                .unwrap_or_default();
            let message = format!("0 of {replicas} pods are ready{cause}");
            Finding::no(WORKLOAD, "NoReplicasReady", message)
        };
        self.find(finding);
    }

    /// Removes ephemeral daemons after the mode was changed. Busy ones finish within their grace.
    async fn remove_jobs(&self) -> Result<(), Failure> {
        let jobs: Api<Job> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let found = jobs.list(&ListParams::default().labels(&self.names.selector())).await?;
        for job in
            found.items.iter().filter(|job| job.owner_references().iter().any(|owner| owner.uid == self.uid))
        {
            if job.meta().deletion_timestamp.is_none() {
                jobs.delete(&job.name_any(), &DeleteParams::background())
                    .await
                    .map(drop)
                    .or_else(ignore_missing)?;
            }
        }
        Ok(())
    }
}

/// The pods that there should be, and why one of them does not run.
struct Pods {
    replicas: i32,
    problem: Option<String>,
}

/// What leaves when a pool shrinks.
#[derive(Default)]
struct Leaving {
    /// Pods whose daemons have no job and get none.
    pods: Vec<String>,
    /// Pods that the Deployment has not made yet.
    missing: usize,
}

/// An object that is gone already needs no deletion.
pub(super) fn ignore_missing(error: kube::Error) -> Result<(), kube::Error> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        error => Err(error),
    }
}

pub(super) fn int(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Why it is not known which daemons are connected.
pub(super) fn unknown_daemons(demand: Option<&Demand>, reached: &Reached) -> Option<String> {
    match demand {
        None if reached.access.token.is_none() => Some("without a token the server is not asked".to_owned()),
        None => Some("the server was not asked yet".to_owned()),
        Some(demand) => demand.error.clone(),
    }
}

/// Whether a horizontal autoscaler of Kubernetes decides the number of pods: it writes as the controller manager through
/// the subresource `scale`. What people write there is corrected.
fn has_autoscaler(live: &Deployment) -> bool {
    live.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some("kube-controller-manager")
            && entry.subresource.as_deref() == Some("scale")
    })
}

/// Why the API server refuses the pods of a Deployment with this status, for example by the security standard of the namespace.
fn refused(status: &Value) -> Option<&str> {
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let mut failures = conditions.filter(|condition| condition["type"] == json!("ReplicaFailure"));
    failures.find_map(|condition| condition["message"].as_str())
}

/// What is being replaced.
fn updating(status: &Value, generation: Option<i64>, is_held: bool) -> Option<String> {
    let number = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    if is_held {
        return Some("a change of the pods waits until no daemon is busy".to_owned());
    }
    let is_seen = generation.is_none_or(|generation| number("observedGeneration") >= generation);
    if is_seen && number("updatedReplicas") == number("replicas") && number("unavailableReplicas") == 0 {
        return None;
    }
    let cause = refused(status).map(|cause| format!("; {cause}")).unwrap_or_default();
    Some(format!("{} of {} pods are as described{cause}", number("updatedReplicas"), number("replicas")))
}
