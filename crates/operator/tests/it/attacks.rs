//! What somebody who may make pools in one namespace tries against others, and against the rules of the own one.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::world::World;
use coder_testkit::kubernetes::apply;

#[tokio::test]
async fn a_namespace_that_did_not_agree_gets_no_permissions() {
    let Some(world) = World::start().await else { return };
    let other = world.cluster.namespace().await;
    let roles: Api<Role> = Api::namespaced(world.admin.clone(), &other);
    let bindings: Api<RoleBinding> = Api::namespaced(world.admin.clone(), &other);
    let count = async || {
        let all = ListParams::default();
        roles.list(&all).await.unwrap().items.len() + bindings.list(&all).await.unwrap().items.len()
    };
    world.accept_workspaces(&other, "somebody-else").await;
    // The operator may read Secrets everywhere, so the API server would let it grant this.
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let rbac =
        json!({"workspaceNamespaces": [{"name": other, "extraRules": rules}, {"name": "kube-system"}]});
    world.pool("linux", json!({"rbac": rbac})).await;
    let status = world.until_condition("linux", "WorkspacePermissionsReady", "False", "NotAllowed").await;
    let summary =
        status.conditions.iter().find(|condition| condition.type_ == "WorkspacePermissionsReady").unwrap();
    for command in [
        format!(
            "annotate namespace {other} coder.com/workspaces-from=somebody-else,{} --overwrite",
            world.namespace
        ),
        format!("annotate namespace kube-system coder.com/workspaces-from={}", world.namespace),
    ] {
        assert!(summary.message.contains(&command), "{}", summary.message);
    }
    world.until("linux", "the daemon runs nevertheless", |status| status.connected == 1).await;
    assert_eq!(count().await, 0);
    let system: Api<RoleBinding> = Api::namespaced(world.admin.clone(), "kube-system");
    let ours =
        system.list(&ListParams::default().labels("app.kubernetes.io/managed-by=coder-k8s")).await.unwrap();
    assert!(ours.items.is_empty(), "{:?}", ours.items);

    // It agrees, and then not any more.
    world.patch_pool("linux", json!({"spec": {"rbac": {"workspaceNamespaces": [{"name": other}]}}})).await;
    world.accept_workspaces(&other, &world.namespace).await;
    world.patch_pool("linux", json!({"metadata": {"labels": {"look": "1"}}})).await;
    world.eventually("the permissions are made", async || count().await == 2).await;
    world.accept_workspaces(&other, "").await;
    world.patch_pool("linux", json!({"metadata": {"labels": {"look": "2"}}})).await;
    world.eventually("the permissions are removed", async || count().await == 0).await;
    world.until_condition("linux", "WorkspacePermissionsReady", "False", "NotAllowed").await;
    world.stop().await;
}

#[tokio::test]
async fn a_pool_takes_nothing_that_belongs_to_another() {
    let Some(world) = World::start().await else { return };
    world.pool("owner", json!({"tags": {"os": "linux"}})).await;
    world.until_connected("owner", 1).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cloud", "namespace": world.namespace}});
    apply(&world.admin, account).await;
    let before = world.secrets().get("owner-provisioner-key").await.unwrap();
    let keys = world.keys().await;
    // The Secret of another pool.
    world.pool("thief", json!({"key": {"secretName": "owner-provisioner-key"}})).await;
    world.until_condition("thief", "ProvisionerKeySecretReady", "False", "SecretConflict").await;
    // Service accounts of somebody else and of another pool: neither is annotated, owned or bound.
    for name in ["cloud", "owner-provisioner"] {
        let spec = json!({"serviceAccount": {"name": name, "annotations": {"role": "admin"}}, "replicas": 0});
        world.pool("thief", spec).await;
        world.until_condition("thief", "WorkspacePermissionsReady", "False", "Conflict").await;
        let accounts: Api<ServiceAccount> = Api::namespaced(world.admin.clone(), &world.namespace);
        let account = accounts.get(name).await.unwrap();
        assert!(!account.annotations().contains_key("role"), "{name}");
    }
    world.delete_pool("thief").await;
    world.until_gone("thief").await;
    let after = world.secrets().get("owner-provisioner-key").await.unwrap();
    assert_eq!(
        (before.data, before.metadata.owner_references),
        (after.data, after.metadata.owner_references)
    );
    assert_eq!(world.keys().await, keys, "the other pool keeps its key");
    assert_eq!(world.status("owner").await.connected, 1);
    world.stop().await;
}

#[tokio::test]
async fn pods_of_a_pool_meet_the_restricted_standard_and_an_overlay_cannot_leave_it() {
    let Some(world) = World::start().await else { return };
    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    namespaces.patch(&world.namespace, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    let privileged = json!({"spec": {
        "hostPID": true,
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        "containers": [{"name": "provisioner", "securityContext": {"privileged": true, "allowPrivilegeEscalation": true}}],
    }});
    world.patch_pool("linux", json!({"spec": {"template": privileged}})).await;
    world
        .until("linux", "the refusal is named", |status| {
            let progress = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
            progress
                .is_some_and(|progress| progress.status == "True" && progress.message.contains("PodSecurity"))
        })
        .await;
    assert_eq!(world.status("linux").await.connected, 1, "the former pod stays");
    // An overlay cannot take the pods out of the pool, and not away from its key.
    let lost = json!({"metadata": {"labels": {"app.kubernetes.io/name": "other"}, "annotations": null}});
    world.patch_pool("linux", json!({"spec": {"template": null}})).await;
    world.patch_pool("linux", json!({"spec": {"template": lost}})).await;
    world.until_condition("linux", "Progressing", "False", "Complete").await;
    world.until_connected("linux", 1).await;
    let template = world.deployment("provisioner-linux").await.unwrap().spec.unwrap().template;
    let metadata = template.metadata.unwrap();
    assert_eq!(metadata.labels.unwrap()["app.kubernetes.io/name"], "coder-provisioner");
    assert!(metadata.annotations.unwrap().contains_key("coder.com/provisioner-key-id"));
    // One that leaves no container is refused, and the pool goes on.
    world.patch_pool("linux", json!({"spec": {"template": {"spec": {"containers": "none"}}}})).await;
    world.until_condition("linux", "DeploymentReady", "False", "Rejected").await;
    assert_eq!(world.status("linux").await.connected, 1);
    world.stop().await;
}
