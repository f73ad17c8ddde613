//! Applies, and the resources in the state after them.

use bytes::Bytes;
use coder_wire::extension::MAX_STATE_SIZE;
use coder_wire::messages::provisioner as pb;
use pb::LogLevel;
use tokio_util::sync::CancellationToken;

use super::{GRAPH_STAGE, GraphOutput, StepError, Steps, args, blocking, failed};
use crate::job::reporter::StageLog;
use crate::terraform::command::EventObserver;
use crate::terraform::command::environment;
use crate::terraform::command::timings::TerraformStep;
use crate::terraform::resources::state;
use crate::terraform::resources::state::ShowOutput;

/// A longer state could not be sent, and a job may have enlarged it.
const MAX_STATE_BYTES: u64 = MAX_STATE_SIZE as u64;

pub(crate) struct ApplyOutput {
    pub(crate) state: Bytes,
    pub(crate) timings: Vec<pb::Timing>,
}

impl Steps<'_> {
    pub(crate) async fn apply(
        &mut self,
        stage: &'static str,
        metadata: &pb::Metadata,
    ) -> Result<ApplyOutput, StepError> {
        let log = self.log(stage);
        let mut observer = EventObserver::start(TerraformStep::Apply, self.tools.clock);
        self.work.preserve_state();
        // However this step ends, the journal reads the state once more.
        let ended = CancellationToken::new();
        let _ends = ended.clone().drop_guard();
        self.tools.journal.follow(self.work.state_file(), ended);
        let result = self.run_apply(metadata, &log, &mut observer).await;
        let timings = observer.finish(result.is_ok());
        let file = self.work.state_file();
        let state = blocking(move || match file.read(MAX_STATE_BYTES) {
            Ok(bytes) => Ok(Some(Bytes::from(bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read statefile", error)),
        });
        let state_file = match state.await {
            Ok(Some(state)) => Ok(self.final_state(state).await),
            Ok(None) => Ok(Bytes::new()),
            Err(error) => Err(error),
        };
        match (result, state_file) {
            (Ok(()), Ok(state)) => Ok(ApplyOutput { state, timings }),
            (Ok(()), Err(error)) => Err(StepError { timings, ..error }),
            (Err(error), state) => Err(StepError { timings, state: state.unwrap_or_default(), ..error }),
        }
    }

    /// The final state of an apply. It replaces an incomplete file, for processes that read the file later.
    async fn final_state(&self, file: Bytes) -> Bytes {
        let state = self.tools.journal.final_state(file.clone());
        if state != file {
            let (place, snapshot) = (self.work.state_file(), state.clone());
            let written =
                blocking(move || place.write(&snapshot).map_err(|error| failed("write statefile", error)));
            if let Err(error) = written.await {
                tracing::warn!(error = %error.message, "an incomplete state file could not be replaced");
            }
        }
        state
    }

    async fn run_apply(
        &self,
        metadata: &pb::Metadata,
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<(), StepError> {
        let destroys = metadata.workspace_transition() == pb::WorkspaceTransition::Destroy;
        if destroys && !tokio::fs::try_exists(self.work.state_file().path()).await.unwrap_or(false) {
            log.line(LogLevel::Info, "The terraform state does not exist, there is nothing to do").await;
            return Ok(());
        }
        let mut arguments = args(["apply", "-no-color", "-auto-approve", "-input=false", "-json"]);
        arguments.push(self.work.private("terraform.tfplan").into_os_string());
        let step_variables = self.with_debug(self.with_provider(environment::for_apply(metadata)));
        let dir = self.work.template();
        self.runner(&dir)?
            .stream(&arguments, &step_variables, log, observer)
            .await
            .map_err(|error| failed("terraform apply", error))
    }

    /// Converts everything in the state.
    pub(crate) async fn graph_of_state(&self, state: &[u8]) -> Result<GraphOutput, StepError> {
        let started_at = self.tools.clock.now();
        if state.is_empty() && self.graph.is_none() {
            return self.convert(&[], started_at);
        }
        let module = match state::from_state_file(state) {
            Some(module) => module,
            None => self.shown_state().await?,
        };
        self.convert(&[module], started_at)
    }

    /// Asks Terraform for the state, which may be stored in a backend.
    async fn shown_state(&self) -> Result<state::Module, StepError> {
        let dir = self.work.template();
        let json = self
            .runner(&dir)?
            .capture(&args(["show", "-json", "-no-color"]), &self.common_variables(), &self.log(GRAPH_STAGE))
            .await
            .map_err(|error| failed("load tfstate for graph", error))?;
        let shown: ShowOutput =
            serde_json::from_slice(&json).map_err(|error| failed("load tfstate for graph", error))?;
        Ok(shown.values.unwrap_or_default().root_module)
    }
}
