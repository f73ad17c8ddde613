//! Operators that are killed after their first side effects, wherever they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coder_domain::clock::SystemClock;
use coder_operator::Config;
use http::{Method, Request};
use kube::Client;
use kube::api::DeleteParams;
use kube::client::Body;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::gateway::{Decision, Gateway};
use crate::world::World;

/// More operators, one after the other, than any change takes.
const MAX_OPERATORS: usize = 60;
/// How long an operator without a side effect lives: nothing is left to do for it.
const IDLE_LIFETIME: Duration = Duration::from_millis(2500);

/// The life of one operator: it ends when its last side effect has happened, before it learns of that.
#[derive(Clone)]
struct Life {
    left: Arc<AtomicUsize>,
    over: CancellationToken,
}

enum Effect {
    Happens,
    IsLast,
    ComesTooLate,
}

impl Life {
    fn new(effects: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(effects)), over: CancellationToken::new() }
    }

    fn begin(&self) -> Effect {
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match taken {
            Ok(1) => Effect::IsLast,
            Ok(_) => Effect::Happens,
            Err(_) => Effect::ComesTooLate,
        }
    }
}

/// A client of the API server for an operator with a limited life. Events are reports and do not count.
fn mortal(client: Client, life: Life) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (client, life) = (client.clone(), life.clone());
        async move {
            let is_effect = request.method() != Method::GET && !request.uri().path().contains("/events");
            if !is_effect {
                return client.send(request).await;
            }
            match life.begin() {
                Effect::Happens => return client.send(request).await,
                Effect::IsLast => {
                    drop(client.send(request).await);
                    life.over.cancel();
                }
                Effect::ComesTooLate => {}
            }
            std::future::pending().await
        }
    });
    Client::new(service, "default")
}

/// Runs operators one after the other until one finds nothing more to do. Returns how many side effects happened.
async fn live(world: &World, gateway: &Gateway) -> usize {
    let mut effects = 0;
    for killed in 0..MAX_OPERATORS {
        // Most live one side effect long. A new key is only in an answer, so writing it takes a longer life.
        let length = 1 + killed % 4;
        let life = Life::new(length);
        let of_server = life.clone();
        gateway.decide(move |call| {
            let life = of_server.clone();
            Box::pin(async move {
                if !call.is_effect() {
                    return Decision::Forward;
                }
                match life.begin() {
                    Effect::Happens => return Decision::Forward,
                    Effect::IsLast => {}
                    Effect::ComesTooLate => return Decision::Lose,
                }
                Decision::LoseAnswer(life.over.clone())
            })
        });
        let client = mortal(world.cluster.operator().await, life.clone());
        let config =
            Config { namespace: Some(world.namespace.clone()), control_planes: false, election: None };
        let run = coder_operator::run(client, config, Arc::new(SystemClock), None, CancellationToken::new());
        let operator = tokio::spawn(run);
        let ended = tokio::time::timeout(IDLE_LIFETIME, life.over.cancelled()).await;
        operator.abort();
        drop(operator.await);
        effects += length - life.left.load(Ordering::SeqCst);
        if ended.is_err() {
            gateway.open();
            return effects;
        }
    }
    panic!("the operators make no progress: {:#?}", world.status("linux").await);
}

#[tokio::test]
async fn operators_killed_after_their_first_side_effects_leave_one_key_and_none_after_deletion() {
    let Some(world) = World::without_operator().await else { return };
    let gateway = world.gateway().await;
    world.pool_behind(&gateway, "linux", json!({"tags": {"os": "linux"}})).await;
    let effects = live(&world, &gateway).await;
    assert!(effects >= 12, "{effects} side effects");
    let status = world.status("linux").await;
    let keys = world.keys().await;
    assert_eq!((status.keys.len(), keys.len()), (1, 1), "{:#?}", status.keys);
    assert_eq!(Some(keys[0].id.to_string()), status.keys[0].id);

    // A rotation while a job runs.
    world.queue(1, &[("os", "linux")]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    world.patch_pool("linux", json!({"spec": {"tags": {"os": "linux", "gpu": "yes"}}})).await;
    let effects = live(&world, &gateway).await;
    assert!(effects >= 6, "{effects} side effects");
    assert!(world.keys().await.iter().any(|key| key.id == keys[0].id), "a job still needs the former key");
    world.jobs.finish(1);
    world.eventually("the job ends", async || world.jobs.finished() == 1).await;
    live(&world, &gateway).await;
    let status = world.status("linux").await;
    let keys = world.keys().await;
    assert_eq!((status.keys.len(), keys.len()), (1, 1), "{:#?}", status.keys);
    assert_eq!(keys[0].tags.get("gpu"), Some("yes"));

    world.pools().delete("linux", &DeleteParams::default()).await.unwrap();
    live(&world, &gateway).await;
    assert!(world.pools().get_opt("linux").await.unwrap().is_none());
    assert_eq!(world.keys().await, []);
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}
