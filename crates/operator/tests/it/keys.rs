//! Keys on the server and in Secrets: made, verified, replaced before they are deleted.

use coder_api::organizations::CreateOrganizationRequest;
use coder_operator::crd::CoderControlPlane;
use coder_operator::crd::provisioner_status::KeyState;
use coder_testkit::server::TestServer;
use k8s_openapi::ByteString;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::gateway::Decision;
use crate::world::World;
use coder_testkit::kubernetes::apply;

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
            status.keys.iter().any(|key| key.state == KeyState::Active && key.id != before.id)
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
async fn another_key_name_makes_a_new_key_and_a_running_job_ends_well() {
    rotates(async |world| {
        world.patch_pool("linux", json!({"spec": {"key": {"name": "renamed"}}})).await;
        world
            .eventually("a key of the new name", async || {
                world.keys().await.iter().any(|key| key.name.starts_with("renamed-"))
            })
            .await;
    })
    .await;
}

#[tokio::test]
async fn another_organization_makes_a_new_key_and_a_running_job_ends_well() {
    let Some(world) = World::start().await else { return };
    let request =
        CreateOrganizationRequest { name: "second".to_owned(), ..CreateOrganizationRequest::default() };
    let second = world.server.owner.create_organization(&request).await.unwrap();
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    world.queue(1, &[]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    world.patch_pool("linux", json!({"spec": {"organizationName": "second"}})).await;
    world
        .eventually("there is a key in the other organization", async || {
            world.server.owner.provisioner_keys(second.id).await.unwrap().len() == 1
        })
        .await;
    assert_eq!(world.keys().await.len(), 1, "the running job still needs the former key");
    world.jobs.finish(1);
    world.eventually("the former key is deleted", async || world.keys().await.is_empty()).await;
    world.until_connected("linux", 1).await;
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (1, 0));
    world.stop().await;
}

#[tokio::test]
async fn another_secret_name_keeps_the_key_and_a_running_job_ends_well() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    let before = world.until_connected("linux", 1).await.keys[0].clone();
    world.queue(1, &[]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    world
        .patch_pool("linux", json!({"spec": {"key": {"secretName": "renamed", "secretKey": "other"}}}))
        .await;
    world
        .eventually("the Secret has the key", async || {
            let secret = world.secrets().get_opt("renamed").await.unwrap();
            secret.is_some_and(|secret| secret.data.unwrap_or_default().contains_key("other"))
        })
        .await;
    world.jobs.finish(1);
    world.eventually("the job ends", async || world.jobs.finished() == 1).await;
    world
        .eventually("the former Secret is gone", async || {
            world.secrets().get_opt("linux-provisioner-key").await.unwrap().is_none()
        })
        .await;
    let after = world.until_connected("linux", 1).await;
    assert_eq!(after.keys[0].id, before.id);
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}

#[tokio::test]
async fn another_url_of_the_same_server_keeps_the_key_and_a_running_job_ends_well() {
    let Some(world) = World::start().await else { return };
    let (one, other) = (world.gateway().await, world.gateway().await);
    world.pool_behind(&one, "linux", json!({})).await;
    let before = world.until_connected("linux", 1).await.keys[0].clone();
    world.queue(1, &[]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    world.patch_pool("linux", json!({"spec": {"coder": {"url": other.url}}})).await;
    world
        .until("linux", "the other URL", |status| status.keys.len() == 1 && status.keys[0].url == other.url)
        .await;
    world.jobs.finish(1);
    world.eventually("the job ends", async || world.jobs.finished() == 1).await;
    let after = world.until_connected("linux", 1).await;
    assert_eq!(after.keys[0].id, before.id);
    assert_eq!((world.keys().await.len(), world.jobs.killed()), (1, 0));
    world.stop().await;
}

#[tokio::test]
async fn another_server_gets_a_key_of_its_own_and_a_running_job_ends_well() {
    let Some(world) = World::start().await else { return };
    let second = TestServer::start().await.unwrap();
    let organization = second.owner.organization("default").await.unwrap();
    for (plane, server) in [("first", &world.server), ("second", &second)] {
        let token = server.owner.token().unwrap().expose().to_owned();
        world.secret(&format!("{plane}-operator-token"), &[("token", &token)]).await;
        apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": plane, "namespace": world.namespace}, "spec": {}})).await;
        let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
        let status = json!({"status": {"url": server.url(), "operatorAccessReady": true, "operatorTokenSecretRef": {"name": format!("{plane}-operator-token")}}});
        planes.patch_status(plane, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
    world.apply_pool("linux", json!({"controlPlaneRef": {"name": "first"}})).await;
    world.until_connected("linux", 1).await;
    world.queue(1, &[]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    world.patch_pool("linux", json!({"spec": {"controlPlaneRef": {"name": "second"}}})).await;
    world
        .eventually("the other server has a key", async || {
            second.owner.provisioner_keys(organization.id).await.unwrap().len() == 1
        })
        .await;
    assert_eq!(world.keys().await.len(), 1, "the running job still needs the former key");
    world.jobs.finish(1);
    world.eventually("the former key is deleted", async || world.keys().await.is_empty()).await;
    world.until_connected("linux", 1).await;
    assert_eq!(second.owner.provisioner_keys(organization.id).await.unwrap().len(), 1);
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (1, 0));
    world.stop().await;
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_key_that_somebody_replaced_by_one_of_the_same_name_is_not_deleted() {
    let Some(mut world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    let before = world.until_connected("linux", 1).await.keys[0].clone();
    let (owner, organization) = (world.server.owner.clone(), world.organization.id);
    owner.delete_provisioner_key(organization, &before.name).await.unwrap();
    let tags = [("made".to_owned(), "by-hand".to_owned())].into();
    drop(owner.create_provisioner_key(organization, &before.name, tags).await.unwrap());
    world.restart_operator().await;
    world
        .until("linux", "a new key", |status| status.keys.len() == 1 && status.keys[0].id != before.id)
        .await;
    world.until_connected("linux", 1).await;
    let keys = world.keys().await;
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(keys.iter().any(|key| key.name == before.name && key.tags.get("made") == Some("by-hand")));
    world.delete_pool("linux").await;
    world.until_gone("linux").await;
    assert_eq!(world.keys().await.len(), 1, "the other one belongs to somebody else");
    world.stop().await;
}

/// The new key is in the Secret, but not active yet, when the Secret is deleted or edited.
#[tokio::test]
async fn a_secret_changed_in_the_middle_of_a_rotation_leaves_one_key() {
    let Some(world) = World::start().await else { return };
    let gateway = world.gateway().await;
    world.pool_behind(&gateway, "linux", json!({"tags": {"round": "0"}})).await;
    world.until_connected("linux", 1).await;
    for round in 1..=2 {
        gateway.decide(|call| {
            let shows_key = call.method == http::Method::GET && call.path.contains("/provisionerkeys/");
            Box::pin(async move {
                if shows_key { Decision::Reply(500, "{}".to_owned()) } else { Decision::Forward }
            })
        });
        world.patch_pool("linux", json!({"spec": {"tags": {"round": round.to_string()}}})).await;
        world
            .until("linux", "a pending key", |status| {
                status.keys.iter().any(|key| key.state == KeyState::Pending)
            })
            .await;
        world
            .eventually("it is in the Secret", async || {
                let secret = world.secrets().get("linux-provisioner-key").await.unwrap();
                secret.data.unwrap_or_default().len() >= 3
            })
            .await;
        if round == 1 {
            world.secrets().delete("linux-provisioner-key", &DeleteParams::default()).await.unwrap();
        } else {
            let secret = world.secrets().get("linux-provisioner-key").await.unwrap();
            let garbage =
                secret.data.unwrap().into_keys().map(|key| (key, json!(ByteString(b"garbage".to_vec()))));
            let data: serde_json::Map<String, Value> = garbage.collect();
            let patch = Patch::Merge(json!({"data": data}));
            world.secrets().patch("linux-provisioner-key", &PatchParams::default(), &patch).await.unwrap();
        }
        gateway.open();
        world
            .until("linux", "one key with the new tags", |status| {
                let round = round.to_string();
                status.keys.len() == 1 && status.keys[0].tags.get("round") == Some(&round)
            })
            .await;
        world.until_connected("linux", 1).await;
        let keys = world.keys().await;
        assert_eq!(keys.len(), 1, "{keys:?}");
    }
    world.stop().await;
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
async fn tags_changed_on_the_server_are_noticed_and_a_running_job_ends_well() {
    let Some(mut world) = World::start().await else { return };
    world.pool("linux", json!({"tags": {"os": "linux"}})).await;
    let before = world.until_connected("linux", 1).await.keys[0].clone();
    world.queue(1, &[("os", "linux")]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    // No API does this; a restored database may.
    world.server.execute("update provisioner_keys set tags = '{\"os\":\"windows\"}'").await;
    world.restart_operator().await;
    world
        .until("linux", "a new key is active", |status| {
            status.keys.iter().any(|key| key.state == KeyState::Active && key.id != before.id)
        })
        .await;
    world.jobs.finish(1);
    world.until("linux", "the former key is deleted", |status| status.keys.len() == 1).await;
    world.until_connected("linux", 1).await;
    let keys = world.keys().await;
    assert!(keys.len() == 1 && keys[0].tags.get("os") == Some("linux"), "{keys:?}");
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (1, 0));
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
    apply(&world.admin, secret).await;
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
