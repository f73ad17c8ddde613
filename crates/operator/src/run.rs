//! The operator as a whole: election, controllers and pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coder_domain::clock::Clock;
use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Config as ControllerConfig, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Predicate as _, PredicateConfig, WatchStreamExt as _, predicates};
use kube::{Api, Client, Resource, ResourceExt as _};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::access::references;
use crate::context::Context;
use crate::control_plane;
use crate::crd::{CoderControlPlane, CoderProvisioner};
use crate::external_scaler::Needed;
use crate::http_server::{self, Pages};
use crate::leader::Election;
use crate::metrics::Metrics;
use crate::names::{CONTROL_PLANE, MANAGED_BY, MANAGER, NAME};
use crate::queue::{PoolId, Queues};
use crate::reconcile::{on_error, reconcile};
use crate::watch::{Watched, readable, settings};

/// Passes at the same time.
const CONCURRENT_PASSES: u16 = 16;
/// How long giving the lease back may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Pools whose demand changed and that were not looked at yet.
const QUEUED_CHANGES: usize = 1024;

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Config {
    /// The only namespace that is looked at; all by default.
    pub namespace: Option<String>,
    /// Whether servers in the cluster are kept, too. Not if another operator does it.
    pub control_planes: bool,
    /// The election; without it this operator must be the only one.
    pub election: Option<Election>,
}

struct State {
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    is_ready: AtomicBool,
    /// What is known while this process is the leader.
    leading: Mutex<Option<(Queues, Store<CoderProvisioner>)>>,
}

#[derive(Clone)]
struct Shown(Arc<State>);

impl Needed for Shown {
    fn needed(&self, pool: &PoolId) -> Option<i64> {
        let leading = self.0.leading.lock().clone();
        let demands = leading.map(|(queues, _)| queues.demands())?;
        let demand = demands.into_iter().find(|(known, _)| known == pool).map(|(_, demand)| demand)?;
        let number = i64::try_from(demand.busy + demand.matching).unwrap_or(i64::MAX);
        demand.error.is_none().then_some(number)
    }
}

impl Pages for Shown {
    fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Relaxed)
    }

    fn metrics(&self) -> String {
        let leading = self.0.leading.lock().clone();
        let (demands, pools) =
            leading.map(|(queues, store)| (queues.demands(), store.state())).unwrap_or_default();
        self.0.metrics.render(&pools, &demands, self.0.clock.now())
    }
}

/// A client of the cluster that this process runs in, or that a kubeconfig names.
///
/// # Errors
/// There is neither, or it cannot be used.
pub async fn connect() -> Result<Client, kube::Error> {
    Client::try_default().await
}

/// Runs until `stop`. `pages` is where health and metrics are served.
pub async fn run(
    kube: Client,
    config: Config,
    clock: Arc<dyn Clock>,
    pages: Option<TcpListener>,
    stop: CancellationToken,
) {
    let state = Arc::new(State {
        metrics: Metrics::default(),
        clock: Arc::clone(&clock),
        is_ready: AtomicBool::new(false),
        leading: Mutex::new(None),
    });
    let pages = pages.map(|listener| tokio::spawn(http_server::serve(listener, Shown(Arc::clone(&state)))));
    tokio::select! {
        () = work(&kube, &config, &clock, &state, &stop) => {}
        () = stop.cancelled() => {}
    }
    if let Some(election) = &config.election {
        // An API server that does not answer must not keep this process.
        if tokio::time::timeout(RELEASE_TIMEOUT, election.release(&kube)).await.is_err() {
            tracing::warn!("the lease was not given back in time");
        }
    }
    if let Some(pages) = pages {
        pages.abort();
    }
}

async fn work(
    kube: &Client,
    config: &Config,
    clock: &Arc<dyn Clock>,
    state: &Arc<State>,
    stop: &CancellationToken,
) {
    loop {
        wait_for_api(kube).await;
        state.is_ready.store(true, Ordering::Relaxed);
        let Some(election) = &config.election else {
            lead(kube, config, clock, state, stop).await;
            return;
        };
        election.win(kube, &**clock).await;
        tracing::info!(holder = election.holder, "this operator is the leader");
        state.metrics.leading(true);
        let term = stop.child_token();
        tokio::select! {
            () = election.keep(kube, &**clock) => {}
            () = lead(kube, config, clock, state, &term) => {}
        }
        // Passes that still run end with the runtime's tasks, before another operator may begin.
        term.cancel();
        state.metrics.leading(false);
        *state.leading.lock() = None;
        if stop.is_cancelled() {
            return;
        }
        tracing::warn!(holder = election.holder, "this operator is not the leader any more");
    }
}

/// Waits until the API server answers.
async fn wait_for_api(kube: &Client) {
    let mut backoff =
        coder_domain::backoff::Backoff::new(Duration::from_secs(1), Duration::from_secs(30)).with_jitter();
    while let Err(error) = kube.apiserver_version().await {
        tracing::warn!(%error, "cannot reach the API server");
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// The API of a kind, in the namespace that is looked at.
fn api<K>(kube: &Client, config: &Config) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match &config.namespace {
        Some(namespace) => Api::namespaced(kube.clone(), namespace),
        None => Api::all(kube.clone()),
    }
}

async fn lead(
    kube: &Client,
    config: &Config,
    clock: &Arc<dyn Clock>,
    state: &Arc<State>,
    stop: &CancellationToken,
) {
    let (changes, changed) = mpsc::channel::<PoolId>(QUEUED_CHANGES);
    let queues = Queues::new(changes, Arc::clone(clock));
    let ctx = Arc::new(Context::new(kube.clone(), Arc::clone(clock), queues.clone(), state.metrics.clone()));
    let (store, writer) = reflector::store();
    // The operator's own changes of the status start no pass: a pass that failed would be repeated at once.
    let triggers = predicates::generation
        .combine(predicates::labels)
        .combine(predicates::annotations)
        .combine(predicates::finalizers);
    let pools = readable::<CoderProvisioner>(api(kube, config), Arc::clone(&ctx))
        // Nobody reads who wrote what, which is half of an object.
        .modify(|pool| pool.managed_fields_mut().clear())
        .reflect(writer)
        .applied_objects()
        .predicate_filter(triggers, PredicateConfig::default());
    let controller = Controller::for_stream(pools, store.clone());
    *state.leading.lock() = Some((queues, store.clone()));
    let changed = futures_util::stream::unfold(changed, |mut changed| async move {
        let (namespace, name) = changed.recv().await?;
        Some((ObjectRef::new(&name).within(&namespace), changed))
    });
    let of_plane = store.clone();
    let controller = controller
        .with_config(ControllerConfig::default().concurrency(CONCURRENT_PASSES))
        .reconcile_on(changed)
        .watches(
            api::<PartialObjectMeta<CoderControlPlane>>(kube, config),
            settings(),
            move |plane: PartialObjectMeta<CoderControlPlane>| of_control_plane(&of_plane, &plane.metadata),
        );
    let controller = owned::<Deployment>(controller, kube, config);
    let controller = owned::<Job>(controller, kube, config);
    let controller = owned::<ServiceAccount>(controller, kube, config);
    let controller = owned::<Role>(controller, kube, config);
    let controller = owned::<RoleBinding>(controller, kube, config);
    let controller = owned::<PodDisruptionBudget>(controller, kube, config);
    let controller = owned::<NetworkPolicy>(controller, kube, config);
    // Secrets may be of any name, so all are watched, without their contents.
    let of_secret = store.clone();
    let secrets: Api<PartialObjectMeta<Secret>> = api(kube, config);
    let of_secret = move |secret: PartialObjectMeta<Secret>| of_metadata(&of_secret, &secret.metadata);
    let controller = controller.watches(secrets, settings(), of_secret);
    let pools = controller
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(reconcile, on_error, Arc::clone(&ctx))
        .for_each(|result| async move { log(result.map(drop).err()) });
    if !config.control_planes {
        pools.await;
        return;
    }
    let planes = control_planes(kube, config, Arc::clone(&ctx))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(control_plane::reconcile, control_plane::on_error, ctx)
        .for_each(|result| async move { log(result.map(drop).err()) });
    tokio::join!(pools, planes);
}

fn log(error: Option<impl std::fmt::Display>) {
    if let Some(error) = error {
        tracing::debug!(%error, "the controller reports an error");
    }
}

/// The controller of the servers in this cluster.
fn control_planes(kube: &Client, config: &Config, ctx: Arc<Context>) -> Controller<CoderControlPlane> {
    let labels = format!("{MANAGED_BY}={MANAGER},{NAME}={CONTROL_PLANE}");
    let filter = settings().labels(&labels);
    let (store, writer) = reflector::store();
    let planes = readable::<CoderControlPlane>(api(kube, config), ctx).reflect(writer).applied_objects();
    Controller::for_stream(planes, store)
        .owns(api::<Deployment>(kube, config), filter.clone())
        .owns(api::<Service>(kube, config), filter.clone())
        .owns(api::<ServiceAccount>(kube, config), filter)
}

/// Watches what the operator makes, which has its label.
fn owned<K: Watched>(
    controller: Controller<CoderProvisioner>,
    kube: &Client,
    config: &Config,
) -> Controller<CoderProvisioner> {
    let labels = format!("{MANAGED_BY}={MANAGER}");
    let filter = settings().labels(&labels);
    let store = controller.store();
    let objects: Api<PartialObjectMeta<K>> = api(kube, config);
    controller
        .watches(objects, filter, move |object: PartialObjectMeta<K>| of_metadata(&store, &object.metadata))
}

/// The pools of a control plane.
fn of_control_plane(store: &Store<CoderProvisioner>, plane: &ObjectMeta) -> Vec<ObjectRef<CoderProvisioner>> {
    let refers = |pool: &CoderProvisioner| {
        let reference = pool.spec.control_plane_ref.as_ref();
        pool.namespace() == plane.namespace
            && reference.is_some_and(|reference| Some(&reference.name) == plane.name.as_ref())
    };
    store.state().iter().filter(|pool| refers(pool)).map(|pool| ObjectRef::from_obj(&**pool)).collect()
}

/// The pools that own an object, read it, or have it in another namespace.
fn of_metadata(store: &Store<CoderProvisioner>, metadata: &ObjectMeta) -> Vec<ObjectRef<CoderProvisioner>> {
    let owners: Vec<&str> =
        metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str()).collect();
    let empty = BTreeMap::new();
    let foreign = metadata.annotations.as_ref().unwrap_or(&empty).get(crate::names::OWNER_UID);
    let name = metadata.name.as_deref().unwrap_or_default();
    let concerns = |pool: &CoderProvisioner| {
        let uid = pool.uid().unwrap_or_default();
        let is_read = || {
            pool.namespace() == metadata.namespace
                && (references(pool).contains(&name) || reads_token_of(pool, name))
        };
        owners.contains(&uid.as_str()) || foreign == Some(&uid) || is_read()
    };
    store.state().iter().filter(|pool| concerns(pool)).map(|pool| ObjectRef::from_obj(&**pool)).collect()
}

/// A control plane's token is in a Secret that only its status names; the usual name is enough to notice changes at once.
fn reads_token_of(pool: &CoderProvisioner, secret: &str) -> bool {
    let plane = pool.spec.control_plane_ref.as_ref();
    plane.is_some_and(|plane| secret.strip_suffix("-operator-token") == Some(&plane.name))
}
