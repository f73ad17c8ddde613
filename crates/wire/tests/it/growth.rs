//! The memory of a session, measured in a separate process.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use coder_wire::daemon::{Client, Limits, serve};
use coder_wire::messages::provisionerd::UpdateJobRequest;
use coder_wire::mux::{Config, Session};
use coder_wire::ws::Socket;

use super::harness::{Script, in_memory};

const CHILD: &str = "CODER_WIRE_GROWTH";

/// Runs one test of this file in a separate process.
fn alone(name: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let name = format!("growth::{name}");
    let output = child.args(["--exact", &name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn ten_thousand_calls_leave_no_stream_and_less_than_1_mib() {
    if !alone("ten_thousand_calls_leave_no_stream_and_less_than_1_mib") {
        return;
    }
    runtime().block_on(async {
        let (session, serving) = in_memory(&Script::new(None));
        let client = Client::new(session);
        let request =
            UpdateJobRequest { job_id: "job".to_owned(), readme: vec![1; 100].into(), ..Default::default() };
        let calls = async |count: usize| {
            for _ in 0..count {
                client.update_job(&request).await.unwrap();
            }
        };
        calls(1000).await;
        let before = resident();
        calls(10_000).await;
        let growth = resident().saturating_sub(before);
        println!("10,000 calls: {growth} bytes of growth");
        assert!(growth < 1 << 20, "{growth}");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while client.session().open_streams() > 0 && tokio::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.session().open_streams(), 0);
        client.session().close().await;
        serving.await.unwrap();
    });
}

/// Both ends of a connection are in this process, so the server's share is about half of the result.
#[test]
fn an_idle_daemon_costs_less_than_20_kib() {
    if !alone("an_idle_daemon_costs_less_than_20_kib") {
        return;
    }
    const COUNT: usize = 1000;
    runtime().block_on(async {
        let mut kept = Vec::new();
        let connect = async |kept: &mut Vec<_>| {
            let (near, far) = tokio::io::duplex(4096);
            let client = Client::new(Session::client(Socket::client(near), Config::default()));
            let session = Session::server(Socket::server(far), Config::default());
            let ends = [client.session().clone(), session.clone()];
            let script = Script::new(None);
            let service = Arc::clone(&script);
            let serving = tokio::spawn(async move { serve(&session, service, Limits::default()).await });
            client.update_job(&UpdateJobRequest::default()).await.unwrap();
            let waiting = tokio::spawn(async move { client.acquire(std::future::pending()).await });
            script.noted("acquire").await;
            // The stream of the update is closed and that of the acquire is open, on both sides.
            let quiet = async {
                while ends.iter().any(|end| end.open_streams() != 1) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), quiet).await.unwrap();
            kept.push((serving, waiting));
        };
        for _ in 0..50 {
            connect(&mut kept).await;
        }
        let before = resident();
        for _ in 0..COUNT {
            connect(&mut kept).await;
        }
        let each = resident().saturating_sub(before) / COUNT;
        println!("an idle connection, both ends: {each} bytes");
        assert!(each < 20 << 10, "{each}");
    });
}
