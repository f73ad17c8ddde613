//! Keys on the server and in Secrets: made, verified, replaced before they are deleted.

use k8s_openapi::ByteString;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::World;

/// Makes a change while a job runs, and waits until one new key is left. The job ends well.
async fn rotates(change: impl AsyncFnOnce(&World)) {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"tags": {"os": "linux"}})).await;
    let before = world.until_connected("linux", 1).await.keys[0].clone();
    world.queue(1, &[("os", "linux")]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    change(&world).await;
    world
        .until("linux", "a new key is active", |status| {
            status.keys.iter().any(|key| {
                key.state == coder_operator::crd::provisioner_status::KeyState::Active && key.id != before.id
            })
        })
        .await;
    assert!(
        world.keys().await.iter().any(|key| Some(key.id.to_string()) == before.id),
        "the old key works while its daemon has a job"
    );
    world.jobs.finish(1);
    world.eventually("the job ends", async || world.jobs.finished() == 1).await;
    let after = world
        .until("linux", "one key is left", |status| status.keys.len() == 1 && status.keys[0].id != before.id)
        .await;
    let keys = world.keys().await;
    assert_eq!(
        keys.iter().map(|key| Some(key.id.to_string())).collect::<Vec<_>>(),
        [after.keys[0].id.clone()]
    );
    world.until_connected("linux", 1).await;
    assert_eq!(world.jobs.killed(), 0);
    assert_eq!(world.job_states().await, ["succeeded"]);
    world.stop().await;
}

#[tokio::test]
async fn changed_tags_make_a_new_key_and_a_running_job_ends_well() {
    rotates(async |world| {
        world.patch_pool("linux", json!({"spec": {"tags": {"os": "linux", "gpu": "yes"}}})).await;
    })
    .await;
}

#[tokio::test]
async fn a_deleted_secret_makes_a_new_key_and_a_running_job_ends_well() {
    rotates(async |world| {
        world.secrets().delete("linux-provisioner-key", &DeleteParams::default()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_corrupted_secret_makes_a_new_key_and_a_running_job_ends_well() {
    rotates(async |world| {
        let secret = world.secrets().get("linux-provisioner-key").await.unwrap();
        let garbage =
            secret.data.unwrap().into_keys().map(|key| (key, json!(ByteString(b"garbage".to_vec()))));
        let data: serde_json::Map<String, Value> = garbage.collect();
        let patch = Patch::Merge(json!({"data": data}));
        world.secrets().patch("linux-provisioner-key", &PatchParams::default(), &patch).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_annotation_asks_for_a_new_key() {
    rotates(async |world| {
        world.patch_pool("linux", json!({"metadata": {"annotations": {"coder.com/rotate-key": "1"}}})).await;
    })
    .await;
}

#[tokio::test]
async fn a_key_deleted_on_the_server_is_replaced() {
    let Some(mut world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    let before = world.until_connected("linux", 1).await.keys[0].clone();
    world.server.owner.delete_provisioner_key(world.organization.id, &before.name).await.unwrap();
    // The key is verified every five minutes, and by a new operator at once.
    world.kill_operator().await;
    world.start_operator().await;
    world
        .until("linux", "a new key", |status| status.keys.len() == 1 && status.keys[0].id != before.id)
        .await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn two_pools_may_want_one_key_name() {
    let Some(world) = World::start().await else { return };
    world.pool("one", json!({"key": {"name": "shared"}})).await;
    world.pool("two", json!({"key": {"name": "Shared"}})).await;
    let one = world.until_connected("one", 1).await;
    let two = world.until_connected("two", 1).await;
    assert_ne!(one.provisioner_key_id, two.provisioner_key_id);
    let mut names: Vec<_> = world.keys().await.into_iter().map(|key| key.name).collect();
    names.sort();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.starts_with("shared-")), "{names:?}");
    world.stop().await;
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() {
    let Some(world) = World::start().await else { return };
    world.secret("precious", &[("key", "mine")]).await;
    world.pool("linux", json!({"key": {"secretName": "precious"}})).await;
    world.until_condition("linux", "ProvisionerKeySecretReady", "False", "SecretConflict").await;
    let secret = world.secrets().get("precious").await.unwrap();
    assert_eq!(secret.data.unwrap()["key"].0, b"mine");
    world.patch_pool("linux", json!({"spec": {"key": {"secretName": null}}})).await;
    world.until_connected("linux", 1).await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_renamed_secret_keeps_the_key() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    let before = world.until_connected("linux", 1).await.keys[0].clone();
    world.patch_pool("linux", json!({"spec": {"key": {"secretName": "renamed"}}})).await;
    world
        .eventually("the former Secret is gone", async || {
            world.secrets().get_opt("linux-provisioner-key").await.unwrap().is_none()
                && world.secrets().get_opt("renamed").await.unwrap().is_some()
        })
        .await;
    let after = world.until_connected("linux", 1).await;
    assert_eq!(after.keys[0].id, before.id);
    world.stop().await;
}

#[tokio::test]
async fn an_existing_key_needs_no_token() {
    let Some(world) = World::start().await else { return };
    let tags = [("os".to_owned(), "linux".to_owned())].into();
    let key =
        world.server.owner.create_provisioner_key(world.organization.id, "by-hand", tags).await.unwrap();
    world.secret("existing", &[("key", key.expose())]).await;
    let spec =
        json!({"coder": {"url": world.server.url()}, "key": {"existingSecretRef": {"name": "existing"}}});
    world.apply_pool("linux", spec).await;
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    world
        .eventually("the daemon joins", async || {
            let daemons =
                world.server.owner.daemons(world.organization.id, &Default::default()).await.unwrap();
            daemons.iter().any(|daemon| daemon.key_name.as_deref() == Some("by-hand"))
        })
        .await;
    world.delete_pool("linux").await;
    world
        .eventually("the pool is gone", async || world.pools().get_opt("linux").await.unwrap().is_none())
        .await;
    assert_eq!(world.keys().await.len(), 1, "the key stays");
    let secret = world.secrets().get("existing").await.unwrap();
    assert!(secret.owner_references().is_empty());
    world.stop().await;
}

#[tokio::test]
async fn an_operator_killed_again_and_again_leaves_one_key() {
    let Some(mut world) = World::without_operator().await else { return };
    world.pool("linux", json!({"tags": {"round": "first"}})).await;
    for round in 0_u64..12 {
        world.start_operator().await;
        // Each kill hits another point of the pass.
        tokio::time::sleep(std::time::Duration::from_millis(40 + 45 * round)).await;
        world.kill_operator().await;
        if round % 4 == 3 {
            world.patch_pool("linux", json!({"spec": {"tags": {"round": round.to_string()}}})).await;
        }
    }
    world.start_operator().await;
    let status =
        world.until("linux", "one key", |status| status.keys.len() == 1 && status.connected == 1).await;
    let keys = world.keys().await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(Some(keys[0].id.to_string()), status.provisioner_key_id);
    assert_eq!(keys[0].tags.get("round"), Some("11"));
    world.stop().await;
}

/// A pool as the official operator leaves it: its key, its Secret and its status.
#[tokio::test]
async fn a_pool_of_the_official_operator_keeps_its_key() {
    let Some(mut world) = World::without_operator().await else { return };
    world.pool("linux", json!({"tags": {"os": "linux"}})).await;
    let tags = [("os".to_owned(), "linux".to_owned())].into();
    let key = world.server.owner.create_provisioner_key(world.organization.id, "linux", tags).await.unwrap();
    let id = world.keys().await[0].id.to_string();
    let uid = world.uid("linux").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {
        "name": "linux-provisioner-key", "namespace": world.namespace,
        "ownerReferences": [{"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "linux", "uid": uid, "controller": true, "blockOwnerDeletion": true}],
    }, "stringData": {"key": key.expose()}});
    crate::cluster::apply(&world.admin, secret).await;
    let status = json!({"status": {
        "phase": "Ready", "readyReplicas": 1, "observedGeneration": 1,
        "organizationID": world.organization.id.to_string(), "organizationName": "default",
        "provisionerKeyID": id, "provisionerKeyName": "linux", "tagsHash": "00000000",
        "controlPlaneURL": world.server.url(), "secretRef": {"name": "linux-provisioner-key", "key": "key"},
    }});
    world.pools().patch_status("linux", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    world.start_operator().await;
    let status = world.until_connected("linux", 1).await;
    assert_eq!(status.provisioner_key_id.as_deref(), Some(id.as_str()));
    assert_eq!(world.keys().await.len(), 1);
    world.patch_pool("linux", json!({"spec": {"tags": {"os": "windows"}}})).await;
    world
        .until("linux", "a new key", |status| {
            status.keys.len() == 1 && status.keys[0].id.as_deref() != Some(id.as_str())
        })
        .await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}
