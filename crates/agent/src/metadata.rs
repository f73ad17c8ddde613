//! Values that scripts of the template find out at intervals (agent 2.7).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use messages::workspace_agent_metadata::Result as MetadataResult;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::calls::{Calls, timestamp};
use crate::manifest::{Manifest, Metadata};
use crate::process::{Group, Setup};
use crate::state::AgentState;
use crate::{environment, shell};

/// Bytes of a value that are kept.
const MAX_OUTPUT_BYTES: usize = 10 << 10;
/// The shortest time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// When each key was collected last. It outlives connections, so that a connection that comes and goes does not run scripts more often.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    last: Mutex<BTreeMap<String, Instant>>,
}

#[derive(Debug, Default)]
struct Results {
    waiting: Mutex<BTreeMap<String, MetadataResult>>,
    changed: Notify,
}

/// Collects and reports over one connection until it fails.
pub(crate) async fn run(
    state: &Arc<AgentState>,
    manifest: &Arc<Manifest>,
    collected: &Arc<Collected>,
    calls: &Calls,
) -> Result<(), Error> {
    let results = Arc::new(Results::default());
    // Dropped with this future, and the scripts with it.
    let mut collectors = JoinSet::new();
    for metadata in manifest.metadata.iter().filter(|metadata| !metadata.script.is_empty()) {
        let (state, manifest, collected) = (Arc::clone(state), Arc::clone(manifest), Arc::clone(collected));
        let (metadata, results) = (metadata.clone(), Arc::clone(&results));
        collectors.spawn(async move { collect(&state, &manifest, &metadata, &collected, &results).await });
    }
    loop {
        let changed = results.changed.notified();
        let waiting = std::mem::take(&mut *results.waiting.lock());
        if waiting.is_empty() {
            changed.await;
            continue;
        }
        let metadata =
            waiting.into_iter().map(|(key, result)| messages::Metadata { key, result: Some(result) });
        let request = messages::BatchUpdateMetadataRequest { metadata: metadata.collect() };
        match calls.metadata(request).await {
            Ok(_) => {}
            // Too long for the server's limits: the next values may fit.
            Err(Error::Refused(status)) => {
                tracing::debug!(error = %status, "the server does not take metadata")
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}

async fn collect(
    state: &AgentState,
    manifest: &Manifest,
    metadata: &Metadata,
    collected: &Collected,
    results: &Results,
) {
    loop {
        let last = collected.last.lock().get(&metadata.key).copied();
        match (last, metadata.interval) {
            (Some(last), Some(interval)) => tokio::time::sleep_until(last + interval).await,
            // It is collected once.
            (Some(_), None) => return,
            (None, _) => {}
        }
        collected.last.lock().insert(metadata.key.clone(), Instant::now());
        let collected_at = state.config.clock.now();
        let began = Instant::now();
        let (value, error) = execute(state, manifest, metadata).await;
        let result = MetadataResult {
            collected_at: Some(timestamp(collected_at)),
            age: i64::try_from(began.elapsed().as_secs()).unwrap_or(i64::MAX),
            value,
            error,
        };
        results.waiting.lock().insert(metadata.key.clone(), result);
        results.changed.notify_one();
    }
}

/// Runs the script. What it printed, and what went wrong.
async fn execute(state: &AgentState, manifest: &Manifest, metadata: &Metadata) -> (String, String) {
    let config = &state.config;
    let setup = Setup {
        invocation: shell::command(&config.user.shell, &metadata.script),
        environment: environment::of_command(config, manifest, &[]),
        directory: state.directory(manifest),
    };
    match spawn(&setup) {
        Ok((child, output)) => wait(child, output, metadata.timeout).await,
        Err(error) => (String::new(), format!("run cmd: {error}")),
    }
}

fn spawn(setup: &Setup) -> std::io::Result<(tokio::process::Child, Receiver)> {
    // Both streams go through one pipe, so that their order is kept.
    let (reader, writer) = std::io::pipe()?;
    let child = setup.spawn(std::process::Stdio::null(), writer.try_clone()?.into(), writer.into())?;
    Ok((child, Receiver::from_owned_fd(reader.into())?))
}

async fn wait(mut child: tokio::process::Child, mut output: Receiver, timeout: Duration) -> (String, String) {
    let killer = KillOnDrop(Group::of(&child));
    let mut bytes = Vec::new();
    let ended = tokio::time::timeout(timeout, async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut buffer).await {
            // What is beyond the limit is read all the same, or the script would wait for ever.
            let kept = count.min(MAX_OUTPUT_BYTES.saturating_sub(bytes.len()));
            bytes.extend_from_slice(&buffer[..kept]);
        }
        child.wait().await
    });
    let error = match ended.await {
        Ok(Ok(status)) if status.success() => String::new(),
        Ok(Ok(status)) => format!("run cmd: {status}").replace("exit status:", "exit status"),
        Ok(Err(error)) => format!("run cmd: {error}"),
        Err(_) => format!("run cmd: the script did not end within {timeout:?}"),
    };
    drop(killer);
    let value = String::from_utf8_lossy(&bytes).trim_end().replace('\0', "\u{fffd}");
    (value, error)
}

/// A script, and whatever it started, ends with its collection.
struct KillOnDrop(Group);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Invocation;

    fn of(script: &str, timeout: Duration) -> (String, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let invocation =
                Invocation { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] };
            let setup = Setup { invocation, environment: Default::default(), directory: "/".into() };
            let (child, output) = spawn(&setup).unwrap();
            wait(child, output, timeout).await
        })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn both_streams_are_the_value() {
        assert_eq!(of("echo a; echo b >&2; echo c", LONG), ("a\nb\nc".to_owned(), String::new()));
        assert_eq!(of("echo 5; exit 3", LONG), ("5".to_owned(), "run cmd: exit status 3".to_owned()));
    }

    #[test]
    fn endless_and_long_output_is_bounded() {
        let (value, error) = of("head -c 1000000 /dev/zero | tr '\\0' x", LONG);
        assert_eq!((value.len(), error.as_str()), (MAX_OUTPUT_BYTES, ""));
        let (_, error) = of("sleep 1000 & wait", Duration::from_millis(100));
        assert!(error.contains("did not end within"), "{error}");
        let (value, _) = of("yes", Duration::from_millis(100));
        assert!(value.len() <= MAX_OUTPUT_BYTES);
    }
}
