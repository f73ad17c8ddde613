//! The Go libraries of official agents against the server: WebSocket, yamux, DRPC, and every call that such an agent depends on.

use std::path::Path;
use std::process::Stdio;

use coder_requirements::Requirement;
use coder_store::workspaces::connection_log;
use tokio::process::Command;

use super::rig::Rig;
use crate::harness::TestServer;

/// The Go program; none without Go, and then the test is recorded as skipped.
async fn program() -> Option<std::path::PathBuf> {
    let go = coder_requirements::program(Requirement::Go)?;
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop-agent");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(source);
    assert!(build.status().await.unwrap().success(), "go build in interop failed");
    Some(program)
}

#[tokio::test]
async fn an_agent_in_go_connects_and_reports() {
    let Some(program) = program().await else { return };
    let rig = Rig::new(TestServer::sqlite().await).await;
    let (address, stop) = rig.server.listening().await;
    let run = async |token: &str| {
        let mut command = Command::new(&program);
        command.args(["agent", &format!("http://{address}")]).env("CODER_AGENT_TOKEN", token);
        command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap()
    };
    let output = run(&rig.token).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["agent_name"], &report["log_limit_exceeded"]), (&"main".into(), &false.into()));

    let shown = rig.shown().await;
    assert_eq!((&shown["version"], &shown["lifecycle_state"]), (&"v2.30.0".into(), &"ready".into()));
    let logs = rig.server.get(&rig.owner, &coder_api::paths::agent_logs(rig.agent)).await.expect(200);
    assert_eq!(logs[0]["output"], "hello from Go");
    let mut tx = rig.server.app.store.reader().await.unwrap();
    assert_eq!(
        connection_log::count(&mut tx, &connection_log::ConnectionLogFilter::default()).await.unwrap(),
        1
    );
    drop(tx);

    let stranger = run(&uuid::Uuid::new_v4().to_string()).await;
    assert!(!stranger.status.success());
    assert!(String::from_utf8_lossy(&stranger.stderr).contains("401"), "{stranger:?}");
    stop.cancel();
}
