//! A namespace of the cluster with an operator, a server, and a kubelet of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coder_api::client::JobFilter;
use coder_api::keys::ProvisionerKey;
use coder_api::organizations::Organization;
use coder_api::versions::{CreateTemplateVersionRequest, TemplateVersion};
use coder_domain::clock::SystemClock;
use coder_operator::Config;
use coder_operator::crd::{CoderProvisioner, CoderProvisionerStatus};
use coder_testkit::server::TestServer;
use coder_testkit::wait::poll_within;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;
use crate::kubelet::{self, JobsHandle};
use coder_testkit::kubernetes::{Cluster, apply, cluster};

/// Deadline of every wait: scaling and rollouts pass through several controllers.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) cluster: &'static Cluster,
    pub(crate) namespace: String,
    pub(crate) admin: Client,
    pub(crate) server: TestServer,
    pub(crate) organization: Organization,
    pub(crate) jobs: JobsHandle,
    /// Whether the operator keeps control planes.
    pub(crate) control_planes: bool,
    /// Where the operator serves its metrics and the external scaler.
    pub(crate) pages: Option<SocketAddr>,
    operator: Option<(CancellationToken, JoinHandle<()>)>,
    kubelet: CancellationToken,
}

impl World {
    /// Everything, and a Secret `token` with the administrator's token. None without the programs.
    pub(crate) async fn start() -> Option<Self> {
        let mut world = Self::without_operator().await?;
        world.start_operator().await;
        Some(world)
    }

    pub(crate) async fn without_operator() -> Option<Self> {
        Some(Self::in_cluster(cluster()?).await)
    }

    pub(crate) async fn in_cluster(cluster: &'static Cluster) -> Self {
        let admin = cluster.admin().await;
        let namespace = cluster.namespace().await;
        let server = TestServer::start().await.unwrap();
        let organization = server.owner.organization("default").await.unwrap();
        let (jobs, kubelet) = (JobsHandle::default(), CancellationToken::new());
        tokio::spawn(kubelet::run(admin.clone(), namespace.clone(), jobs.clone(), kubelet.clone()));
        let world = Self {
            cluster,
            namespace,
            admin,
            server,
            organization,
            jobs,
            control_planes: false,
            pages: None,
            operator: None,
            kubelet,
        };
        let token = world.server.owner.token().unwrap().expose().to_owned();
        world.secret("token", &[("token", &token)]).await;
        world
    }

    /// Starts an operator for this namespace, with the permissions of the shipped ClusterRole.
    pub(crate) async fn start_operator(&mut self) {
        let stop = CancellationToken::new();
        let config = Config {
            namespace: Some(self.namespace.clone()),
            control_planes: self.control_planes,
            election: None,
        };
        let client = self.cluster.operator().await;
        let pages = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.pages = Some(pages.local_addr().unwrap());
        let run = coder_operator::run(client, config, Arc::new(SystemClock), Some(pages), stop.clone());
        self.operator = Some((stop, tokio::spawn(run)));
    }

    /// Kills the operator wherever it is.
    pub(crate) async fn kill_operator(&mut self) {
        if let Some((stop, task)) = self.operator.take() {
            task.abort();
            stop.cancel();
            drop(task.await);
        }
    }

    pub(crate) async fn secret(&self, name: &str, entries: &[(&str, &str)]) {
        let entries: BTreeMap<_, _> = entries.iter().copied().collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": self.namespace}, "stringData": entries});
        apply(&self.admin, secret).await;
    }

    /// A pool of the test's server; `spec` is put on top.
    pub(crate) async fn pool(&self, name: &str, spec: Value) {
        let mut whole = json!({"coder": {"url": self.server.url(), "tokenSecretRef": {"name": "token"}}});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        self.apply_pool(name, whole).await;
    }

    pub(crate) async fn apply_pool(&self, name: &str, spec: Value) {
        let pool = json!({
            "apiVersion": "coder.com/v1alpha1",
            "kind": "CoderProvisioner",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        });
        apply(&self.admin, pool).await;
    }

    /// A pool whose operator reaches the server through this gateway; its daemons reach it directly.
    pub(crate) async fn pool_behind(&self, gateway: &Gateway, name: &str, spec: Value) {
        let mut whole = json!({
            "coder": {"url": gateway.url, "tokenSecretRef": {"name": "token"}},
            "extraEnv": [{"name": "CODER_URL", "value": self.server.url()}],
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        self.apply_pool(name, whole).await;
    }

    pub(crate) async fn gateway(&self) -> Gateway {
        Gateway::start(self.server.handle.http.unwrap()).await
    }

    /// Kills the operator and starts another one, which asks the server everything again.
    pub(crate) async fn restart_operator(&mut self) {
        self.kill_operator().await;
        self.start_operator().await;
    }

    /// Waits until a pool does not exist any more.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.eventually("the pool is gone", async || self.pools().get_opt(name).await.unwrap().is_none())
            .await;
    }

    pub(crate) async fn pod_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.pods().await.iter().map(kube::ResourceExt::name_any).collect();
        names.sort();
        names
    }

    pub(crate) fn pools(&self) -> Api<CoderProvisioner> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    pub(crate) fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    pub(crate) async fn patch_pool(&self, name: &str, patch: Value) {
        self.pools().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn delete_pool(&self, name: &str) {
        self.pools().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn status(&self, name: &str) -> CoderProvisionerStatus {
        let pool = self.pools().get_opt(name).await.unwrap();
        pool.and_then(|pool| pool.status).unwrap_or_default()
    }

    /// Waits until the status of a pool is as wanted.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&CoderProvisionerStatus) -> bool,
    ) -> CoderProvisionerStatus {
        let mut status = self.status(name).await;
        let found = poll_within(WAIT_LIMIT, async || {
            status = self.status(name).await;
            wanted(&status).then_some(())
        });
        assert!(found.await.is_some(), "not in time: {what}: {status:#?}");
        status
    }

    /// Waits until a condition has this status and reason.
    pub(crate) async fn until_condition(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> CoderProvisionerStatus {
        self.until(name, &format!("{kind}={status} {reason}"), |found| {
            found.conditions.iter().any(|condition| {
                condition.type_ == kind && condition.status == status && condition.reason == reason
            })
        })
        .await
    }

    /// Waits until the pool has this many connected daemons, and nothing is left to do.
    pub(crate) async fn until_connected(&self, name: &str, count: i32) -> CoderProvisionerStatus {
        self.until(name, &format!("{count} connected daemons"), |status| {
            status.connected == count && status.replicas == count && status.keys.len() == 1
        })
        .await
    }

    /// Waits for anything else.
    pub(crate) async fn eventually(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let found = poll_within(WAIT_LIMIT, async || condition().await.then_some(()));
        assert!(found.await.is_some(), "not in time: {what}");
    }

    /// How many passes over resources the operator has made.
    pub(crate) async fn passes(&self) -> u64 {
        let (_, text) = page(self.pages.unwrap(), "/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix("coder_operator_reconcile_seconds_count "));
        line.unwrap().parse().unwrap()
    }

    /// The pods of a pool that are not being deleted.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default()).await.unwrap();
        pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    /// The keys of the server.
    pub(crate) async fn keys(&self) -> Vec<ProvisionerKey> {
        self.server.owner.provisioner_keys(self.organization.id).await.unwrap()
    }

    /// Imports templates, which are jobs with these tags.
    pub(crate) async fn queue(&self, count: usize, tags: &[(&str, &str)]) -> Vec<TemplateVersion> {
        let archive = archive();
        let file = self.server.owner.upload("application/x-tar", archive.into()).await.unwrap();
        let tags: BTreeMap<String, String> =
            tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut made = Vec::new();
        for _ in 0..count {
            let request = CreateTemplateVersionRequest {
                file_id: Some(file),
                tags: tags.clone(),
                ..CreateTemplateVersionRequest::default()
            };
            made.push(self.server.owner.create_version(self.organization.id, &request).await.unwrap());
        }
        made
    }

    /// The states of all jobs.
    pub(crate) async fn job_states(&self) -> Vec<String> {
        let filter = JobFilter { limit: Some(1000), ..JobFilter::default() };
        let jobs = self.server.owner.jobs(self.organization.id, &filter).await.unwrap();
        jobs.iter().map(|job| job.status.to_string()).collect()
    }

    /// The reasons of the Events about a pool.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<k8s_openapi::api::events::v1::Event> =
            Api::namespaced(self.admin.clone(), &self.namespace);
        let events = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &k8s_openapi::api::events::v1::Event| {
            event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some(name))
        };
        events.items.iter().filter(|event| about(event)).filter_map(|event| event.reason.clone()).collect()
    }

    /// Annotates a namespace, so that resources of others may have permissions in it.
    pub(crate) async fn accept_workspaces(&self, namespace: &str, from: &str) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let annotation =
            Patch::Merge(json!({"metadata": {"annotations": {"coder.com/workspaces-from": from}}}));
        namespaces.patch(namespace, &PatchParams::default(), &annotation).await.unwrap();
    }

    pub(crate) async fn deployment(&self, name: &str) -> Option<Deployment> {
        self.deployments().get_opt(name).await.unwrap()
    }

    pub(crate) async fn uid(&self, name: &str) -> String {
        self.pools().get(name).await.unwrap().uid().unwrap()
    }

    pub(crate) async fn stop(mut self) {
        if let Some((stop, task)) = self.operator.take() {
            stop.cancel();
            task.await.unwrap();
        }
        self.kubelet.cancel();
        self.server.stop().await.unwrap();
    }
}

/// A page of the operator: its status and its text.
pub(crate) async fn page(pages: SocketAddr, path: &str) -> (u16, String) {
    let stream = tokio::net::TcpStream::connect(pages).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", "operator").body(String::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// A template without resources.
fn archive() -> Vec<u8> {
    let text = b"terraform {}\n";
    let mut header = tar::Header::new_ustar();
    header.set_path("main.tf").unwrap();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, &text[..]).unwrap();
    archive.into_inner().unwrap()
}
