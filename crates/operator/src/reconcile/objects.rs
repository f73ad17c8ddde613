//! What stands beside the pods: service account, permissions, budget, network policy.

use std::collections::BTreeSet;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::DeleteParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::pass::Pass;
use crate::apply::{self, apply};
use crate::consent::{self, Account};
use crate::failure::{Failure, Retry};
use crate::names::OWNER_UID;
use crate::objects::{Pool, protection, rbac};
use crate::rules::conditions::{Finding, RBAC};

impl Pass<'_> {
    pub(super) async fn supporting_objects(&mut self, pool: &Pool<'_>) -> Result<(), Failure> {
        if let Some(account) = rbac::service_account(pool) {
            apply(&self.ctx.kube, &self.uid, account).await?;
        }
        self.permissions(pool).await?;
        let kube = &self.ctx.kube;
        let namespace = &self.names.namespace;
        match protection::disruption_budget(pool) {
            Some(budget) => drop(apply(kube, &self.uid, budget).await?),
            None => self.remove::<PodDisruptionBudget>(namespace, &self.names.workload).await?,
        }
        match protection::network_policy(pool) {
            Some(policy) => drop(apply(kube, &self.uid, policy).await?),
            None => self.remove::<NetworkPolicy>(namespace, &self.names.workload).await?,
        }
        Ok(())
    }

    /// What templates may do. A refusal does not keep the daemons from running.
    async fn permissions(&mut self, pool: &Pool<'_>) -> Result<(), Failure> {
        let spec = &self.resource.spec.rbac;
        let metadata = crate::objects::metadata(&self.names.role, &self.names, &self.owner);
        let mut problems = Vec::new();
        match rbac::own(&metadata, spec, &self.names, pool.service_account()) {
            Some(pair) => problems.extend(self.grant(pair).await?),
            None => {
                self.remove::<RoleBinding>(&self.names.namespace, &self.names.role).await?;
                self.remove::<Role>(&self.names.namespace, &self.names.role).await?;
            }
        }
        let account = Account { namespace: &self.names.namespace, name: pool.service_account() };
        let answers = consent::ask(&self.ctx.kube, &account, spec).await?;
        let granted = answers.granted();
        problems.extend(answers.refusal);
        // Noted before the objects are made, so that they are found again.
        let wanted: BTreeSet<String> =
            answers.willing.iter().map(|namespace| namespace.name.clone()).collect();
        let known: BTreeSet<String> = self.status.workspace_namespaces.iter().cloned().collect();
        if !wanted.is_subset(&known) {
            self.status.workspace_namespaces = known.union(&wanted).cloned().collect();
            self.save_keys().await?;
        }
        for namespace in answers.willing {
            match rbac::foreign(spec, namespace, &self.names, pool.service_account(), &self.uid) {
                Some(pair) => problems.extend(self.grant(pair).await?),
                None => self.revoke(&namespace.name).await?,
            }
        }
        for namespace in known.difference(&wanted) {
            self.revoke(namespace).await?;
        }
        self.status.workspace_namespaces = wanted.into_iter().collect();
        if let Some(problem) = problems.into_iter().next() {
            self.find(problem);
            self.within(std::time::Duration::from_secs(60));
        } else {
            self.find(granted);
        }
        Ok(())
    }

    /// Makes Role and RoleBinding; returns what was refused permanently.
    async fn grant(&self, pair: [Value; 2]) -> Result<Option<Finding>, Failure> {
        for object in pair {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            match apply(&self.ctx.kube, &self.uid, object).await {
                Ok(_) => {}
                Err(error) if apply::is_forbidden(&error) => {
                    let message = format!("in namespace {namespace:?}: {}", apply::message(&error));
                    return Ok(Some(Finding::no(RBAC, "Forbidden", message)));
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    if failure.retry == Retry::Backoff {
                        return Err(failure);
                    }
                    let message = format!("in namespace {namespace:?}: {}", failure.finding.message);
                    let reason = if failure.finding.reason == "Conflict" { "Conflict" } else { "Rejected" };
                    return Ok(Some(Finding::no(RBAC, reason, message)));
                }
            }
        }
        Ok(None)
    }

    /// Removes Role and RoleBinding from another namespace.
    async fn revoke(&self, namespace: &str) -> Result<(), Failure> {
        let name = self.names.foreign_role();
        self.remove::<RoleBinding>(namespace, &name).await?;
        self.remove::<Role>(namespace, &name).await
    }

    /// Deletes an object if it is there and belongs to the resource.
    pub(super) async fn remove<K>(&self, namespace: &str, name: &str) -> Result<(), Failure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        Ok(remove::<K>(&self.ctx.kube, namespace, name, &self.uid).await?)
    }
}

/// Deletes an object if it is there and belongs to the resource with this UID.
pub(crate) async fn remove<K>(
    kube: &kube::Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(kube.clone(), namespace);
    let Some(found) = api.get_opt(name).await? else { return Ok(()) };
    let is_owned = found.owner_references().iter().any(|owner| owner.uid == uid);
    let is_ours = is_owned || found.annotations().get(OWNER_UID).is_some_and(|owner| owner == uid);
    if !is_ours || found.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    delete_if_there(&api, name).await
}

/// Deletes an object. One that is gone already is what was wanted.
pub(crate) async fn delete_if_there<K>(api: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
