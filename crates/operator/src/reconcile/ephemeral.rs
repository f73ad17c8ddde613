//! Daemons that run one job each: a Kubernetes Job for each daemon.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource as _, ResourceExt as _};

use super::daemons::Member;
use super::pass::{Pass, Reached};
use super::workload::{ignore_missing, unknown_daemons};
use crate::apply::apply;
use crate::failure::Failure;
use crate::names::TEMPLATE;
use crate::objects::{Pool, workload};
use crate::queue::Demand;
use crate::rules::conditions::{Finding, WORKLOAD};
use crate::rules::victims::{self, Activity, choose};

/// The label of a pod with the name of its Job.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

impl Pass<'_> {
    pub(super) async fn ephemeral(
        &mut self,
        pool: &Pool<'_>,
        members: Vec<Member>,
        wanted: i32,
        demand: Option<&Demand>,
        reached: &Reached,
    ) -> Result<(), Failure> {
        let jobs: Api<Job> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let found = jobs.list(&ListParams::default().labels(&self.names.selector())).await?;
        let hash = workload::template_hash(pool);
        let active: Vec<&Job> = found.items.iter().filter(|job| is_active(job)).collect();
        let is_current = |job: &Job| job.labels().get(TEMPLATE) == Some(&hash);
        let member = |job: &Job| {
            let name = job.name_any();
            members.iter().find(|member| member.pod.labels().get(JOB_NAME) == Some(&name))
        };
        // Busy daemons of an older template count, since each takes a job; the others are replaced.
        let views: Vec<victims::Pod> = active.iter().map(|job| view(job, member(job))).collect();
        let busy_old = active
            .iter()
            .zip(&views)
            .filter(|(job, view)| !is_current(job) && view.activity == Activity::Busy)
            .count();
        let current: Vec<victims::Pod> = active
            .iter()
            .zip(&views)
            .filter(|(job, _)| is_current(job))
            .map(|(_, view)| view.clone())
            .collect();
        let target = usize::try_from(wanted).unwrap_or(0).saturating_sub(busy_old);
        let mut leaving: Vec<String> = active
            .iter()
            .zip(&views)
            .filter(|(job, view)| !is_current(job) && view.activity != Activity::Busy)
            .map(|(_, view)| view.name.clone())
            .collect();
        leaving.extend(choose(&current, target).victims);
        let is_known = reached.access.token.is_none() || demand.is_some_and(|demand| demand.error.is_none());
        if !leaving.is_empty() && is_known {
            self.end_jobs(&jobs, &members, leaving, reached).await?;
            self.within(Duration::from_secs(2));
        }
        for _ in current.len()..target {
            let random = uuid::Uuid::new_v4().simple().to_string();
            apply(&self.ctx.kube, &self.uid, workload::job(pool, &random[..8])).await?;
            self.ctx.metrics.scaled();
        }
        // Before the first answer about the queue, marks of an earlier operator are right.
        if demand.is_some() || reached.access.token.is_none() {
            self.mark(&members, &[]).await?;
        }
        self.report_members(&members, demand);
        let ready = self.status.ready_replicas;
        let finding = match (wanted, ready) {
            (0, _) => Finding::yes(WORKLOAD, "ScaledToZero", "no daemons are needed"),
            (_, 0) => Finding::no(WORKLOAD, "NoReplicasReady", format!("0 of {wanted} pods are ready")),
            _ => {
                Finding::yes(WORKLOAD, "MinimumReplicasReady", format!("{ready} of {wanted} pods are ready"))
            }
        };
        self.find(finding);
        let updating = active
            .iter()
            .any(|job| !is_current(job))
            .then(|| "daemons of an older template finish their jobs".to_owned());
        self.find_daemons(unknown_daemons(demand, reached), updating);
        Ok(())
    }

    /// Lets daemons end that have no job. A connected one ends by itself when it is drained; the Job of another is deleted.
    async fn end_jobs(
        &self,
        jobs: &Api<Job>,
        members: &[Member],
        mut leaving: Vec<String>,
        reached: &Reached,
    ) -> Result<(), Failure> {
        self.drain_daemons(members, &mut leaving, reached).await?;
        for name in leaving {
            let member = members.iter().find(|member| member.view.name == name);
            // A pod that does not exist yet has the name of its Job here.
            let job = member.and_then(|member| member.pod.labels().get(JOB_NAME)).cloned().unwrap_or(name);
            jobs.delete(&job, &DeleteParams::background()).await.map(drop).or_else(ignore_missing)?;
        }
        Ok(())
    }
}

fn is_active(job: &Job) -> bool {
    let status = job.status.as_ref();
    let is_over =
        status.and_then(|status| status.conditions.as_ref()).into_iter().flatten().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed" | "SuccessCriteriaMet" | "FailureTarget")
                && condition.status == "True"
        });
    !is_over && job.meta().deletion_timestamp.is_none()
}

/// A Job as the choice of victims sees it; without a pod it has not begun.
fn view(job: &Job, member: Option<&Member>) -> victims::Pod {
    match member {
        Some(member) => member.view.clone(),
        None => victims::Pod {
            name: job.name_any(),
            is_running: false,
            is_ready: false,
            activity: Activity::Offline,
            created_at: job.meta().creation_timestamp.as_ref().map_or(0, |created| created.0.as_second()),
        },
    }
}
