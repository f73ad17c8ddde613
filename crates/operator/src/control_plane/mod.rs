//! One pass over a `CoderControlPlane`: a server in this cluster.

mod access;
mod objects;
mod official;
mod permissions;

use std::sync::Arc;
use std::time::Duration;

use coder_domain::secret::Secret;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, Secret as KubeSecret};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::access::{Access, entry};
use crate::apply::{FIELD_MANAGER, apply};
use crate::context::Context;
use crate::crd::provisioner_status::SecretReference;
use crate::crd::{CoderControlPlane, CoderControlPlaneStatus};
use crate::failure::{Failure, Retry};
use crate::names::{Names, PLANE_FINALIZER};
use crate::reconcile::problem;
use crate::rules::conditions::{self, Finding, READY};
use objects::Plane;

/// The condition of the token.
const ACCESS: &str = "OperatorAccessReady";
/// The condition of the pods.
const DEPLOYMENT: &str = "DeploymentReady";
/// The annotation of a token's Secret with the time from which it is replaced.
const RENEW_AFTER: &str = "coder.com/renew-after";

/// Why a pass could not even write its result.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the status or the finalizer")]
pub(crate) struct Error(#[source] kube::Error);

/// One pass.
///
/// # Errors
/// The status cannot be written.
pub(crate) async fn reconcile(plane: Arc<CoderControlPlane>, ctx: Arc<Context>) -> Result<Action, Error> {
    // What it made in its namespace goes by garbage collection, and the volume stays.
    let has = |wanted: &str| plane.finalizers().iter().any(|finalizer| finalizer == wanted);
    if plane.meta().deletion_timestamp.is_some() {
        if has(PLANE_FINALIZER) || has(official::FINALIZER) {
            permissions::clean(&ctx, &plane).await?;
        }
        return Ok(Action::await_change());
    }
    if !has(PLANE_FINALIZER) && !plane.spec.rbac.workspace_namespaces.is_empty() {
        let mut finalizers = plane.finalizers().to_vec();
        finalizers.push(PLANE_FINALIZER.to_owned());
        write_finalizers(&ctx, &plane, &finalizers).await?;
        return Ok(Action::requeue(Duration::from_secs(300)));
    }
    let mut pass = ControlPlanePass {
        ctx: &ctx,
        plane: &plane,
        names: Names::of_control_plane(&plane.namespace().unwrap_or_default(), &plane.name_any()),
        status: plane.status.clone().unwrap_or_default(),
        next: Duration::from_secs(300),
    };
    let outcome = pass.steps().await;
    if let Err(failure) = outcome {
        pass.next = match failure.retry {
            Retry::After(delay) => delay,
            Retry::Backoff => Duration::from_secs(10),
        };
        pass.find(failure.finding).await;
    }
    pass.conclude().await.map_err(Error)?;
    Ok(Action::requeue(pass.next))
}

/// What to do after an error of [`reconcile`].
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it with values")]
pub(crate) fn on_error(plane: Arc<CoderControlPlane>, error: &Error, _: Arc<Context>) -> Action {
    tracing::warn!(%error, cause = %error.0, namespace = plane.namespace(), control_plane = plane.name_any(), "the pass failed");
    Action::requeue(Duration::from_secs(10))
}

/// The version in the patch makes the API server refuse it if somebody else changed the list meanwhile.
async fn write_finalizers(
    ctx: &Context,
    plane: &CoderControlPlane,
    finalizers: &[String],
) -> Result<(), Error> {
    let planes: Api<CoderControlPlane> =
        Api::namespaced(ctx.kube.clone(), &plane.namespace().unwrap_or_default());
    let metadata = json!({"finalizers": finalizers, "resourceVersion": plane.resource_version()});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match planes.patch(&plane.name_any(), &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error(error)),
    }
}

struct ControlPlanePass<'a> {
    ctx: &'a Context,
    plane: &'a CoderControlPlane,
    names: Names,
    status: CoderControlPlaneStatus,
    next: Duration,
}

impl ControlPlanePass<'_> {
    async fn find(&mut self, finding: Finding) {
        let generation = self.plane.meta().generation;
        let is_news =
            conditions::set(&mut self.status.conditions, &finding, generation, self.ctx.clock.now());
        if is_news && !finding.is_true {
            self.ctx.event(&self.plane.object_ref(&()), true, finding.reason, &finding.message).await;
        }
    }

    async fn steps(&mut self) -> Result<(), Failure> {
        let owner = self.plane.controller_owner_ref(&()).unwrap_or_default();
        let names = self.names.clone();
        let plane = Plane { names: &names, spec: &self.plane.spec, owner: &owner };
        let kube = &self.ctx.kube;
        let uid = self.plane.uid().unwrap_or_default();
        if let Some(account) = objects::service_account(&plane) {
            apply(kube, &uid, account).await?;
        }
        self.permissions(&plane, &uid).await?;
        if let Some(claim) = objects::volume_claim(&plane) {
            apply(kube, &uid, claim).await?;
        }
        apply(kube, &uid, objects::service(&plane)).await?;
        let deployment = apply(kube, &uid, objects::deployment(&plane)).await?;
        self.status.url = Some(plane.url());
        let ready = deployment.data.pointer("/status/readyReplicas").and_then(Value::as_i64).unwrap_or(0);
        self.status.ready_replicas = i32::try_from(ready).unwrap_or(i32::MAX);
        let wanted = self.plane.spec.replicas;
        let mut message = format!("{ready} of {wanted} servers are ready");
        if ready < i64::from(wanted) {
            // The Deployment does not change when a pod gets a problem.
            self.next = self.next.min(Duration::from_secs(10));
            if let Some(problem) = self.problem().await? {
                message.push_str(&format!("; {problem}"));
            }
        }
        if ready == 0 {
            self.find(Finding::no(DEPLOYMENT, "NoReplicasReady", message)).await;
            return Ok(());
        }
        self.find(Finding::yes(DEPLOYMENT, "MinimumReplicasReady", message)).await;
        self.access(&plane, &uid).await
    }

    /// Why one of the pods does not run.
    async fn problem(&self) -> Result<Option<String>, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let found = pods.list(&ListParams::default().labels(&self.names.selector())).await?;
        Ok(found.items.iter().find_map(problem))
    }

    /// Publishes a token, unless that is turned off.
    async fn access(&mut self, plane: &Plane<'_>, uid: &str) -> Result<(), Failure> {
        let wanted = &self.plane.spec.operator_access;
        if wanted.disabled {
            self.status.operator_access_ready = false;
            self.status.operator_token_secret_ref = None;
            self.find(Finding::no(ACCESS, "Disabled", "spec.operatorAccess.disabled is set")).await;
            return Ok(());
        }
        let given = wanted.generated_token_secret_name.clone().filter(|name| !name.is_empty());
        let name = given.unwrap_or_else(|| self.names.secret.clone());
        if self.is_token_current(&name).await? {
            return self.publish(&name).await;
        }
        let server = self.server(plane)?;
        let password = self.password(plane, uid).await?;
        let present = entry(&self.ctx.kube, &self.names.namespace, &name, "token").await?;
        let present =
            present.and_then(|token| String::from_utf8(token).ok()).filter(|token| !token.is_empty());
        match access::token(&server, present.map(Secret::new), &password).await {
            Ok(access::Outcome::Token(token, lifetime)) => {
                let entries = [("token", token.expose())].into();
                let mut secret = objects::secret(&name, plane.names, plane.owner, &entries);
                // Half of its life is left for a server that does not answer.
                let renew = self.ctx.clock.now()
                    + SignedDuration::try_from(lifetime / 2).unwrap_or(SignedDuration::from_hours(24));
                secret["metadata"]["annotations"] = json!({RENEW_AFTER: renew.to_string()});
                apply(&self.ctx.kube, uid, secret).await?;
                self.publish(&name).await
            }
            Ok(access::Outcome::NeedsToken) => {
                let message = format!(
                    "the server has users already: put a token of an owner into the entry \"token\" of the Secret {name:?}"
                );
                Err(Failure::new(
                    Finding::no(ACCESS, "TokenNeeded", message),
                    Retry::After(Duration::from_secs(60)),
                ))
            }
            Err(error) => {
                let finding =
                    Finding::no(ACCESS, "ServerUnavailable", format!("cannot make a token: {error}"));
                Err(Failure::new(finding, Retry::Backoff))
            }
        }
    }

    async fn publish(&mut self, name: &str) -> Result<(), Failure> {
        self.status.operator_access_ready = true;
        self.status.operator_token_secret_ref =
            Some(SecretReference { name: name.to_owned(), key: "token".to_owned() });
        self.find(Finding::yes(ACCESS, "OperatorAccessReady", "the token is there")).await;
        Ok(())
    }

    /// Whether there is a token that need not be replaced. One that was put there by hand never is.
    async fn is_token_current(&self, name: &str) -> Result<bool, Failure> {
        let secrets: Api<KubeSecret> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let Some(secret) = secrets.get_opt(name).await? else { return Ok(false) };
        let renew = secret.annotations().get(RENEW_AFTER).and_then(|text| text.parse().ok());
        let has_token =
            secret.data.as_ref().and_then(|data| data.get("token")).is_some_and(|token| !token.0.is_empty());
        Ok(has_token && renew.is_none_or(|renew: jiff::Timestamp| self.ctx.clock.now() < renew))
    }

    fn server(&self, plane: &Plane<'_>) -> Result<coder_api::client::Client, Failure> {
        let access = Access {
            url: plane.url(),
            token: None,
            ca: None,
            proxy: Default::default(),
            control_plane: None,
            image: String::new(),
            licence: None,
        };
        Ok(self.ctx.clients.get(&access)?)
    }

    /// The password of the first user, which people read from the same Secret.
    async fn password(&self, plane: &Plane<'_>, uid: &str) -> Result<Secret, Failure> {
        let name = self.names.initial_admin();
        let kept = entry(&self.ctx.kube, &self.names.namespace, &name, "password").await?;
        if let Some(kept) = kept.and_then(|kept| String::from_utf8(kept).ok()) {
            return Ok(Secret::new(kept));
        }
        let password = access::password();
        let entries =
            [("username", access::USERNAME), ("email", access::EMAIL), ("password", password.expose())]
                .into();
        apply(&self.ctx.kube, uid, objects::secret(&name, plane.names, plane.owner, &entries)).await?;
        Ok(password)
    }

    async fn conclude(&mut self) -> Result<(), kube::Error> {
        let is_ready = |kind: &str| {
            self.status
                .conditions
                .iter()
                .any(|condition| condition.type_ == kind && condition.status == "True")
        };
        let summary = if is_ready(DEPLOYMENT) {
            Finding::yes(READY, "Available", "the server answers")
        } else {
            let mut conditions = self.status.conditions.iter();
            let cause = conditions.find(|condition| condition.type_ == DEPLOYMENT);
            let message = cause.map_or("no server is ready", |cause| &cause.message);
            Finding::no(READY, "Pending", message)
        };
        self.status.phase = Some(if summary.is_true { "Ready" } else { "Pending" }.to_owned());
        self.find(summary).await;
        self.status.observed_generation = self.plane.meta().generation;
        if self.plane.status.as_ref() == Some(&self.status) {
            return Ok(());
        }
        self.write_status().await
    }

    async fn write_status(&self) -> Result<(), kube::Error> {
        let patch = json!({
            "apiVersion": "coder.com/v1alpha1",
            "kind": "CoderControlPlane",
            "metadata": {"name": self.plane.name_any()},
            "status": self.status,
        });
        let planes: Api<CoderControlPlane> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        match planes.patch_status(&self.plane.name_any(), &parameters, &Patch::Apply(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }
}
