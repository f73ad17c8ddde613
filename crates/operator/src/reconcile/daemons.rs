//! Joins the pods of a pool with what the server knows about their daemons.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coder_api::daemons::{DaemonStatus as Activity, ProvisionerDaemon, VersionSkew};
use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::tags::TagSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::pass::{ActiveKey, Pass, Reached};
use crate::crd::provisioner_status::DaemonStatus;
use crate::failure::Failure;
use crate::names::BUSY;
use crate::queue::{Demand, Interest};
use crate::rules::victims;

/// Most daemons in the status.
const MAX_DAEMONS_SHOWN: usize = 100;
/// How often daemons are looked at when nothing is scaled.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The annotation that decides which pods a ReplicaSet removes first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotations that keep two autoscalers of nodes from removing a pod.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// A pod and its daemon.
pub(super) struct Member {
    pub(super) pod: Pod,
    pub(super) daemon: Option<ProvisionerDaemon>,
    pub(super) view: victims::Pod,
}

impl Pass<'_> {
    /// What the queue says about this pool; none before the first answer, and without a token.
    pub(super) fn demand(&self, key: &ActiveKey, reached: &Reached) -> Option<Arc<Demand>> {
        reached.access.token.as_ref()?;
        let organization: OrganizationId = self.status.organization_id.as_ref()?.parse().ok()?;
        let spec = &self.resource.spec;
        let every = spec
            .autoscaling
            .as_ref()
            .map(|scaling| Duration::from_secs(u64::from(scaling.poll_seconds.unsigned_abs())));
        let keys = self.status.keys.iter().filter_map(|known| known.id.clone());
        let interest = Interest {
            tags: TagSet::canonical(UserId::NIL, [&key.tags]),
            keys: keys.chain([key.id.clone()]).collect(),
            // A pool of a fixed size takes what it can.
            max: spec
                .autoscaling
                .as_ref()
                .map_or(spec.replicas, |scaling| scaling.max_replicas)
                .unsigned_abs() as usize,
            every: every.unwrap_or(LOOK_EVERY),
        };
        self.ctx.queues.watch(&self.id, &reached.access.identity(), organization, &reached.client, interest)
    }

    /// The pods that are not being deleted and have not ended, with their daemons.
    pub(super) async fn members(&self, demand: Option<&Demand>) -> Result<Vec<Member>, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let pods = pods.list(&ListParams::default().labels(&self.names.selector())).await?;
        let daemons: HashMap<&str, &ProvisionerDaemon> = demand
            .into_iter()
            .flat_map(|demand| &demand.daemons)
            .map(|daemon| (daemon.name.as_str(), daemon))
            .collect();
        let alive =
            pods.items.into_iter().filter(|pod| pod.meta().deletion_timestamp.is_none() && !has_ended(pod));
        let member = |pod: Pod| {
            let daemon = daemons.get(pod.name_any().as_str()).map(|daemon| (*daemon).clone());
            let view = view(&pod, daemon.as_ref());
            Member { pod, daemon, view }
        };
        Ok(alive.map(member).collect())
    }

    /// Enters counts and daemons into the status.
    pub(super) fn report_members(&mut self, members: &[Member], demand: Option<&Demand>) {
        let count = |wanted: &dyn Fn(&Member) -> bool| {
            i32::try_from(members.iter().filter(|member| wanted(member)).count()).unwrap_or(i32::MAX)
        };
        self.status.replicas = count(&|_| true);
        self.status.ready_replicas = count(&|member| member.view.is_ready);
        self.status.connected = count(&|member| member.view.activity != victims::Activity::Offline);
        self.status.busy = count(&|member| member.view.activity == victims::Activity::Busy);
        let waiting = demand.map_or(0, |demand| demand.waiting);
        self.status.waiting_jobs = i32::try_from(waiting).unwrap_or(i32::MAX);
        self.status.daemons = members.iter().take(MAX_DAEMONS_SHOWN).map(shown).collect();
        self.status.daemons.sort_by(|one, other| one.pod.cmp(&other.pod));
        // A pod becomes ready when its daemon has joined, so the list of daemons is older than the pods.
        let is_known = demand.is_some_and(|demand| demand.error.is_none());
        if is_known && self.status.connected < self.status.ready_replicas {
            self.ctx.queues.look(&self.id);
        }
    }

    /// Marks pods so that nothing removes a busy daemon: for ReplicaSets, budgets and autoscalers of nodes.
    pub(super) async fn mark(&self, members: &[Member], leaving: &[String]) -> Result<(), Failure> {
        let pods: Api<Pod> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        for member in members {
            let name = &member.view.name;
            let is_busy = member.view.activity == victims::Activity::Busy;
            let cost = if is_busy { Some("1000") } else { leaving.contains(name).then_some("-1000") };
            let label = is_busy.then_some("true");
            let wanted = [(COST, cost), (SAFE_TO_EVICT, is_busy.then_some("false")), (DO_NOT_DISRUPT, label)];
            let annotations = member.pod.annotations();
            let is_marked =
                wanted.iter().all(|(key, value)| annotations.get(*key).map(String::as_str) == *value)
                    && member.pod.labels().get(BUSY).map(String::as_str) == label;
            if is_marked {
                continue;
            }
            let annotations: serde_json::Map<String, Value> =
                wanted.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
            let patch = json!({"metadata": {"labels": {BUSY: label}, "annotations": annotations}});
            match pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Why a pod does not run, in the words of the scheduler or of the kubelet.
pub(crate) fn problem(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let unscheduled = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unscheduled {
        let message = condition.message.as_deref().unwrap_or_default();
        return Some(format!("pod {}: Unschedulable: {message}", pod.name_any()));
    }
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let waiting =
        statuses.into_iter().flatten().flatten().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    waiting.into_iter().find_map(|waiting| {
        let reason = waiting.reason.as_deref()?;
        // Every pod waits for these for a moment.
        let is_normal = matches!(reason, "ContainerCreating" | "PodInitializing");
        let message = waiting.message.as_deref().unwrap_or_default();
        (!is_normal).then(|| format!("pod {}: {reason}: {message}", pod.name_any()))
    })
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn view(pod: &Pod, daemon: Option<&ProvisionerDaemon>) -> victims::Pod {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let created = pod.meta().creation_timestamp.as_ref().map_or(0, |created| created.0.as_second());
    victims::Pod {
        name: pod.name_any(),
        is_running: status.and_then(|status| status.phase.as_deref()) == Some("Running"),
        is_ready,
        activity: daemon.map_or(victims::Activity::Offline, activity),
        created_at: created,
    }
}

/// What a daemon is doing. A daemon with a job is busy even while it drains or reconnects.
pub(super) fn activity(daemon: &ProvisionerDaemon) -> victims::Activity {
    let extras = daemon.extras.as_ref();
    if daemon.status == Some(Activity::Busy)
        || daemon.current_job.is_some()
        || extras.is_some_and(|extras| extras.busy_slots > 0)
    {
        return victims::Activity::Busy;
    }
    if extras.is_some_and(|extras| extras.draining) {
        return victims::Activity::Draining;
    }
    match daemon.status {
        Some(Activity::Idle) => victims::Activity::Idle,
        _ => victims::Activity::Offline,
    }
}

fn shown(member: &Member) -> DaemonStatus {
    let state = match member.view.activity {
        victims::Activity::Offline => "Offline",
        victims::Activity::Idle => "Idle",
        victims::Activity::Busy => "Busy",
        victims::Activity::Draining => "Draining",
    };
    let mut shown =
        DaemonStatus { pod: member.view.name.clone(), state: state.to_owned(), ..DaemonStatus::default() };
    let Some(daemon) = &member.daemon else { return shown };
    shown.id = Some(daemon.id.to_string());
    shown.job = daemon.current_job.as_ref().map(|job| job.id.to_string());
    shown.version = Some(daemon.version.clone()).filter(|version| !version.is_empty());
    if let Some(extras) = &daemon.extras {
        shown.problem = Some(extras.problem.clone()).filter(|problem| !problem.is_empty());
        shown.version_skew = match (&extras.version_skew, &extras.api_version_skew) {
            (VersionSkew::Behind, _) | (_, VersionSkew::Behind) => Some("behind".to_owned()),
            (VersionSkew::Ahead, _) | (_, VersionSkew::Ahead) => Some("ahead".to_owned()),
            _ => None,
        };
    }
    if member.view.activity == victims::Activity::Offline {
        shown.last_seen = daemon.last_seen_at.map(|at| at.to_string());
    }
    shown
}
