//! The external scaler, asked by the client that KEDA itself uses (`interop/keda`).

use std::path::{Path, PathBuf};
use std::process::Stdio;

use coder_requirements::Requirement;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::world::{World, page};

async fn client() -> Option<PathBuf> {
    if !coder_requirements::has(Requirement::Go) {
        return None;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop-keda");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/keda");
    let build = Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status();
    assert!(build.await.unwrap().success(), "go build in interop/keda failed");
    Some(program)
}

struct Keda {
    // Killed with this value.
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Keda {
    fn ask(program: &Path, world: &World, pool: &str) -> Self {
        let address = world.pages.unwrap().to_string();
        let mut child = Command::new(program)
            .args([&address, &world.namespace, pool])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { _child: child, lines }
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(std::time::Duration::from_secs(60), self.lines.next_line()).await;
        line.expect("in time").unwrap().unwrap_or_default()
    }
}

#[tokio::test]
async fn keda_reads_the_need_of_a_pool_and_follows_it() {
    let Some(program) = client().await else { return };
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"replicas": 0, "tags": {"os": "linux"}})).await;
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    world
        .eventually("the queue is known", async || {
            Keda::ask(&program, &world, "linux").line().await == "metric coder-provisioner-jobs 1" && {
                let mut keda = Keda::ask(&program, &world, "linux");
                keda.line().await;
                keda.line().await == "value coder-provisioner-jobs 0"
            }
        })
        .await;
    let mut keda = Keda::ask(&program, &world, "linux");
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(keda.line().await);
    }
    assert_eq!(
        answers,
        ["metric coder-provisioner-jobs 1", "value coder-provisioner-jobs 0", "active false", "stream false"]
    );
    // Jobs that the pool cannot run do not wake it.
    world.queue(2, &[("os", "plan9")]).await;
    world.queue(3, &[("os", "linux")]).await;
    assert_eq!(keda.line().await, "stream true");
    let mut second = Keda::ask(&program, &world, "linux");
    assert_eq!(second.line().await, "metric coder-provisioner-jobs 1");
    assert_eq!(second.line().await, "value coder-provisioner-jobs 3");
    // KEDA writes the number through the scale subresource.
    let scale = kube::api::Patch::Merge(json!({"spec": {"replicas": 3}}));
    world.pools().patch_scale("linux", &Default::default(), &scale).await.unwrap();
    world.eventually("three jobs run", async || world.jobs.running() == 3).await;
    world.jobs.finish(3);
    assert_eq!(keda.line().await, "stream false");
    let mut unknown = Keda::ask(&program, &world, "other");
    assert_eq!(unknown.line().await, "metric coder-provisioner-jobs 1");
    assert!(unknown.line().await.contains("Unavailable"), "an error keeps the number as it is");
    world.stop().await;
}

#[tokio::test]
async fn health_and_metrics_are_served() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    let get = async |path: &str| page(world.pages.unwrap(), path).await;
    assert_eq!(get("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(get("/readyz").await, (200, "ok".to_owned()));
    assert_eq!(get("/other").await.0, 404);
    world
        .eventually("the metrics tell of the pool", async || {
            let (_, text) = get("/metrics").await;
            let line = format!(
                "coder_operator_pool_connected{{namespace=\"{}\",provisioner=\"linux\"}} 1",
                world.namespace
            );
            text.contains(&line) && text.contains("coder_operator_key_rotations_total 1")
        })
        .await;
    world.stop().await;
}
