//! Runs pods: each becomes a fake daemon in this process, which joins the server with the key and the name of its pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use coder_api::client::{Client as Coder, Credential, Options, ServeProvisionerDaemonRequest};
use coder_domain::secret::Secret;
use coder_testkit::daemon::{BUILD_VERSION, FakeDaemon, import_result};
use k8s_openapi::api::core::v1::{Pod, Secret as KubeSecret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The time between two looks at the pods, and between two attempts to join.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// An image that cannot be pulled.
pub(crate) const BROKEN_IMAGE: &str = "registry.example.com/nothing:there";

/// What happened to the jobs.
struct Jobs {
    /// One permit completes one job.
    may_finish: Semaphore,
    running: AtomicUsize,
    finished: AtomicUsize,
    /// Jobs whose pod ended before them.
    killed: AtomicUsize,
}

impl Default for JobsHandle {
    fn default() -> Self {
        Self(Arc::new(Jobs {
            may_finish: Semaphore::new(0),
            running: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            killed: AtomicUsize::new(0),
        }))
    }
}

/// The jobs of a kubelet.
#[derive(Clone)]
pub(crate) struct JobsHandle(Arc<Jobs>);

impl JobsHandle {
    pub(crate) fn running(&self) -> usize {
        self.0.running.load(Ordering::SeqCst)
    }

    pub(crate) fn finished(&self) -> usize {
        self.0.finished.load(Ordering::SeqCst)
    }

    pub(crate) fn killed(&self) -> usize {
        self.0.killed.load(Ordering::SeqCst)
    }

    pub(crate) fn finish(&self, count: usize) {
        self.0.may_finish.add_permits(count);
    }
}

struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    /// The daemon has joined, which is when a real one answers its readiness probe.
    has_joined: Arc<AtomicBool>,
    is_ready: bool,
}

/// Runs the pods of a namespace until the token is cancelled.
pub(crate) async fn run(client: Client, namespace: String, jobs: JobsHandle, stop: CancellationToken) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    while !stop.is_cancelled() {
        for pod in pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let (uid, name) = (pod.uid().unwrap(), pod.name_any());
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_some() {
                match running.get(&uid) {
                    Some(daemon) => {
                        daemon.stop.cancel();
                        if daemon.task.is_finished() {
                            running.remove(&uid);
                            remove(&pods, &name).await;
                        }
                    }
                    None => remove(&pods, &name).await,
                }
            } else if let Some(daemon) = running.get_mut(&uid) {
                if daemon.task.is_finished() && phase == "Running" {
                    status(&pods, &name, "Succeeded", false).await;
                } else if daemon.has_joined.load(Ordering::SeqCst) && !daemon.is_ready {
                    daemon.is_ready = true;
                    status(&pods, &name, "Running", true).await;
                }
            } else if phase == "Pending" && image(&pod) == BROKEN_IMAGE {
                cannot_start(&pods, &name).await;
            } else if phase == "Pending" {
                bind(&client, &namespace, &name).await;
                let (stop, has_joined) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
                let pod = daemon(client.clone(), pod, jobs.clone(), stop.clone(), Arc::clone(&has_joined));
                let task = tokio::spawn(pod);
                running.insert(uid, Running { stop, task, has_joined, is_ready: false });
                status(&pods, &name, "Running", false).await;
            }
        }
        // Like a kubelet, it looks at its pods again and again.
        tokio::time::sleep(LOOK_EVERY).await;
    }
    for daemon in running.into_values() {
        daemon.task.abort();
    }
}

fn image(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref().unwrap();
    spec.containers[0].image.as_deref().unwrap_or_default()
}

/// What a kubelet says about a pod whose image cannot be pulled.
async fn cannot_start(pods: &Api<Pod>, name: &str) {
    let waiting = json!({"reason": "ImagePullBackOff", "message": format!("Back-off pulling image \"{BROKEN_IMAGE}\"")});
    let container = json!({"name": "provisioner", "image": BROKEN_IMAGE, "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": waiting}});
    let status = json!({"status": {"phase": "Pending", "containerStatuses": [container]}});
    drop(pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await);
}

async fn bind(client: &Client, namespace: &str, pod: &str) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": "test"}});
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding"))
        .header("content-type", "application/json")
        .body(binding.to_string().into_bytes())
        .unwrap();
    // A pod that is bound already stays so.
    drop(client.request_text(request).await);
}

async fn status(pods: &Api<Pod>, name: &str, phase: &str, is_ready: bool) {
    let ready = if is_ready { "True" } else { "False" };
    let now = jiff_now();
    let status = json!({"status": {
        "phase": phase,
        "startTime": now,
        "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": now},
            {"type": "ContainersReady", "status": ready, "lastTransitionTime": now},
        ],
    }});
    drop(pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await);
}

#[expect(clippy::disallowed_methods, reason = "the API server's times are real ones")]
fn jiff_now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap().to_string()
}

async fn remove(pods: &Api<Pod>, name: &str) {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    drop(pods.delete(name, &now).await);
}

/// The variables of the pod's daemon.
async fn environment(client: &Client, pod: &Pod) -> Option<BTreeMap<String, String>> {
    let namespace = pod.namespace().unwrap();
    let secrets: Api<KubeSecret> = Api::namespaced(client.clone(), &namespace);
    let mut variables = BTreeMap::new();
    for variable in pod.spec.as_ref().unwrap().containers[0].env.iter().flatten() {
        let source = variable.value_from.as_ref();
        let value = if let Some(value) = &variable.value {
            value.clone()
        } else if let Some(reference) = source.and_then(|source| source.secret_key_ref.as_ref()) {
            let secret = secrets.get_opt(&reference.name).await.ok()??;
            String::from_utf8(secret.data?.get(&reference.key)?.0.clone()).ok()?
        } else {
            pod.name_any()
        };
        variables.insert(variable.name.clone(), value);
    }
    Some(variables)
}

/// Joins, and takes one job after the other until it is stopped. A running job is finished first, within the grace.
async fn daemon(
    client: Client,
    pod: Pod,
    jobs: JobsHandle,
    stop: CancellationToken,
    has_joined: Arc<AtomicBool>,
) {
    let spec = pod.spec.as_ref().unwrap();
    let is_once = spec.containers[0].args.iter().flatten().any(|argument| argument == "--once");
    let grace = Duration::from_secs(spec.termination_grace_period_seconds.unwrap_or(30).unsigned_abs());
    let joined = loop {
        if let Some(daemon) = join(&client, &pod).await {
            break daemon;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            // As a daemon, it tries to join until it may.
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    };
    has_joined.store(true, Ordering::SeqCst);
    loop {
        let cancel = stop.clone();
        let acquired = joined.calls.acquire(async move { cancel.cancelled().await }).await;
        let Ok(Some(job)) = acquired else { break };
        jobs.0.running.fetch_add(1, Ordering::SeqCst);
        let killed = async {
            stop.cancelled().await;
            // The grace period of the pod: tests choose it.
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            permit = jobs.0.may_finish.acquire() => {
                permit.unwrap().forget();
                joined.calls.complete_job(&import_result(&job.job_id)).await.unwrap();
                jobs.0.finished.fetch_add(1, Ordering::SeqCst);
            }
            () = killed => {
                jobs.0.killed.fetch_add(1, Ordering::SeqCst);
            }
        }
        jobs.0.running.fetch_sub(1, Ordering::SeqCst);
        if is_once || stop.is_cancelled() {
            break;
        }
    }
    joined.leave().await;
}

async fn join(client: &Client, pod: &Pod) -> Option<FakeDaemon> {
    let variables = environment(client, pod).await?;
    let server = Coder::new(&variables["CODER_URL"], None, Options::default()).ok()?;
    let key = Credential::Key(Secret::new(&variables["CODER_PROVISIONER_DAEMON_KEY"]));
    let name = &variables["CODER_PROVISIONER_DAEMON_NAME"];
    FakeDaemon::join(&server, &ServeProvisionerDaemonRequest::new(key, name, BUILD_VERSION)).await.ok()
}

/// Evicts a pod, as a drained node does. Returns the status of the answer.
pub(crate) async fn evict(client: &Client, namespace: &str, pod: &str) -> u16 {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods
        .evict(pod, &kube::api::EvictParams { post_options: PostParams::default(), ..Default::default() })
        .await
    {
        Ok(_) => 201,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}
