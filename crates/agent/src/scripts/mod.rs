//! The template's scripts: at start, at stop, and by schedule (agent 2.6).

mod cron;
pub(crate) mod data_dir;
mod log_file;
mod output;
mod run;

use std::sync::Arc;

use coder_wire::messages::coder::agent::v2 as messages;
use messages::timing::{Stage, Status};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::manifest::{Manifest, Script};
use crate::state::AgentState;

/// Completed runs that wait to be reported. More are not reported.
const QUEUED_COMPLETIONS: usize = 256;

/// What came of the scripts of one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// All of them succeeded.
    Succeeded,
    /// One ran out of time.
    TimedOut,
    /// One failed.
    Failed,
}

/// Reports of completed runs.
pub(crate) type Completed = mpsc::Sender<messages::Timing>;

/// A queue for reports of completed runs.
pub(crate) fn completed_queue() -> (Completed, mpsc::Receiver<messages::Timing>) {
    mpsc::channel(QUEUED_COMPLETIONS)
}

/// Runs the scripts of a stage side by side, and waits for all of them.
pub(crate) async fn run_stage(state: &Arc<AgentState>, manifest: &Arc<Manifest>, stage: Stage) -> Outcome {
    let belongs = |script: &&Script| match stage {
        Stage::Start => script.runs_on_start,
        Stage::Stop => script.runs_on_stop,
        Stage::Cron => false,
    };
    let mut runs = JoinSet::new();
    for script in manifest.scripts.iter().filter(belongs) {
        let (state, manifest, script) = (Arc::clone(state), Arc::clone(manifest), script.clone());
        runs.spawn(async move { run::run(&state, &manifest, &script, stage).await });
    }
    let mut outcome = Outcome::Succeeded;
    while let Some(status) = runs.join_next().await {
        let of_run = match status {
            // Left-open pipes are a warning in the script's log.
            Ok(Status::Ok | Status::PipesLeftOpen) => Outcome::Succeeded,
            Ok(Status::TimedOut) => Outcome::TimedOut,
            Ok(Status::ExitFailure) | Err(_) => Outcome::Failed,
        };
        outcome = outcome.max(of_run);
    }
    outcome
}

/// Runs scripts by their schedule until the future is dropped.
pub(crate) async fn run_scheduled(state: &Arc<AgentState>, manifest: &Arc<Manifest>) {
    let mut schedules = JoinSet::new();
    for script in manifest.scripts.iter().filter(|script| !script.cron.trim().is_empty()) {
        let (state, manifest, script) = (Arc::clone(state), Arc::clone(manifest), script.clone());
        schedules.spawn(async move { cron::follow(&state, &manifest, &script).await });
    }
    while schedules.join_next().await.is_some() {}
}
