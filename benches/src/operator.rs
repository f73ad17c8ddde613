//! The operator with many pools, and how soon a pool follows the queue. It needs the Kubernetes programs of `tools/kubeenv`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use coder_domain::secret::Secret;
use coder_testkit::kubernetes::{Cluster, apply, cluster};
use coder_testkit::load::{Tags, Target};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::Setup;
use crate::process::{Database, Deployment, Running, cpu_seconds, resident_mib};
use crate::report::Row;

const POOL_COUNT: usize = 500;
const JOB_COUNT: usize = 10;
/// How long the operator may take to set all pools up.
const SETUP_TIMEOUT: Duration = Duration::from_secs(900);
/// After this time the work of the start is over.
const SETTLE_TIME: Duration = Duration::from_secs(20);
/// How long the processor time is measured. In this time the operator checks each pool once, even when nothing happens.
const MEASURED_TIME: Duration = Duration::from_secs(300);

/// Everything at rest, then ten jobs on an empty pool.
pub(crate) fn pools(setup: &Setup) -> Result<Vec<Row>> {
    let Some(cluster) = cluster() else {
        eprintln!("the programs of Kubernetes are missing: its rows are left out");
        return Ok(Vec::new());
    };
    let deployment = Deployment::start(setup, &Database::Sqlite, &["--provisioner-daemons=0"])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(measure(setup, cluster, &deployment))
}

async fn measure(setup: &Setup, cluster: &Cluster, server: &Deployment) -> Result<Vec<Row>> {
    let (admin, namespace) = (cluster.admin().await, cluster.namespace().await);
    let kubeconfig = server.folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.operator_kubeconfig().await)?;
    let token = server.token()?;
    let metadata = json!({"name": "token", "namespace": namespace});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": token.trim()}});
    apply(&admin, secret).await;
    for number in 0..POOL_COUNT {
        make(&admin, &namespace, &server.url(), &format!("pool-{number}")).await;
    }
    let operator = operator(&setup.coder, &kubeconfig, &namespace)?;
    let pools = pools_of(&admin, &namespace);
    let begun = Instant::now();
    while at_zero(&pools).await? < POOL_COUNT {
        if begun.elapsed() > SETUP_TIMEOUT {
            bail!("{} of {POOL_COUNT} pools are ready after {SETUP_TIMEOUT:?}", at_zero(&pools).await?);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let setup = begun.elapsed().as_secs_f64();
    tokio::time::sleep(SETTLE_TIME).await;
    let pid = operator.0.id();
    let before = cpu_seconds(pid)?;
    tokio::time::sleep(MEASURED_TIME).await;
    let share = (cpu_seconds(pid)? - before) / MEASURED_TIME.as_secs_f64() * 100.0;
    let memory = resident_mib(pid)?;
    let soon = follow(&pools, &server.url(), token.trim(), "pool-7").await?;
    Ok(vec![
        Row::seen(format!("operator: {POOL_COUNT} new pools until all are ready"), setup, "s"),
        Row::at_most(format!("operator with {POOL_COUNT} pools at rest, RSS"), memory, 60.0, "MiB"),
        Row::at_most(
            format!("operator with {POOL_COUNT} pools at rest, processor"),
            share,
            2.0,
            "% of a core",
        ),
        Row::at_most(format!("{JOB_COUNT} jobs for an empty pool → desired number written"), soon, 2.0, "s"),
    ])
}

fn operator(coder: &Path, kubeconfig: &Path, namespace: &str) -> Result<Running> {
    let arguments = ["operator", "--namespace", namespace, "--leader-election=false", "--http-address="];
    let mut command = Command::new(coder);
    command.args(arguments).env("KUBECONFIG", kubeconfig);
    Ok(Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

fn pools_of(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", "CoderProvisioner"));
    Api::namespaced_with(client.clone(), namespace, &kind)
}

/// A pool that scales from zero, with a tag of its own.
async fn make(client: &Client, namespace: &str, url: &str, name: &str) {
    let spec = json!({
        "coder": {"url": url, "tokenSecretRef": {"name": "token"}},
        "tags": {"pool": name},
        "autoscaling": {"maxReplicas": JOB_COUNT},
    });
    let metadata = json!({"name": name, "namespace": namespace});
    let pool = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "metadata": metadata, "spec": spec});
    apply(client, pool).await;
}

async fn at_zero(pools: &Api<DynamicObject>) -> Result<usize> {
    let found = pools.list(&ListParams::default()).await?;
    Ok(found.items.iter().filter(|pool| pool.data["status"]["phase"] == "ScaledToZero").count())
}

/// The time from the first of ten jobs until the pool's desired number is ten.
async fn follow(pools: &Api<DynamicObject>, url: &str, token: &str, pool: &str) -> Result<f64> {
    let target = Target::new(url, Secret::new(token)).await.context("reach the server")?;
    let tags: Tags = [("pool".to_owned(), pool.to_owned())].into();
    let begun = Instant::now();
    for _ in 0..JOB_COUNT {
        target.post(tags.clone()).await?;
    }
    while desired(&pools.get(pool).await?.data) != Some(i64::try_from(JOB_COUNT)?) {
        if begun.elapsed() > SETTLE_TIME {
            bail!("the pool does not follow the queue");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn desired(pool: &Value) -> Option<i64> {
    pool["status"]["desiredReplicas"].as_i64()
}
