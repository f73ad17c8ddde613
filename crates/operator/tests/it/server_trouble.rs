//! Servers that refuse, limit, fail or are silent, and what they lose: the pods stay, the status says why, and the pool
//! recovers.

use std::time::Duration;

use coder_api::organizations::CreateOrganizationRequest;
use coder_domain::clock::{Clock as _, SystemClock};
use coder_operator::crd::CoderControlPlane;
use http::Method;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::gateway::Decision;
use crate::world::World;
use coder_testkit::kubernetes::apply;

const KEYS: &str = "/provisionerkeys";

#[tokio::test]
async fn refusals_and_failures_are_named_and_leave_the_pods_alone() {
    let Some(mut world) = World::start().await else { return };
    let gateway = world.gateway().await;
    world.pool_behind(&gateway, "linux", json!({"replicas": 2})).await;
    world.until_connected("linux", 2).await;
    let pods = world.pod_names().await;
    for (status, condition, reason) in [
        (401, "OperatorAccessReady", "OperatorTokenInvalid"),
        (404, "ProvisionerKeyReady", "OrganizationNotFound"),
        (429, "ProvisionerKeyReady", "RateLimited"),
        (500, "ControlPlaneReady", "ControlPlaneUnavailable"),
    ] {
        gateway.decide(move |_| Box::pin(async move { Decision::Reply(status, "{}".to_owned()) }));
        world.restart_operator().await;
        world.until_condition("linux", condition, "False", reason).await;
        world.until_condition("linux", "Ready", "False", condition).await;
        assert_eq!(world.pod_names().await, pods, "{status}");
        gateway.open();
        world.restart_operator().await;
        world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    }
    assert_eq!(world.pod_names().await, pods);
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_leaves_the_pods_alone() {
    let Some(mut world) = World::start().await else { return };
    let gateway = world.gateway().await;
    world.pool_behind(&gateway, "linux", json!({})).await;
    world.until_connected("linux", 1).await;
    let pods = world.pod_names().await;
    gateway.decide(|_| Box::pin(async { Decision::Lose }));
    world.restart_operator().await;
    world.until_condition("linux", "ControlPlaneReady", "False", "ControlPlaneUnavailable").await;
    assert_eq!(world.pod_names().await, pods);
    gateway.open();
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    world.stop().await;
}

#[tokio::test]
async fn a_limit_of_the_rate_is_respected_with_growing_delays() {
    let Some(world) = World::start().await else { return };
    let gateway = world.gateway().await;
    gateway.reply(Method::POST, KEYS, 429, "{}");
    world.pool_behind(&gateway, "linux", json!({})).await;
    world.until_condition("linux", "ProvisionerKeyReady", "False", "RateLimited").await;
    let attempts = || -> Vec<_> {
        gateway
            .calls(KEYS)
            .into_iter()
            .filter(|call| call.method == Method::POST)
            .map(|call| call.at)
            .collect()
    };
    world.eventually("three attempts", async || attempts().len() >= 3).await;
    let delays: Vec<Duration> = attempts().windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(delays[0] >= Duration::from_secs(1) && delays[1] > delays[0], "{delays:?}");
    assert!(world.deployment("provisioner-linux").await.is_none());
    gateway.open();
    world.until_connected("linux", 1).await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn without_a_licence_no_key_is_made_and_running_daemons_stay() {
    let Some(mut world) = World::start().await else { return };
    let gateway = world.gateway().await;
    let none = r#"{"features": {"external_provisioner_daemons": {"entitlement": "not_entitled", "enabled": false}}, "has_license": false, "trial": false, "require_telemetry": false, "warnings": [], "errors": [], "refreshed_at": "2026-01-01T00:00:00Z"}"#;
    world.kill_operator().await;
    world.pool_behind(&gateway, "linux", json!({})).await;
    for (status, body, reason) in
        [(200, none, "NotEntitled"), (404, "{}", "NotSupported"), (403, "{}", "Forbidden")]
    {
        gateway.reply(Method::GET, "/entitlements", status, body);
        world.restart_operator().await;
        world.until_condition("linux", "ExternalProvisionersEntitled", "False", reason).await;
    }
    assert_eq!(gateway.calls(KEYS).len(), 0);
    // The operator asks again after a backoff.
    let questions = gateway.calls("/entitlements").len();
    assert!((3..=9).contains(&questions), "{questions} questions");
    assert!(world.deployment("provisioner-linux").await.is_none());
    assert!(world.events("linux").await.contains(&"NotEntitled".to_owned()));
    gateway.open();
    world.restart_operator().await;
    world.until_connected("linux", 1).await;
    world.until_condition("linux", "ExternalProvisionersEntitled", "True", "Entitled").await;
    let pods = world.pod_names().await;
    gateway.reply(Method::GET, "/entitlements", 200, none);
    world.restart_operator().await;
    world.until_condition("linux", "ExternalProvisionersEntitled", "False", "NotEntitled").await;
    assert_eq!(world.pod_names().await, pods, "a licence that lapses takes nothing away");
    world.stop().await;
}

/// The official operator writes what it knows about the licence into the status of its control planes.
#[tokio::test]
async fn what_a_control_plane_knows_about_the_licence_is_believed_for_two_minutes() {
    let Some(mut world) = World::without_operator().await else { return };
    let gateway = world.gateway().await;
    apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main", "namespace": world.namespace}, "spec": {}})).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    let ago = |minutes: i64| {
        let at = SystemClock.now() - jiff::SignedDuration::from_mins(minutes);
        jiff::Timestamp::from_second(at.as_second()).unwrap().to_string()
    };
    let knows = async |entitlement: &str, minutes: i64| {
        let status = json!({"status": {
            "url": gateway.url, "operatorAccessReady": true, "operatorTokenSecretRef": {"name": "token"},
            "externalProvisionerDaemonsEntitlement": entitlement, "entitlementsLastChecked": ago(minutes),
        }});
        planes.patch_status("main", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    };
    // A fresh refusal: nobody is asked, and nothing is made.
    knows("not_entitled", 0).await;
    let spec = json!({"controlPlaneRef": {"name": "main"}, "extraEnv": [{"name": "CODER_URL", "value": world.server.url()}]});
    world.apply_pool("linux", spec).await;
    world.start_operator().await;
    world.until_condition("linux", "ExternalProvisionersEntitled", "False", "NotEntitled").await;
    assert_eq!(gateway.calls("").len(), 0);
    assert!(world.deployment("provisioner-linux").await.is_none());
    // An old refusal and an old permission are worth nothing: the server is asked.
    gateway.reply(Method::GET, "/entitlements", 403, "{}");
    knows("entitled", 5).await;
    world.until_condition("linux", "ExternalProvisionersEntitled", "False", "Forbidden").await;
    assert_eq!(gateway.calls(KEYS).len(), 0);
    gateway.open();
    knows("not_entitled", 5).await;
    world.until_connected("linux", 1).await;
    // A fresh permission: the licence is not read.
    gateway.reply(Method::GET, "/entitlements", 403, "{}");
    gateway.forget();
    knows("grace_period", 0).await;
    world.restart_operator().await;
    world
        .until("linux", "the pool is looked at", |_| !gateway.calls("/organizations/default").is_empty())
        .await;
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    assert_eq!(gateway.calls("/entitlements").len(), 0);
    world.stop().await;
}

#[tokio::test]
async fn an_organization_that_vanishes_is_named_and_does_not_hold_up_a_deletion() {
    let Some(mut world) = World::start().await else { return };
    let request =
        CreateOrganizationRequest { name: "second".to_owned(), ..CreateOrganizationRequest::default() };
    let second = world.server.owner.create_organization(&request).await.unwrap();
    world.pool("linux", json!({"organizationName": "second"})).await;
    world.until_connected("linux", 1).await;
    // A server deletes only organizations without keys.
    let owner = &world.server.owner;
    let key = owner.provisioner_keys(second.id).await.unwrap().remove(0);
    owner.delete_provisioner_key(second.id, &key.name).await.unwrap();
    owner.delete_organization(second.id).await.unwrap();
    world.restart_operator().await;
    world.until_condition("linux", "ProvisionerKeyReady", "False", "OrganizationNotFound").await;
    world.delete_pool("linux").await;
    world.until_gone("linux").await;
    world.stop().await;
}

#[tokio::test]
async fn a_deletion_waits_for_a_failing_server_but_not_for_a_refusal() {
    let Some(world) = World::start().await else { return };
    let gateway = world.gateway().await;
    world.pool_behind(&gateway, "linux", json!({})).await;
    world.until_connected("linux", 1).await;
    gateway.reply(Method::DELETE, KEYS, 503, "{}");
    world.delete_pool("linux").await;
    let attempts = || gateway.calls(KEYS).iter().filter(|call| call.method == Method::DELETE).count();
    world.eventually("two attempts", async || attempts() >= 2).await;
    assert!(world.pools().get_opt("linux").await.unwrap().is_some());
    gateway.open();
    world.until_gone("linux").await;
    assert_eq!(world.keys().await, []);

    world.pool_behind(&gateway, "refused", json!({})).await;
    world.until_connected("refused", 1).await;
    gateway.reply(Method::DELETE, KEYS, 403, "{}");
    world.delete_pool("refused").await;
    world.until_gone("refused").await;
    assert_eq!(world.keys().await.len(), 1);
    assert!(world.events("refused").await.contains(&"KeyLeaked".to_owned()), "the key that stays is named");
    world.stop().await;
}

#[tokio::test]
async fn a_pool_outlives_its_control_plane_only_until_it_is_deleted() {
    let Some(mut world) = World::start().await else { return };
    apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main", "namespace": world.namespace}, "spec": {}})).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    let gateway = world.gateway().await;
    let status = json!({"status": {"url": gateway.url, "operatorAccessReady": true, "operatorTokenSecretRef": {"name": "token"}}});
    planes.patch_status("main", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    world
        .apply_pool(
            "linux",
            json!({"controlPlaneRef": {"name": "main"}, "extraEnv": [{"name": "CODER_URL", "value": world.server.url()}]}),
        )
        .await;
    world.until_connected("linux", 1).await;
    let pods = world.pod_names().await;
    planes.delete("main", &DeleteParams::default()).await.unwrap();
    world.until_condition("linux", "ControlPlaneReady", "False", "ControlPlaneUnavailable").await;
    assert_eq!(world.pod_names().await, pods);
    world.restart_operator().await;
    gateway.forget();
    world.delete_pool("linux").await;
    world.until_gone("linux").await;
    assert_eq!(gateway.calls(KEYS).len(), 0, "nobody knows how the server is reached");
    assert!(world.events("linux").await.contains(&"KeyLeaked".to_owned()));
    world.stop().await;
}

#[tokio::test]
async fn many_pools_of_one_server_share_one_reader() {
    let Some(mut world) = World::without_operator().await else { return };
    let gateway = world.gateway().await;
    let count = 200;
    for number in 0..count {
        let scaling = json!({"maxReplicas": 2});
        world
            .pool_behind(
                &gateway,
                &format!("pool-{number}"),
                json!({"tags": {"pool": number.to_string()}, "autoscaling": scaling}),
            )
            .await;
    }
    world.start_operator().await;
    for number in 0..count {
        world.until_condition(&format!("pool-{number}"), "Ready", "True", "AllPartsReady").await;
    }
    assert_eq!(world.keys().await.len(), count);
    // The pools have settled; from here on only the queue is read, once a second for all of them.
    gateway.forget();
    let begun = std::time::Instant::now();
    world.queue(1, &[("pool", "7")]).await;
    world.until("pool-7", "a daemon", |status| status.connected == 1).await;
    world.eventually("some seconds pass", async || begun.elapsed() > Duration::from_secs(5)).await;
    let seconds = begun.elapsed().as_secs() as usize + 1;
    assert!(
        gateway.calls("/provisionerjobs").len() <= 3 * seconds,
        "{}",
        gateway.calls("/provisionerjobs").len()
    );
    assert!(gateway.calls("").len() <= 6 * seconds, "{:?}", gateway.calls(""));
    world.jobs.finish(1);
    world.stop().await;
}
