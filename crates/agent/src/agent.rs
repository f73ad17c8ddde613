//! The agent from its start to its end: one connection to the server after the other, the scripts, and the way out.

use std::sync::Arc;
use std::time::Duration;

use coder_api::client::Error as ClientError;
use coder_domain::backoff::Backoff;
use coder_wire::error_chain;
use coder_wire::messages::coder::agent::v2::timing::Stage;
use coder_wire::mux::{Config as MuxConfig, Session};
use tokio::sync::{Mutex, OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::calls::Calls;
use crate::config::Config;
use crate::connection::{ConnectionError, Connections};
use crate::lifecycle::State;
use crate::scripts::{self, Outcome};
use crate::state::AgentState;
use crate::transport::Transport;

/// Delays between two connections.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// An agent often starts before the build that made it has ended, and until then the server does not know its token. So a young agent tries
/// again soon.
const EARLY_PHASE: Duration = Duration::from_secs(10);
const MAX_EARLY_DELAY: Duration = Duration::from_millis(150);
/// A connection that lasted this long resets the delay.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// How long sessions may take to end, and how long the last reports.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a lasting problem is logged.
const REPEATED_WARNING: Duration = Duration::from_secs(60);

/// An agent.
pub struct Agent {
    connections: Arc<Connections>,
}

impl Agent {
    /// An agent that has not connected yet.
    #[must_use]
    pub fn new(config: Config, transport: Arc<dyn Transport>) -> Self {
        let (completed, receiver) = scripts::completed_queue();
        let connections = Connections {
            state: Arc::new(AgentState::new(config, completed)),
            transport,
            network: OnceCell::new(),
            first_manifest: watch::Sender::new(None),
            completed: Mutex::new(receiver),
            collected: Arc::default(),
            counters: Default::default(),
            stopping: CancellationToken::new(),
            disconnected: watch::Sender::new(true),
        };
        Self { connections: Arc::new(connections) }
    }

    /// Runs until `stop`, then ends in order: sessions, stop scripts, the last reports. Dropping the future ends it at once.
    pub async fn run(self, stop: CancellationToken) {
        let connections = &self.connections;
        let work = async {
            let scripts = self.run_scripts();
            let until_stop = stop.run_until_cancelled(scripts);
            until_stop.await;
            self.end().await;
        };
        tokio::select! {
            () = connect(connections) => {}
            () = work => {}
        }
    }

    /// Runs the start scripts of the first manifest, and then those with a schedule.
    async fn run_scripts(&self) {
        let state = &self.connections.state;
        let mut first = self.connections.first_manifest.subscribe();
        let manifest = match first.wait_for(Option::is_some).await {
            Ok(manifest) => manifest.clone(),
            Err(_) => None,
        };
        let Some(manifest) = manifest else { return };
        state.lifecycle.set(State::Starting);
        let outcome = scripts::run_stage(state, &manifest, Stage::Start).await;
        state.lifecycle.set(match outcome {
            Outcome::Succeeded => State::Ready,
            Outcome::TimedOut => State::StartTimeout,
            Outcome::Failed => State::StartError,
        });
        scripts::run_scheduled(state, &manifest).await;
        // Only the end of the agent follows.
        std::future::pending::<()>().await;
    }

    async fn end(&self) {
        let connections = &self.connections;
        let state = &connections.state;
        state.lifecycle.set(State::ShuttingDown);
        state.sessions_end.cancel();
        if tokio::time::timeout(END_TIMEOUT, state.sessions.all_ended()).await.is_err() {
            tracing::warn!("some sessions did not end in time");
        }
        connections.stopping.cancel();
        let manifest = connections.first_manifest.borrow().clone();
        if manifest.is_none() {
            // The server has never known this process, and there is nothing to run.
            return;
        }
        // The newest manifest has the newest environment.
        let outcome = scripts::run_stage(state, &state.manifest(), Stage::Stop).await;
        state.lifecycle.set(match outcome {
            Outcome::Succeeded => State::Off,
            Outcome::TimedOut => State::ShutdownTimeout,
            Outcome::Failed => State::ShutdownError,
        });
        let reported = async {
            let mut disconnected = connections.disconnected.subscribe();
            // The sender is part of self.
            let _ = disconnected.wait_for(|disconnected| *disconnected).await;
            state.connection_reports.drain().await;
            state.logs.drain().await;
            state.lifecycle.all_reported().await;
        };
        if tokio::time::timeout(END_TIMEOUT, reported).await.is_err() {
            tracing::warn!("the last reports could not be sent to the server");
        }
    }
}

/// Connects to the server again and again.
async fn connect(connections: &Connections) {
    let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY).with_jitter();
    let mut warned: Option<(String, Instant)> = None;
    let start = Instant::now();
    loop {
        let began = Instant::now();
        let problem = match connections.transport.rpc().await {
            Ok(stream) => {
                tracing::info!("connected to the server");
                warned = None;
                let calls = Calls::new(Session::client(stream, MuxConfig::default()));
                let error = connections.serve(&calls).await;
                connections.disconnected.send_replace(true);
                calls.close().await;
                describe(&error)
            }
            Err(error) => describe_dial(&error),
        };
        // A server that is away for hours does not fill the log.
        let is_new =
            warned.as_ref().is_none_or(|(text, at)| *text != problem || at.elapsed() >= REPEATED_WARNING);
        if is_new {
            tracing::warn!(error = problem, "no connection to the server; it is tried again");
            warned = Some((problem, Instant::now()));
        }
        if began.elapsed() >= STABLE_AFTER {
            backoff.reset();
        }
        if let Some(network) = connections.network.get() {
            network.tick().await;
        }
        let delay = backoff.next_delay();
        let is_early = start.elapsed() < EARLY_PHASE;
        tokio::time::sleep(if is_early { delay.min(MAX_EARLY_DELAY) } else { delay }).await;
    }
}

fn describe(error: &ConnectionError) -> String {
    error_chain::describe(error)
}

fn describe_dial(error: &ClientError) -> String {
    let text = error_chain::describe(error);
    match error.hint() {
        Some(hint) => format!("{text} ({hint})"),
        None => text,
    }
}
