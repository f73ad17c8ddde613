//! Of two operators one works.

use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::SystemClock;
use coder_operator::{Config, Election};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::World;

fn operator(
    world: &World,
    client: kube::Client,
    holder: &str,
    lease: &str,
) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let election = Election {
        namespace: "coder-operator".to_owned(),
        name: lease.to_owned(),
        holder: holder.to_owned(),
        duration: Duration::from_secs(5),
    };
    let stop = CancellationToken::new();
    let config =
        Config { namespace: Some(world.namespace.clone()), control_planes: false, election: Some(election) };
    let run = coder_operator::run(client, config, Arc::new(SystemClock), None, stop.clone());
    (stop, tokio::spawn(run))
}

#[tokio::test]
async fn another_operator_takes_over_when_the_leader_is_killed() {
    let Some(world) = World::without_operator().await else { return };
    let lease = format!("lease-{}", world.namespace);
    let leases: Api<Lease> = Api::namespaced(world.admin.clone(), "coder-operator");
    let holder = async || leases.get_opt(&lease).await.unwrap().and_then(|lease| lease.spec?.holder_identity);
    let first = operator(&world, world.cluster.operator().await, "first", &lease);
    world.eventually("the first leads", async || holder().await.as_deref() == Some("first")).await;
    let second = operator(&world, world.cluster.operator().await, "second", &lease);
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    assert_eq!(holder().await.as_deref(), Some("first"));
    first.1.abort();
    world.eventually("the second leads", async || holder().await.as_deref() == Some("second")).await;
    world.patch_pool("linux", json!({"spec": {"replicas": 2}})).await;
    world.until_connected("linux", 2).await;
    second.0.cancel();
    second.1.await.unwrap();
    assert_eq!(holder().await, None, "a leader that stops gives the lease back");
    world.stop().await;
}
