//! The whole in Kubernetes: `coder operator`, `coder server` and the daemons of pods as processes, real Terraform, and a real
//! API server. The operator has exactly the permissions that are shipped.

use std::path::PathBuf;
use std::time::Duration;

use coder_api::builds::WorkspaceBuild;
use coder_api::client::{Client as Coder, JobFilter, Options};
use coder_api::keys::ProvisionerKey;
use coder_api::organizations::Organization;
use coder_api::workspaces::{CreateWorkspaceRequest, Workspace};
use coder_domain::secret::Secret;
use coder_testkit::kubernetes::{
    Cluster, Counts, Kubelet, Services, Settings, apply, cluster, documents, rendered,
};
use coder_testkit::wait::poll_within;
use k8s_openapi::api::core::v1::{Namespace, Secret as KubeSecret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::end_to_end::write;
use crate::processes::{Process, Server, sign_up};
use crate::program::{Home, binary};

/// Several controllers, processes and builds pass before some conditions hold.
const WAIT_LIMIT: Duration = Duration::from_secs(180);

/// A namespace with a kubelet and an operator of its own.
struct Stack {
    admin: Client,
    namespace: String,
    kubelet: Kubelet,
    operator: Process,
    services: Services,
    /// The directories of all processes: dropped last.
    _home: Home,
}

/// None without what it needs.
async fn start(control_planes: bool) -> Option<Stack> {
    if !coder_requirements::has(coder_requirements::Requirement::Terraform) {
        return None;
    }
    let cluster: &Cluster = cluster()?;
    let (admin, namespace) = (cluster.admin().await, cluster.namespace().await);
    let services = Services::start(admin.clone()).await;
    let mut home = Home::new();
    let directory = home.path().join("pods");
    std::fs::create_dir(&directory).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut variables = services.variables();
    variables.push(("PATH".to_owned(), path));
    let registry = home.path().join("registry").display().to_string();
    variables.push(("CODER_PROVISIONER_DAEMON_REGISTRY".to_owned(), registry));
    let settings =
        Settings { namespace: namespace.clone(), program: PathBuf::from(binary()), directory, variables };
    let kubelet = Kubelet::start(admin.clone(), settings).await;
    let kubeconfig = home.path().join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.operator_kubeconfig().await).unwrap();
    home.set("KUBECONFIG", kubeconfig.display().to_string());
    for (name, value) in services.variables() {
        home.set(&name, value);
    }
    let control_planes = format!("--control-planes={control_planes}");
    let arguments = [
        "operator",
        "--namespace",
        &namespace,
        "--leader-election=false",
        "--http-address=",
        &control_planes,
    ];
    let operator = Process::start(&home, &arguments, "operator.log");
    Some(Stack { admin, namespace, kubelet, operator, services, _home: home })
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", kind))
}

impl Stack {
    async fn apply(&self, kind: &str, name: &str, spec: Value) {
        let metadata = json!({"name": name, "namespace": self.namespace});
        let object =
            json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
        apply(&self.admin, object).await;
    }

    fn pools(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), &self.namespace, &resource("CoderProvisioner"))
    }

    async fn status(&self, pool: &str) -> Value {
        let found = self.pools().get_opt(pool).await.unwrap();
        found.map(|pool| pool.data["status"].clone()).unwrap_or_default()
    }

    async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        if poll_within(WAIT_LIMIT, async || condition().await.then_some(())).await.is_none() {
            let status = self.status("linux").await;
            panic!("not in time: {what}: {status:#}\n{}\n{}", self.operator.log(), self.kubelet.logs());
        }
    }

    /// Waits until the pool has connected daemons, at least this many.
    async fn until_connected(&self, pool: &str, count: i64) {
        self.until("connected daemons", async || {
            self.status(pool).await["connected"].as_i64() >= Some(count)
        })
        .await;
    }

    fn counts(&self) -> Counts {
        self.kubelet.counts()
    }
}

/// A server outside the cluster, its first user, and the user's session.
struct Outside {
    server: Server,
    user: Home,
    api: Coder,
    organization: Organization,
}

async fn session(url: &str, user: &Home) -> (Coder, Organization) {
    let token = Secret::new(std::fs::read_to_string(user.config().join("session")).unwrap());
    let api = Coder::new(url, Some(token), Options::default()).unwrap();
    let organization = api.organization("default").await.unwrap();
    (api, organization)
}

impl Outside {
    /// Starts a server, and puts its owner's token into the namespace.
    async fn start(stack: &Stack) -> Self {
        let server = Server::start(&[]);
        let user = server.first_user();
        let (api, organization) = session(&server.url, &user).await;
        let token = api.token().unwrap().expose().to_owned();
        let metadata = json!({"name": "token", "namespace": stack.namespace});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": token}});
        apply(&stack.admin, secret).await;
        Self { server, user, api, organization }
    }

    fn access(&self) -> Value {
        json!({"url": self.server.url, "tokenSecretRef": {"name": "token"}})
    }

    async fn keys(&self) -> Vec<ProvisionerKey> {
        self.api.provisioner_keys(self.organization.id).await.unwrap()
    }

    /// Makes a workspace, whose build then waits for a daemon.
    async fn create(&self, template: &str, name: &str) -> Workspace {
        let template = self.api.template_by_name(self.organization.id, template).await.unwrap();
        let request = CreateWorkspaceRequest {
            template_id: Some(template.id),
            name: name.to_owned(),
            ..CreateWorkspaceRequest::default()
        };
        self.api.create_workspace("me", &request).await.unwrap()
    }

    async fn latest(&self, workspace: &Workspace) -> WorkspaceBuild {
        self.api.workspace(workspace.id).await.unwrap().latest_build
    }

    /// The states of all jobs.
    async fn states(&self) -> Vec<String> {
        let filter = JobFilter { limit: Some(1000), ..JobFilter::default() };
        let jobs = self.api.jobs(self.organization.id, &filter).await.unwrap();
        jobs.iter().map(|job| job.status.to_string()).collect()
    }
}

fn push(user: &Home, name: &str, text: &str, tag: &str) {
    let directory = write(user, name, text);
    user.run(&["templates", "push", name, "-d", &directory, "--provisioner-tag", tag, "-y"]).success();
}

const PLAIN: &str = "resource \"terraform_data\" \"x\" {}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_builds_twenty_jobs_from_zero_and_returns_to_zero() {
    let Some(stack) = start(false).await else { return };
    let outside = Outside::start(&stack).await;
    let scaling = json!({"maxReplicas": 4, "scaleDown": {"stabilizationSeconds": 3}});
    let spec = json!({"coder": outside.access(), "tags": {"os": "linux"}, "autoscaling": scaling});
    stack.apply("CoderProvisioner", "linux", spec).await;
    stack.until("the pool is ready", async || stack.status("linux").await["phase"] == "ScaledToZero").await;
    assert_eq!(stack.counts().started, 0);

    // The import of the template is the first job: one daemon comes for it.
    push(&outside.user, "plain", PLAIN, "os=linux");
    let mut workspaces = Vec::new();
    for number in 0..20 {
        workspaces.push(outside.create("plain", &format!("workspace-{number}")).await);
    }
    stack
        .until("all builds end", async || {
            outside.states().await.iter().all(|state| state == "succeeded" || state == "failed")
        })
        .await;
    let states = outside.states().await;
    assert!(states.len() == 21 && states.iter().all(|state| state == "succeeded"), "{states:?}");
    stack
        .until("the pool is at zero", async || {
            let status = stack.status("linux").await;
            status["replicas"] == 0 && status["phase"] == "ScaledToZero"
        })
        .await;
    let counts = stack.counts();
    assert!(counts.started >= 2, "the pool grew: {counts:?}");
    // A drained daemon ends; its container may be started again before its pod goes.
    assert_eq!(counts.killed, 0, "{}", stack.kubelet.logs());
    let state = outside.user.run(&["state", "pull", "workspace-7"]).success().out;
    assert!(state.contains("terraform_data"), "{state}");
    assert_eq!(outside.keys().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_rotated_and_tags_changed_in_the_middle_of_a_build_lose_nothing() {
    let Some(stack) = start(false).await else { return };
    let outside = Outside::start(&stack).await;
    let spec = json!({"coder": outside.access(), "tags": {"os": "linux"}});
    stack.apply("CoderProvisioner", "linux", spec).await;
    stack.until_connected("linux", 1).await;
    let gate = outside.user.path().join("gate");
    let text = format!(
        "resource \"terraform_data\" \"slow\" {{\n  provisioner \"local-exec\" {{\n    command = \"while [ ! -e {} ]; do sleep 0.1; done\"\n  }}\n}}\n",
        gate.display()
    );
    push(&outside.user, "slow", &text, "os=linux");
    let workspace = outside.create("slow", "patient").await;
    stack.until("the build runs", async || stack.status("linux").await["busy"] == 1).await;
    let first = outside.keys().await.remove(0);

    let rotate = json!({"metadata": {"annotations": {"coder.com/rotate-key": "1"}}});
    stack.pools().patch("linux", &PatchParams::default(), &Patch::Merge(&rotate)).await.unwrap();
    let active = async || {
        let status = stack.status("linux").await;
        let keys = status["keys"].as_array().cloned().unwrap_or_default();
        keys.into_iter().find(|key| key["state"] == "Active").map(|key| key["id"].clone())
    };
    stack.until("another key", async || active().await.is_some_and(|id| id != json!(first.id))).await;
    let second = active().await;
    let tags = json!({"spec": {"tags": {"os": "linux", "gpu": "yes"}}});
    stack.pools().patch("linux", &PatchParams::default(), &Patch::Merge(&tags)).await.unwrap();
    stack.until("a third key", async || active().await.is_some() && active().await != second).await;
    assert!(outside.keys().await.iter().any(|key| key.id == first.id), "the build still needs the first key");
    assert_eq!(outside.latest(&workspace).await.job.status.to_string(), "running");

    std::fs::write(&gate, "").unwrap();
    stack
        .until("the build ends", async || {
            outside.latest(&workspace).await.job.status.to_string() != "running"
        })
        .await;
    assert_eq!(outside.latest(&workspace).await.job.status.to_string(), "succeeded");
    stack.until("one key is left", async || outside.keys().await.len() == 1).await;
    assert_eq!(outside.keys().await[0].tags.get("gpu"), Some("yes"));
    assert_eq!(stack.counts().killed, 0, "{}", stack.kubelet.logs());

    // The next build runs with the new key, and a second one runs while the namespace is deleted.
    std::fs::remove_file(&gate).unwrap();
    let last = outside.create("slow", "last").await;
    stack.until("it runs", async || outside.latest(&last).await.job.status.to_string() == "running").await;
    let namespaces: Api<Namespace> = Api::all(stack.admin.clone());
    namespaces.delete(&stack.namespace, &DeleteParams::default()).await.unwrap();
    std::fs::write(&gate, "").unwrap();
    stack
        .until("the namespace is gone", async || {
            namespaces.get_opt(&stack.namespace).await.unwrap().is_none()
        })
        .await;
    assert_eq!(outside.keys().await, [], "{}", stack.operator.log());
    assert_eq!(outside.latest(&last).await.job.status.to_string(), "succeeded");
    assert_eq!(stack.counts().killed, 0, "{}", stack.kubelet.logs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_manifest_runs_a_server_and_a_pool_joins_it() {
    let Some(stack) = start(true).await else { return };
    let daemons = json!([{"name": "CODER_PROVISIONER_DAEMONS", "value": "0"}]);
    let plane =
        json!({"image": "example/coder:1", "database": {"storage": {"size": "1Gi"}}, "extraEnv": daemons});
    stack.apply("CoderControlPlane", "coder", plane).await;
    // A pool as the official operator takes it.
    for mut pool in documents("../examples/kubernetes/operator/official.yaml") {
        pool["metadata"]["namespace"] = json!(stack.namespace);
        apply(&stack.admin, pool).await;
    }
    stack.until_connected("kubernetes", 2).await;
    let planes: Api<DynamicObject> =
        Api::namespaced_with(stack.admin.clone(), &stack.namespace, &resource("CoderControlPlane"));
    stack
        .until("both are ready", async || {
            planes.get("coder").await.unwrap().data["status"]["phase"] == "Ready"
                && stack.status("kubernetes").await["phase"] == "Ready"
        })
        .await;
    // People sign in with the password that the operator made.
    let secrets: Api<KubeSecret> = Api::namespaced(stack.admin.clone(), &stack.namespace);
    let admin = secrets.get("coder-initial-admin").await.unwrap().data.unwrap();
    let entry = |name: &str| String::from_utf8(admin[name].0.clone()).unwrap();
    assert!(entry("password").len() >= 40);
    let url = format!("http://coder.{}.svc.cluster.local:80", stack.namespace);
    let mut user = Home::new();
    for (name, value) in stack.services.variables() {
        user.set(&name, value);
    }
    let api = Coder::new(&url, None, options(&stack)).unwrap();
    let token = api.login(&entry("email"), Secret::new(entry("password"))).await.unwrap();
    user.set("CODER_URL", &url).set("CODER_SESSION_TOKEN", token.expose());
    push(&user, "plain", PLAIN, "environment=kubernetes");
    user.run(&["create", "mine", "--template", "plain", "-y"]).success();
    assert_eq!(user.run(&["list", "-c", "workspace,status"]).success().out.matches("mine").count(), 1);

    // The server's pod is replaced on the same volume; what was built is still there.
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(stack.admin.clone(), &stack.namespace);
    let of_server = kube::api::ListParams::default().labels("app.kubernetes.io/name=coder-control-plane");
    let name = pods.list(&of_server).await.unwrap().items[0].name_any();
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    stack.until("the pod ends", async || pods.get_opt(&name).await.unwrap().is_none()).await;
    stack
        .until("the server answers again", async || {
            api.with_token(Some(token.clone()))
                .workspaces("")
                .await
                .is_ok_and(|page| page.workspaces.len() == 1)
        })
        .await;
    assert_eq!(stack.counts().killed, 0, "{}", stack.kubelet.logs());
}

/// What `helm install` of two charts makes, by their default values.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_a_daemon_of_the_charts_build_a_workspace() {
    let Some(helm) = coder_requirements::program(coder_requirements::Requirement::Helm) else { return };
    let Some(stack) = start(false).await else { return };
    let install = async |chart: &str, set: &[&str]| {
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set-string", set]).collect();
        let arguments = [&["--set", "coder.image.tag=1"], &set[..]].concat();
        for object in rendered(&helm, chart, &stack.namespace, &arguments) {
            apply(&stack.admin, object).await;
        }
    };
    install("coder", &["coder.env[0].name=CODER_PROVISIONER_DAEMONS", "coder.env[0].value=0"]).await;
    let url = format!("http://coder.{}.svc.cluster.local", stack.namespace);
    let api = Coder::new(&url, None, options(&stack)).unwrap();
    stack.until("the server answers", async || api.build_info().await.is_ok()).await;
    let mut user = Home::new();
    for (name, value) in stack.services.variables() {
        user.set(&name, value);
    }
    let user = sign_up(user, &url);

    // As docs/operators/kubernetes.md describes it.
    let key = user.run(&["provisioner", "keys", "create", "auh", "--tag", "location=auh"]).success().out;
    let metadata = json!({"name": "coder-provisioner-auh", "namespace": stack.namespace});
    let entries = json!({"key": format!("{}\n", key.lines().last().unwrap())});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": entries});
    apply(&stack.admin, secret).await;
    let set = [
        "coder.env[0].name=CODER_PROMETHEUS_ENABLE",
        "coder.env[0].value=true",
        "provisionerDaemon.keySecretName=coder-provisioner-auh",
    ];
    install("coder-provisioner", &set).await;
    push(&user, "plain", PLAIN, "location=auh");
    user.run(&["create", "mine", "--template", "plain", "-y"]).success();
    let list = user.run(&["provisioner", "list", "-c", "key name,status"]).success().out;
    assert!(list.lines().any(|line| line.contains("auh") && line.contains("idle")), "{list}");
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(stack.admin.clone(), &stack.namespace);
    for name in ["coder", "coder-provisioner"] {
        stack
            .until("the pods are ready", async || {
                let status = deployments.get(name).await.unwrap().status.unwrap_or_default();
                status.available_replicas == Some(1)
            })
            .await;
    }
    assert_eq!(stack.counts().restarted, 0, "{}", stack.kubelet.logs());
}

/// A client in this process, through the network of services.
fn options(stack: &Stack) -> Options {
    let variables = stack.services.variables();
    let find = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    Options { proxies: coder_api::client::Proxies::from_lookup(find), ..Options::default() }
}
