//! Plans, and what is read from them.

use std::path::PathBuf;

use bytes::Bytes;
use coder_wire::messages::provisioner as pb;
use pb::LogLevel;

use super::{GRAPH_STAGE, GraphOutput, StepError, Steps, args, blocking, concat, failed};
use crate::job::reporter::StageLog;
use crate::terraform::command::environment;
use crate::terraform::command::environment::{EnvVars, StepInput};
use crate::terraform::command::timings::TerraformStep;
use crate::terraform::command::variables;
use crate::terraform::command::{EventObserver, PlannedChanges, Runner};
use crate::terraform::resources::graph::Graph;
use crate::terraform::resources::plan::{Plan, PlanSummary};
use crate::terraform::resources::state;

/// A plan, and what was read from it.
pub(crate) struct PlanOutput {
    pub(crate) summary: PlanSummary,
    pub(crate) json: Bytes,
    pub(crate) timings: Vec<pb::Timing>,
    plan: Option<Plan>,
}

#[derive(Clone, Copy)]
pub(crate) struct PlanRequest<'a> {
    pub(crate) stage: &'static str,
    pub(crate) input: StepInput<'a>,
    pub(crate) variables: &'a [pb::VariableValue],
    pub(crate) state: &'a [u8],
    /// Whether the caller needs the plan itself and not only its summary.
    pub(crate) wants_plan: bool,
}

impl Steps<'_> {
    pub(crate) async fn plan(&mut self, request: PlanRequest<'_>) -> Result<PlanOutput, StepError> {
        let log = self.log(request.stage);
        let mut observer = EventObserver::start(TerraformStep::Plan, self.tools.clock);
        let result = self.run_plan(request, &log, &mut observer).await;
        let timings = observer.finish(result.is_ok());
        match result {
            Ok(planned) => Ok(PlanOutput { timings, ..planned }),
            Err(error) => Err(StepError { timings, ..error }),
        }
    }

    async fn run_plan(
        &mut self,
        request: PlanRequest<'_>,
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<PlanOutput, StepError> {
        let destroys = request.input.metadata.workspace_transition() == pb::WorkspaceTransition::Destroy;
        if destroys && request.state.is_empty() {
            log.line(LogLevel::Info, "The terraform state does not exist, there is nothing to do").await;
            return Ok(PlanOutput {
                summary: PlanSummary::default(),
                json: Bytes::new(),
                timings: Vec::new(),
                plan: None,
            });
        }
        if !request.state.is_empty() {
            state::check(request.state).map_err(|error| failed("terraform plan", error))?;
            let (file, state) = (self.work.state_file(), request.state.to_owned());
            blocking(move || file.write(&state).map_err(|error| failed("write statefile", error))).await?;
        }
        let dir = self.work.template();
        let plan_file = self.work.private("terraform.tfplan");
        let mut arguments = args(["plan", "-no-color", "-input=false", "-json", "-refresh=true"]);
        arguments.push(concat("-out=", &plan_file));
        if destroys {
            arguments.push("-destroy".into());
        }
        if !request.variables.is_empty() {
            arguments.push(concat("-var-file=", &self.write_variables(request.variables).await?));
        }
        let step_variables = self.with_debug(self.with_provider(environment::for_plan(request.input)));

        let runner = self.runner(&dir)?;
        let planning = runner.stream(&arguments, &step_variables, log, observer);
        // The graph depends only on the configuration, so it is computed while Terraform plans.
        let graph_variables = self.common_variables();
        // The plan reports errors of the configuration too, with positions.
        let graph_log = self.log(GRAPH_STAGE).buffered();
        let graphing = self.make_graph(&runner, &graph_variables, &graph_log);
        let (planned, graphed) = tokio::join!(planning, graphing);
        planned.map_err(|error| failed("terraform plan", error))?;
        graph_log.release().await;
        let planned = observer.planned;
        let must_show = request.wants_plan || !self.summary_is_empty(planned, request.state);
        let (summary, json, plan) = if must_show {
            let mut arguments = args(["show", "-json", "-no-color"]);
            arguments.push(plan_file.into_os_string());
            let json = runner
                .capture(&arguments, &graph_variables, log)
                .await
                .map_err(|error| failed("show terraform plan file", error))?;
            let plan: Plan = serde_json::from_slice(&json).map_err(|error| failed("read plan", error))?;
            (
                plan.summary().map_err(|error| failed("convert plan state", error))?,
                Bytes::from(json),
                Some(plan),
            )
        } else {
            (PlanSummary::default(), Bytes::new(), None)
        };
        if let Some(graph) = graphed? {
            self.graph = Some(graph);
        }
        Ok(PlanOutput { summary, json, timings: Vec::new(), plan })
    }

    /// Whether the summary of a plan is certainly empty: no cost, AI tasks or replacements. A plan reports all
    /// changes in its events, and everything else is in the state.
    fn summary_is_empty(&self, planned: PlannedChanges, state: &[u8]) -> bool {
        let mentions = |text: &[u8]| state.windows(text.len()).any(|window| window == text);
        !planned.replaces
            && !planned.counted_types
            && !mentions(b"coder_metadata")
            && !mentions(b"coder_ai_task")
    }

    /// Computes the graph, unless it is known.
    async fn make_graph(
        &self,
        runner: &Runner<'_>,
        variables: &EnvVars,
        log: &StageLog,
    ) -> Result<Option<Graph>, StepError> {
        if self.graph.is_some() {
            return Ok(None);
        }
        let mut arguments = args(["graph", "-no-color"]);
        if self.binary.as_ref().is_some_and(|binary| binary.has_graph_types()) {
            arguments.push("-type=plan".into());
        }
        let text = runner
            .capture(&arguments, variables, log)
            .await
            .map_err(|error| failed("generate graph", error))?;
        let graph =
            Graph::parse(&String::from_utf8_lossy(&text)).map_err(|error| failed("parse graph", error))?;
        Ok(Some(graph))
    }

    /// Converts everything in a plan.
    pub(crate) fn graph_of_plan(&self, planned: PlanOutput) -> Result<GraphOutput, StepError> {
        let started_at = self.tools.clock.now();
        let modules = planned.plan.map(Plan::into_modules).unwrap_or_default();
        self.convert(&modules, started_at)
    }

    async fn write_variables(&mut self, values: &[pb::VariableValue]) -> Result<PathBuf, StepError> {
        // If the module cannot be parsed here, its values are written as text, because Terraform itself has
        // accepted it.
        let declared = match self.parse().await {
            Ok(root) => root.variables.clone(),
            Err(_) => Vec::new(),
        };
        let file = self.work.private_file(&format!("{}.tfvars", uuid::Uuid::new_v4()));
        let (path, values) = (file.path(), values.to_vec());
        blocking(move || variables::write_file(&file, &values, &declared).map_err(StepError::from)).await?;
        Ok(path)
    }
}
