//! A real API server with etcd and the controller manager on loopback: one for all tests of this program.
//!
//! The programs are children of a shell that waits for the end of its input. When this process ends, however it ends, the
//! shell kills them and removes their directory.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::wait::poll_within;

/// How long the API server may take to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The files of the custom resources below `deploy/`.
const DEFINITIONS: &[&str] =
    &["crds/coder.com_codercontrolplanes.yaml", "crds/coder.com_coderprovisioners.yaml"];
const PERMISSIONS: &[&str] = &["operator/rbac.yaml"];

/// The programs, their address, and the administrator's token.
pub struct Cluster {
    directory: PathBuf,
    url: String,
    token: String,
    /// Their end ends the programs.
    guardians: Vec<Child>,
}

/// The cluster; none when the programs are missing, and then the test is recorded as skipped.
#[track_caller]
pub fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    let programs = programs()?;
    Some(CLUSTER.get_or_init(|| start(programs, [DEFINITIONS, PERMISSIONS].concat())))
}

/// Another cluster without our definitions, for a test that installs its own; none when the programs are missing.
#[track_caller]
pub fn cluster_without_definitions() -> Option<&'static Cluster> {
    Some(Box::leak(Box::new(start(programs()?, PERMISSIONS.to_vec()))))
}

#[track_caller]
fn programs() -> Option<PathBuf> {
    if !coder_requirements::has(coder_requirements::Requirement::Kubernetes) {
        return None;
    }
    coder_requirements::directory(coder_requirements::Requirement::Kubernetes)
}

fn start(programs: PathBuf, files: Vec<&'static str>) -> Cluster {
    // On a thread of its own, because it waits for a runtime of its own.
    let start = move || {
        let cluster = Cluster::start(&programs);
        cluster.install(&files);
        cluster
    };
    std::thread::spawn(start).join().expect("the cluster starts")
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts programs below a shell that ends them and then does `last`.
fn guard(directory: &Path, programs: &[(&str, Vec<String>)], last: &str) -> Child {
    let mut script = "pids=\n".to_owned();
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    for (program, arguments) in programs {
        let name = Path::new(program).file_name().unwrap().to_str().unwrap();
        let line: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
        script.push_str(&format!(
            "{} {} >{name}.log 2>&1 </dev/null & pids=\"$pids $!\"\n",
            quoted(program),
            line.join(" ")
        ));
    }
    script.push_str(&format!("read -r _\nkill -9 $pids\nwait\n{last}\n"));
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", &script]).current_dir(directory).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start the programs of the cluster")
}

impl Cluster {
    fn start(programs: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("coder-kubernetes-").tempdir().unwrap().keep();
        let text =
            |arguments: &[&str]| arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(directory.join("sa.key"), key.serialize_pem()).unwrap();
        std::fs::write(directory.join("sa.pub"), key.public_key_pem()).unwrap();
        let token = "an-administrator-of-a-cluster-on-loopback".to_owned();
        std::fs::write(directory.join("tokens.csv"), format!("{token},admin,admin,\"system:masters\"\n"))
            .unwrap();
        let [etcd, peer, api, manager] = [port(), port(), port(), port()];
        let at = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd_arguments = vec![
            "--data-dir=etcd".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            format!("--listen-client-urls={}", at(etcd)),
            format!("--advertise-client-urls={}", at(etcd)),
            format!("--listen-peer-urls={}", at(peer)),
            format!("--initial-advertise-peer-urls={}", at(peer)),
            format!("--initial-cluster=default={}", at(peer)),
        ];
        let mut api_arguments = text(&[
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--cert-dir=certs",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=sa.pub",
            "--service-account-signing-key-file=sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
            "--profiling=false",
        ]);
        api_arguments.push(format!("--etcd-servers={}", at(etcd)));
        api_arguments.push(format!("--secure-port={api}"));
        let program = |name: &str| programs.join(name).to_str().unwrap().to_owned();
        let first = guard(
            &directory,
            &[("etcd", etcd_arguments), (&program("kube-apiserver"), api_arguments)],
            "cd /\nrm -rf \"$OLDPWD\"",
        );
        let mut cluster =
            Self { directory, url: format!("https://127.0.0.1:{api}"), token, guardians: vec![first] };
        cluster.wait();
        let kubeconfig = cluster.kubeconfig(&cluster.token);
        std::fs::write(cluster.directory.join("kubeconfig"), kubeconfig).unwrap();
        let mut arguments = text(&[
            "--kubeconfig=kubeconfig",
            "--authentication-kubeconfig=kubeconfig",
            "--authorization-kubeconfig=kubeconfig",
            "--bind-address=127.0.0.1",
            "--cert-dir=manager-certs",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            "--service-account-private-key-file=sa.key",
            "--root-ca-file=certs/apiserver.crt",
            "--controllers=deployment-controller,replicaset-controller,job-controller,garbage-collector-controller,namespace-controller,serviceaccount-controller,disruption-controller,ttl-after-finished-controller,horizontal-pod-autoscaler-controller",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--horizontal-pod-autoscaler-downscale-stabilization=1s",
        ]);
        arguments.push(format!("--secure-port={manager}"));
        cluster.guardians.push(guard(
            &cluster.directory,
            &[(&program("kube-controller-manager"), arguments)],
            "",
        ));
        cluster
    }

    /// A kubeconfig for this token.
    fn kubeconfig(&self, token: &str) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "clusters": [{"name": "test", "cluster": {
                "server": self.url,
                "certificate-authority": self.directory.join("certs/apiserver.crt"),
            }}],
        })
        .to_string()
    }

    /// Waits until the API server is ready.
    fn wait(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ready = poll_within(START_TIMEOUT, async || {
                if !self.directory.join("certs/apiserver.crt").exists() {
                    return None;
                }
                let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
                let answer = self.client(&self.token).await.request_text(request).await;
                answer.is_ok_and(|text| text == "ok").then_some(())
            });
            assert!(ready.await.is_some(), "the API server is not ready: {}", self.logs());
        });
    }

    fn logs(&self) -> String {
        let mut text = String::new();
        for name in ["etcd.log", "kube-apiserver.log"] {
            if let Ok(mut file) = std::fs::File::open(self.directory.join(name)) {
                let mut whole = String::new();
                drop(file.read_to_string(&mut whole));
                let start = whole.len().saturating_sub(2000);
                text.push_str(whole.get(start..).unwrap_or_default());
            }
        }
        text
    }

    async fn client(&self, token: &str) -> Client {
        // A second installation does nothing.
        drop(rustls::crypto::ring::default_provider().install_default());
        let config = Kubeconfig::from_yaml(&self.kubeconfig(token)).unwrap();
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        // An eviction that a budget refuses is answered with 429, which the client would repeat.
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    /// A client that may do everything.
    pub async fn admin(&self) -> Client {
        self.client(&self.token).await
    }

    /// A client with exactly the permissions of `deploy/operator/rbac.yaml`.
    pub async fn operator(&self) -> Client {
        self.client(&self.operator_token().await).await
    }

    /// A kubeconfig with exactly these permissions.
    pub async fn operator_kubeconfig(&self) -> String {
        self.kubeconfig(&self.operator_token().await)
    }

    /// A kubeconfig that may do everything.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> String {
        self.kubeconfig(&self.token)
    }

    /// A kubeconfig with the permissions of a service account; none if there is no such account.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str) -> Option<String> {
        Some(self.kubeconfig(&self.token_of(namespace, account).await?))
    }

    async fn operator_token(&self) -> String {
        self.token_of("coder-operator", "coder-operator").await.expect("the account of the operator")
    }

    async fn token_of(&self, namespace: &str, account: &str) -> Option<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await, namespace);
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        let made = accounts.create_token_request(account, &PostParams::default(), &request).await;
        Some(made.ok()?.status?.token)
    }

    /// A new namespace.
    pub async fn namespace(&self) -> String {
        let api: Api<Namespace> = Api::all(self.admin().await);
        let namespace = json!({"metadata": {"generateName": "test-"}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        api.create(&PostParams::default(), &namespace).await.unwrap().metadata.name.unwrap()
    }

    /// Installs the definitions that are shipped, in place of others.
    pub async fn install_definitions(&self) {
        let admin = self.admin().await;
        for object in DEFINITIONS.iter().flat_map(|file| documents(file)) {
            apply(&admin, object).await;
        }
    }

    /// Installs what is shipped.
    fn install(&self, files: &[&str]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let admin = self.admin().await;
            apply(
                &admin,
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "coder-operator"}}),
            )
            .await;
            for file in files {
                for object in documents(file) {
                    apply(&admin, object).await;
                }
            }
            if files.iter().any(|file| DEFINITIONS.contains(file)) {
                self.until_served().await;
            }
        });
    }

    /// Waits until the API server serves the custom resources.
    pub async fn until_served(&self) {
        let admin = self.admin().await;
        for resource in ["coderprovisioners", "codercontrolplanes"] {
            let request = || {
                http::Request::get(format!("/apis/coder.com/v1alpha1/{resource}")).body(Vec::new()).unwrap()
            };
            let served = poll_within(START_TIMEOUT, async || admin.request_text(request()).await.ok());
            assert!(served.await.is_some(), "{resource} are not served");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for guardian in &mut self.guardians {
            if let Some(input) = &mut guardian.stdin {
                drop(input.write_all(b"\n"));
            }
        }
    }
}

/// The documents of a file below `deploy/`.
pub fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The objects that Helm renders of a chart below `deploy/helm/`.
pub fn rendered(helm: &Path, chart: &str, namespace: &str, arguments: &[&str]) -> Vec<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm").join(chart);
    let mut command = Command::new(helm);
    command.args(["template", "release", "--namespace", namespace, "--kube-version", "1.33.0"]);
    let output = command.args(arguments).arg(directory).output().unwrap();
    assert!(output.status.success(), "{chart}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text.split("\n---").map(|document| document.trim_start_matches("---"));
    documents.filter_map(|document| serde_saphyr::from_str::<Option<Value>>(document).unwrap()).collect()
}

/// Applies an object of any kind.
pub async fn apply(client: &Client, object: Value) -> DynamicObject {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    // As kubectl does: unknown fields are errors.
    let parameters = PatchParams::apply("test").force().validation_strict();
    api.patch(text("/metadata/name"), &parameters, &Patch::Apply(&object))
        .await
        .unwrap_or_else(|error| panic!("{error}: {object}"))
}
