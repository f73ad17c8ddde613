//! Removes what a resource made under names that it does not use any more.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::pass::{ActiveKey, Pass};
use crate::failure::Failure;
use crate::rules::conditions::PROGRESSING;

impl Pass<'_> {
    /// Former pods still use a former Secret or account, so nothing is removed while pods are being replaced.
    pub(super) async fn prune(&mut self, key: &ActiveKey) -> Result<(), Failure> {
        let is_updating = self
            .status
            .conditions
            .iter()
            .any(|condition| condition.type_ == PROGRESSING && condition.status == "True");
        if is_updating {
            return Ok(());
        }
        let account = self
            .resource
            .spec
            .service_account
            .name
            .as_deref()
            .unwrap_or(&self.names.service_account)
            .to_owned();
        let account = if self.resource.spec.service_account.disable_create { String::new() } else { account };
        self.prune_others::<Secret>(&key.secret).await?;
        self.prune_others::<ServiceAccount>(&account).await?;
        self.prune_others::<Deployment>(&self.names.workload.clone()).await
    }

    async fn prune_others<K>(&self, keep: &str) -> Result<(), Failure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let found = api.list_metadata(&ListParams::default().labels(&self.names.selector())).await?;
        for object in found.items.iter().filter(|object| object.name_any() != keep) {
            if object.owner_references().iter().any(|owner| owner.uid == self.uid) {
                self.remove::<K>(&self.names.namespace, &object.name_any()).await?;
            }
        }
        Ok(())
    }
}
