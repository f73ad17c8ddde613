//! A kubelet without containers: each pod of a namespace becomes a local process of one program.
//!
//! It binds pods, resolves their variables and volumes, asks the startup and readiness probes, restarts what ended, and ends
//! deleted pods as a real one does: SIGTERM, the grace period, SIGKILL. It does not isolate pods and ignores limits and images.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coder_domain::Timestamp;
use coder_domain::clock::{Clock as _, SystemClock};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::pod::{self, Mounts};

/// Time between two looks at the pods.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a kubelet runs.
pub struct Settings {
    /// The namespace whose pods it runs.
    pub namespace: String,
    /// The program behind the command `coder` of every image.
    pub program: PathBuf,
    /// Where volumes and logs are.
    pub directory: PathBuf,
    /// Variables of every pod, after its own.
    pub variables: Vec<(String, String)>,
}

/// What happened so far.
#[derive(Default)]
struct Counters {
    started: AtomicUsize,
    restarted: AtomicUsize,
    killed: AtomicUsize,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Pods whose process was started.
    pub started: usize,
    /// Processes that ended although their pod goes on, and were started again.
    pub restarted: usize,
    /// Processes that did not end within their grace period.
    pub killed: usize,
}

/// A running kubelet. Its processes end with it.
pub struct Kubelet {
    counters: Arc<Counters>,
    directory: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelet {
    /// Begins to run pods.
    pub async fn start(client: Client, settings: Settings) -> Self {
        let nodes: Api<Node> = Api::all(client.clone());
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(&settings.namespace)}});
        nodes.create(&Default::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let counters = Arc::new(Counters::default());
        let directory = settings.directory.clone();
        let runner = Runner { client, settings, counters: Arc::clone(&counters), running: BTreeMap::new() };
        Self { counters, directory, task: tokio::spawn(runner.run()) }
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        let counters = &self.counters;
        Counts {
            started: of(&counters.started),
            restarted: of(&counters.restarted),
            killed: of(&counters.killed),
        }
    }

    /// The logs of all pods, for a failed test.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
                text.push_str(&format!("--- {}\n{log}", entry.path().display()));
            }
        }
        text
    }
}

fn node_name(namespace: &str) -> String {
    format!("node-of-{namespace}")
}

/// A pod with a process.
struct Running {
    ip: Ipv4Addr,
    mounts: Mounts,
    log: PathBuf,
    child: Child,
    restarts: i32,
    has_started: bool,
    is_ready: bool,
    /// When it is killed, once it was asked to end.
    ends_at: Option<Instant>,
    has_exited: bool,
}

struct Runner {
    client: Client,
    settings: Settings,
    counters: Arc<Counters>,
    running: BTreeMap<String, Running>,
}

impl Runner {
    async fn run(mut self) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        loop {
            let found = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
            for pod in found {
                let uid = pod.uid().unwrap();
                let has_ended = pod
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref())
                    .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
                if pod.metadata.deletion_timestamp.is_some() {
                    self.end(&pods, &pod, &uid).await;
                } else if self.running.contains_key(&uid) {
                    self.follow(&pods, &pod, &uid).await;
                } else if !has_ended {
                    self.begin(&pods, &pod, uid).await;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn begin(&mut self, pods: &Api<Pod>, pod: &Pod, uid: String) {
        let Some(mounts) = pod::mounts(&self.client, pod, &self.settings.directory).await else { return };
        let (ip, log) = (pod::address(), self.settings.directory.join(format!("{}.log", pod.name_any())));
        let Some(child) = self.spawn(pod, &mounts, &log, ip).await else { return };
        bind(&self.client, &self.settings.namespace, &pod.name_any()).await;
        self.counters.started.fetch_add(1, Ordering::SeqCst);
        let running = Running {
            ip,
            mounts,
            log,
            child,
            restarts: 0,
            has_started: false,
            is_ready: false,
            ends_at: None,
            has_exited: false,
        };
        report(pods, pod, &running, "Running").await;
        self.running.insert(uid, running);
    }

    async fn spawn(&self, pod: &Pod, mounts: &Mounts, log: &std::path::Path, ip: Ipv4Addr) -> Option<Child> {
        let (program, variables) = (&self.settings.program, &self.settings.variables);
        pod::start(&self.client, pod, program, variables, mounts, log, ip).await
    }

    /// Restarts what ended, and asks the probes.
    async fn follow(&mut self, pods: &Api<Pod>, pod: &Pod, uid: &str) {
        let Some(mut running) = self.running.remove(uid) else { return };
        if let Some(status) = running.child.try_wait().unwrap() {
            let policy = pod.spec.as_ref().unwrap().restart_policy.as_deref();
            if policy == Some("Never") {
                report(pods, pod, &running, if status.success() { "Succeeded" } else { "Failed" }).await;
                return;
            }
            if let Some(child) = self.spawn(pod, &running.mounts, &running.log, running.ip).await {
                self.counters.restarted.fetch_add(1, Ordering::SeqCst);
                running.restarts += 1;
                (running.child, running.has_started, running.is_ready) = (child, false, false);
                report(pods, pod, &running, "Running").await;
            }
            self.running.insert(uid.to_owned(), running);
            return;
        }
        let container = pod::container(pod);
        let probe = if running.has_started { &container.readiness_probe } else { &container.startup_probe };
        let is_good = match probe.as_ref().and_then(|probe| pod::target(container, probe)) {
            Some((path, port)) => answers(running.ip, port, path).await,
            None => true,
        };
        if !running.has_started {
            running.has_started = is_good;
        } else if is_good != running.is_ready {
            running.is_ready = is_good;
            report(pods, pod, &running, "Running").await;
        }
        self.running.insert(uid.to_owned(), running);
    }

    /// Ends the process of a deleted pod, and then the pod.
    async fn end(&mut self, pods: &Api<Pod>, pod: &Pod, uid: &str) {
        if let Some(running) = self.running.get_mut(uid) {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30).unsigned_abs();
            let now = Instant::now();
            let ends_at = match running.ends_at {
                Some(at) => at,
                None => {
                    signal(&running.child, "TERM").await;
                    *running.ends_at.insert(now + Duration::from_secs(grace))
                }
            };
            running.has_exited = running.child.try_wait().unwrap().is_some();
            if !running.has_exited {
                if now < ends_at {
                    return;
                }
                self.counters.killed.fetch_add(1, Ordering::SeqCst);
                running.child.kill().await.unwrap();
            }
            self.running.remove(uid);
        }
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        drop(pods.delete(&pod.name_any(), &at_once).await);
    }
}

async fn signal(child: &Child, name: &str) {
    let Some(id) = child.id() else { return };
    drop(tokio::process::Command::new("kill").args(["-s", name, &id.to_string()]).status().await);
}

async fn bind(client: &Client, namespace: &str, pod: &str) {
    let target = json!({"kind": "Node", "name": node_name(namespace)});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target});
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding"))
        .header("content-type", "application/json")
        .body(binding.to_string().into_bytes())
        .unwrap();
    // A pod that is bound already stays so.
    drop(client.request_text(request).await);
}

async fn report(pods: &Api<Pod>, pod: &Pod, running: &Running, phase: &str) {
    // The API has seconds.
    let now = Timestamp::from_second(SystemClock.now().as_second()).unwrap().to_string();
    let ready = if running.is_ready && phase == "Running" { "True" } else { "False" };
    let container = pod::container(pod);
    let state = match phase {
        "Running" => json!({"running": {"startedAt": now}}),
        phase => json!({"terminated": {"exitCode": i32::from(phase == "Failed"), "reason": phase}}),
    };
    let status = json!({"status": {
        "phase": phase,
        "startTime": now,
        "podIP": running.ip,
        "podIPs": [{"ip": running.ip}],
        "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": now},
            {"type": "ContainersReady", "status": ready, "lastTransitionTime": now},
        ],
        "containerStatuses": [{
            "name": container.name, "image": container.image, "imageID": "", "restartCount": running.restarts,
            "ready": ready == "True", "started": running.has_started, "state": state,
        }],
    }});
    drop(pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await);
}

/// Whether a probe gets a good answer.
async fn answers(ip: Ipv4Addr, port: u16, path: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(SocketAddr::from((ip, port))).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {ip}:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.ok()?;
        Some(head.ends_with(b" 200"))
    };
    tokio::time::timeout(PROBE_TIMEOUT, ask).await.ok().flatten().unwrap_or(false)
}
