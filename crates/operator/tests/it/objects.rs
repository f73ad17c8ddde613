//! What a pool makes, and that it is kept as it is described.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::gateway::Call;
use crate::world::World;

#[tokio::test]
async fn a_pool_gets_its_objects_and_its_daemons_join_with_the_tags_of_the_key() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"tags": {"os": "linux"}, "replicas": 2})).await;
    let status = world.until_connected("linux", 2).await;
    let uid = world.uid("linux").await;
    for kind in [
        "ControlPlaneReady",
        "OperatorAccessReady",
        "ExternalProvisionersEntitled",
        "ProvisionerKeyReady",
        "ProvisionerKeySecretReady",
        "DeploymentReady",
        "Ready",
    ] {
        world.until_condition("linux", kind, "True", &status_reason(&world, kind).await).await;
    }
    let keys = world.keys().await;
    assert_eq!(keys.len(), 1);
    assert!(keys[0].name.starts_with(&format!("{}-linux-", world.namespace)), "{}", keys[0].name);
    assert_eq!(keys[0].tags.get("os"), Some("linux"));
    let secret = world.secrets().get("linux-provisioner-key").await.unwrap();
    assert_eq!(secret.owner_references()[0].uid, uid);
    assert!(secret.data.unwrap().contains_key("key"));
    let deployment = world.deployment("provisioner-linux").await.unwrap();
    assert_eq!(deployment.owner_references()[0].uid, uid);
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some("linux-provisioner"));
    assert_eq!(pod.termination_grace_period_seconds, Some(600));
    let container = &pod.containers[0];
    assert_eq!(container.command.as_ref().unwrap(), &["coder"]);
    assert_eq!(container.args.as_ref().unwrap(), &["provisioner", "start"]);
    let names: Vec<_> = container.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names[..3], ["CODER_URL", "CODER_PROVISIONER_DAEMON_KEY", "CODER_PROVISIONER_DAEMON_NAME"]);
    assert!(!names.contains(&"CODER_ORGANIZATION"));
    let roles: Api<Role> = Api::namespaced(world.admin.clone(), &world.namespace);
    let rules = roles.get("provisioner-linux").await.unwrap().rules.unwrap();
    assert_eq!(rules[0].resources.as_ref().unwrap(), &["pods", "persistentvolumeclaims"]);
    let mut names: Vec<_> = status.daemons.iter().map(|daemon| daemon.pod.clone()).collect();
    let mut pods: Vec<_> = world.pods().await.iter().map(kube::ResourceExt::name_any).collect();
    names.sort();
    pods.sort();
    assert_eq!(names, pods, "a daemon has the name of its pod");
    assert!(world.events("linux").await.contains(&"RotatingKey".to_owned()));
    world.stop().await;
}

/// The sample of the official operator has this tag. It says what a server adds to every key and to every job.
#[tokio::test]
async fn a_pool_with_only_the_scope_of_its_organization_takes_jobs_without_tags() {
    let Some(world) = World::start().await else { return };
    let spec = json!({"tags": {"scope": "organization"}, "autoscaling": {"maxReplicas": 2}});
    world.pool("linux", spec).await;
    world.until_condition("linux", "DeploymentReady", "True", "ScaledToZero").await;
    world.queue(1, &[]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    assert_eq!(world.status("linux").await.desired_replicas, 1);
    world.jobs.finish(1);
    world.eventually("the job ends", async || world.jobs.finished() == 1).await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

async fn status_reason(world: &World, kind: &str) -> String {
    let status = world
        .until("linux", kind, |status| {
            status.conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
        })
        .await;
    status.conditions.iter().find(|condition| condition.type_ == kind).unwrap().reason.clone()
}

#[tokio::test]
async fn edited_and_deleted_objects_are_repaired() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    let (kube, namespace) = (world.admin.clone(), world.namespace.as_str());
    let roles: Api<Role> = Api::namespaced(kube.clone(), namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(kube.clone(), namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(kube.clone(), namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(kube.clone(), namespace);
    let now = DeleteParams::default();
    roles.delete("provisioner-linux", &now).await.unwrap();
    bindings.delete("provisioner-linux", &now).await.unwrap();
    accounts.delete("linux-provisioner", &now).await.unwrap();
    budgets.delete("provisioner-linux", &now).await.unwrap();
    world.deployments().delete("provisioner-linux", &now).await.unwrap();
    world
        .eventually("all objects are back", async || {
            roles.get_opt("provisioner-linux").await.unwrap().is_some()
                && bindings.get_opt("provisioner-linux").await.unwrap().is_some()
                && accounts.get_opt("linux-provisioner").await.unwrap().is_some()
                && budgets.get_opt("provisioner-linux").await.unwrap().is_some()
                && world.deployment("provisioner-linux").await.is_some()
        })
        .await;
    let edit =
        Patch::Merge(json!({"spec": {"replicas": 5, "template": {"spec": {"serviceAccountName": "other"}}}}));
    world.deployments().patch("provisioner-linux", &PatchParams::default(), &edit).await.unwrap();
    let edit = Patch::Merge(json!({"rules": []}));
    roles.patch("provisioner-linux", &PatchParams::default(), &edit).await.unwrap();
    let edit = Patch::Merge(json!({"subjects": []}));
    bindings.patch("provisioner-linux", &PatchParams::default(), &edit).await.unwrap();
    let edit = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/name": "other"}}}));
    accounts.patch("linux-provisioner", &PatchParams::default(), &edit).await.unwrap();
    world
        .eventually("the edits are undone", async || {
            let spec = world
                .deployment("provisioner-linux")
                .await
                .and_then(|deployment: Deployment| deployment.spec);
            let rules = roles.get("provisioner-linux").await.unwrap().rules.unwrap_or_default();
            let binding = bindings.get("provisioner-linux").await.unwrap();
            let subjects = binding.subjects.unwrap_or_default();
            let account = accounts.get("linux-provisioner").await.unwrap();
            spec.is_some_and(|spec| {
                spec.replicas == Some(1)
                    && spec.template.spec.unwrap().service_account_name.as_deref()
                        == Some("linux-provisioner")
            }) && !rules.is_empty()
                && subjects.iter().any(|subject| subject.name == "linux-provisioner")
                && account.labels()["app.kubernetes.io/name"] == "coder-provisioner"
        })
        .await;
    world.stop().await;
}

#[tokio::test]
async fn an_unchanged_pool_is_not_written_and_its_server_not_asked() {
    let Some(world) = World::start().await else { return };
    let gateway = world.gateway().await;
    world.pool_behind(&gateway, "linux", json!({})).await;
    world.until_connected("linux", 1).await;
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    let versions = async || {
        let pool = world.pools().get("linux").await.unwrap().resource_version();
        let deployment = world.deployment("provisioner-linux").await.unwrap().resource_version();
        let secret = world.secrets().get("linux-provisioner-key").await.unwrap().resource_version();
        (pool, deployment, secret)
    };
    // Settled: the same for a second.
    let mut before = versions().await;
    let mut since = std::time::Instant::now();
    world
        .eventually("nothing changes any more", async || {
            let now = versions().await;
            if now != before {
                (before, since) = (now, std::time::Instant::now());
            }
            since.elapsed() > std::time::Duration::from_secs(1)
        })
        .await;
    // A label of somebody else starts a pass, which has nothing to write.
    gateway.forget();
    let passes = world.passes().await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    world.secrets().patch("linux-provisioner-key", &PatchParams::default(), &label).await.unwrap();
    let touched = versions().await;
    world.eventually("the pass ends", async || world.passes().await > passes).await;
    assert_eq!(versions().await, touched);
    assert_eq!((&before.0, &before.1), (&touched.0, &touched.1));
    // Only the queue is read, for all pools of the server together.
    let is_of_queue =
        |call: &Call| call.path.contains("/provisionerjobs") || call.path.contains("/provisionerdaemons");
    let others: Vec<_> = gateway.calls("").into_iter().filter(|call| !is_of_queue(call)).collect();
    assert!(others.is_empty(), "{others:?}");
    world.stop().await;
}

#[tokio::test]
async fn other_namespaces_get_permissions_and_are_cleaned() {
    let Some(world) = World::start().await else { return };
    let other = world.cluster.namespace().await;
    world.accept_workspaces(&other, &format!("{}, somebody-else", world.namespace)).await;
    let roles: Api<Role> = Api::namespaced(world.admin.clone(), &other);
    let foreign = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {
        "name": "foreign", "namespace": other,
        "labels": {"app.kubernetes.io/instance": "linux", "app.kubernetes.io/managed-by": "coder-k8s", "app.kubernetes.io/name": "coder-provisioner"},
    }, "rules": []});
    coder_testkit::kubernetes::apply(&world.admin, foreign).await;
    world
        .pool("linux", json!({"rbac": {"workspaceNamespaces": [{"name": other}, {"name": "not-there"}]}}))
        .await;
    world.until_condition("linux", "WorkspacePermissionsReady", "False", "Rejected").await;
    let count = async || roles.list(&Default::default()).await.unwrap().items.len();
    assert_eq!(count().await, 2);
    world.patch_pool("linux", json!({"spec": {"rbac": {"workspaceNamespaces": null}}})).await;
    world.eventually("the role is removed", async || count().await == 1).await;
    world.patch_pool("linux", json!({"spec": {"rbac": {"workspaceNamespaces": [{"name": other}]}}})).await;
    world.eventually("the role is made again", async || count().await == 2).await;
    world.until_condition("linux", "WorkspacePermissionsReady", "True", "Granted").await;
    world.delete_pool("linux").await;
    world.eventually("the role is removed with the pool", async || count().await == 1).await;
    assert!(roles.get_opt("foreign").await.unwrap().is_some());
    world.stop().await;
}

#[tokio::test]
async fn permissions_that_the_operator_lacks_are_named() {
    let Some(world) = World::start().await else { return };
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}]);
    world.pool("linux", json!({"rbac": {"extraRules": rules}})).await;
    let status = world.until_condition("linux", "WorkspacePermissionsReady", "False", "Forbidden").await;
    let condition =
        status.conditions.iter().find(|condition| condition.type_ == "WorkspacePermissionsReady").unwrap();
    assert!(condition.message.contains("nodes"), "{}", condition.message);
    world.until("linux", "the daemon runs nevertheless", |status| status.connected == 1).await;
    world.patch_pool("linux", json!({"spec": {"rbac": {"workspacePerms": false, "extraRules": null}}})).await;
    world.until_condition("linux", "WorkspacePermissionsReady", "True", "Granted").await;
    let roles: Api<Role> = Api::namespaced(world.admin.clone(), &world.namespace);
    assert!(roles.get_opt("provisioner-linux").await.unwrap().is_none(), "off means no objects");
    world.stop().await;
}
