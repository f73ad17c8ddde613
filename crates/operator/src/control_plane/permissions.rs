//! What templates may do, in the namespace of a control plane and in others.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{Resource as _, ResourceExt as _};
use std::collections::BTreeSet;
use std::time::Duration;

use super::objects::Plane;
use super::{ControlPlanePass, Error, official, write_finalizers};
use crate::apply::apply;
use crate::consent::{self, Account};
use crate::context::Context;
use crate::crd::CoderControlPlane;
use crate::failure::Failure;
use crate::names::{Names, PLANE_FINALIZER};
use crate::objects::{metadata, rbac};
use crate::reconcile::remove;

/// Removes what is in other namespaces, as far as possible.
pub(super) async fn clean(ctx: &Context, plane: &CoderControlPlane) -> Result<(), Error> {
    let names = Names::of_control_plane(&plane.namespace().unwrap_or_default(), &plane.name_any());
    let uid = plane.uid().unwrap_or_default();
    let noted = plane.status.iter().flat_map(|status| &status.workspace_namespaces);
    // The official operator notes nothing.
    let listed = plane.spec.rbac.workspace_namespaces.iter().map(|namespace| &namespace.name);
    for namespace in noted.chain(listed).collect::<BTreeSet<_>>() {
        if let Err(error) = revoke(ctx, &names, namespace, &uid).await {
            let note = format!("the permissions in namespace {namespace:?} stay: {error}");
            ctx.event(&plane.object_ref(&()), true, "PermissionsLeft", &note).await;
        }
    }
    let is_other = |finalizer: &&String| {
        finalizer.as_str() != PLANE_FINALIZER && finalizer.as_str() != official::FINALIZER
    };
    let left: Vec<String> = plane.finalizers().iter().filter(is_other).cloned().collect();
    write_finalizers(ctx, plane, &left).await
}

async fn revoke(ctx: &Context, names: &Names, namespace: &str, uid: &str) -> Result<(), kube::Error> {
    remove::<RoleBinding>(&ctx.kube, namespace, &names.foreign_role(), uid).await?;
    remove::<Role>(&ctx.kube, namespace, &names.foreign_role(), uid).await?;
    official::remove(&ctx.kube, names, namespace, uid).await
}

impl ControlPlanePass<'_> {
    pub(super) async fn permissions(&mut self, plane: &Plane<'_>, uid: &str) -> Result<(), Failure> {
        let (spec, kube, names) = (&self.plane.spec.rbac, &self.ctx.kube, plane.names);
        let about = metadata(&names.role, names, plane.owner);
        match rbac::own(&about, spec, names, plane.service_account()) {
            Some(pair) => {
                for object in pair {
                    apply(kube, uid, object).await?;
                }
            }
            None => {
                remove::<RoleBinding>(kube, &names.namespace, &names.role, uid).await?;
                remove::<Role>(kube, &names.namespace, &names.role, uid).await?;
            }
        }
        let account = Account { namespace: &names.namespace, name: plane.service_account() };
        let answers = consent::ask(kube, &account, spec).await?;
        let willing = answers.willing.iter().map(|namespace| namespace.name.as_str());
        let wanted: Vec<String> = willing.chain(answers.kept.iter().copied()).map(str::to_owned).collect();
        let former: Vec<String> =
            self.status.workspace_namespaces.iter().filter(|name| !wanted.contains(name)).cloned().collect();
        if wanted.iter().any(|name| !self.status.workspace_namespaces.contains(name)) {
            // Noted before the objects are made, so that they are found again.
            self.status.workspace_namespaces = former.iter().chain(&wanted).cloned().collect();
            self.write_status().await?;
        }
        for namespace in &answers.willing {
            match rbac::foreign(spec, namespace, names, plane.service_account(), uid) {
                Some(pair) => {
                    for object in pair {
                        apply(kube, uid, object).await?;
                    }
                }
                None => revoke(self.ctx, names, &namespace.name, uid).await?,
            }
        }
        for namespace in former {
            revoke(self.ctx, names, &namespace, uid).await?;
        }
        self.replace_official(names, &answers, uid).await?;
        self.status.workspace_namespaces = wanted;
        let granted = answers.granted();
        if answers.refusal.is_some() {
            self.next = self.next.min(Duration::from_secs(60));
        }
        self.find(answers.refusal.unwrap_or(granted)).await;
        Ok(())
    }

    /// Removes what the official operator made where there is ours now. Its finalizer stays until nothing of it is left.
    async fn replace_official(
        &mut self,
        names: &Names,
        answers: &consent::Answers<'_>,
        uid: &str,
    ) -> Result<(), Failure> {
        let finalizers = self.plane.finalizers();
        if !finalizers.iter().any(|finalizer| finalizer == official::FINALIZER) {
            return Ok(());
        }
        let willing = answers.willing.iter().map(|namespace| namespace.name.as_str());
        for namespace in willing.chain([names.namespace.as_str()]) {
            official::remove(&self.ctx.kube, names, namespace, uid).await?;
        }
        if !answers.kept.is_empty() {
            return Ok(());
        }
        let left: Vec<String> =
            finalizers.iter().filter(|finalizer| *finalizer != official::FINALIZER).cloned().collect();
        match write_finalizers(self.ctx, self.plane, &left).await {
            Ok(()) => Ok(()),
            // The resource was written meanwhile, for example by this pass.
            Err(Error(kube::Error::Api(status))) if status.code == 409 => {
                self.next = self.next.min(Duration::from_secs(5));
                Ok(())
            }
            Err(Error(error)) => Err(error.into()),
        }
    }
}
