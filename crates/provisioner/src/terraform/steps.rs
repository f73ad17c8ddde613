//! The steps of a job: init, parse, plan, apply, and the graphs that go with plans and states (wire-protocol 7.2).
//!
//! Each step starts as few processes as it can. The configuration's graph does not change during a job, so it is made
//! once, beside the first plan; a plan is shown only when something has to be read from it; the state is read from its
//! file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use coder_domain::clock::Clock;
use coder_tfprovider::{Listening, ProviderServer};
use coder_wire::messages::provisioner as pb;
use jiff::Timestamp;
use pb::LogLevel;

use super::binary::{Binary, BinaryError, Finder};
use super::convert::{self, Converted};
use super::environment::{self, Environment, StepInput, Variables};
use super::graph::Graph;
use super::modules::{self, Modules};
use super::parse::{self, RootModule};
use super::plan::{Plan, Summary};
use super::run::{Observer, Planned, Runner};
use super::state::{self, ShownState};
use super::timings::{Step, Timings};
use super::variables;
use crate::archive::{self, Limits};
use crate::cancel::Cancel;
use crate::logs::{Reporter, StageLog};
use crate::strays;
use crate::workdir::WorkDir;

pub(crate) const INIT_STAGE: &str = "Initializing Terraform Directory";
pub(crate) const GRAPH_STAGE: &str = "Graphing Infrastructure";

/// A step that failed: what to tell, and what it leaves behind.
#[derive(Debug, Default)]
pub(crate) struct StepError {
    pub(crate) message: String,
    pub(crate) timings: Vec<pb::Timing>,
    /// State written before the failure; only an apply has one.
    pub(crate) state: Bytes,
}

impl<E: std::fmt::Display> From<E> for StepError {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), ..Self::default() }
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> StepError {
    StepError::from(format!("{what}: {error}"))
}

/// What a daemon gives to each of its jobs.
pub(crate) struct Tools<'a> {
    pub(crate) finder: &'a Finder,
    pub(crate) environment: &'a Environment,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) plugin_cache: PathBuf,
    pub(crate) exit_timeout: Duration,
}

/// One job's Terraform: a directory, a program, and what has been learnt so far.
pub(crate) struct Steps<'a> {
    tools: Tools<'a>,
    work: &'a WorkDir,
    reporter: &'a Reporter,
    cancel: &'a Cancel,
    lowest: LogLevel,
    debug: bool,
    binary: Option<Binary>,
    root: Option<RootModule>,
    graph: Option<Graph>,
    provider: Option<Listening>,
}

pub(crate) struct Initialized {
    pub(crate) modules: Modules,
    pub(crate) timings: Vec<pb::Timing>,
}

/// A plan, and what was read from it.
pub(crate) struct PlanResult {
    pub(crate) summary: Summary,
    pub(crate) json: Bytes,
    pub(crate) timings: Vec<pb::Timing>,
    plan: Option<Plan>,
}

/// What to plan.
#[derive(Clone, Copy)]
pub(crate) struct PlanRequest<'a> {
    pub(crate) stage: &'static str,
    pub(crate) input: StepInput<'a>,
    pub(crate) variables: &'a [pb::VariableValue],
    pub(crate) state: &'a [u8],
    /// Whether the caller needs the plan itself, not only its summary.
    pub(crate) wants_plan: bool,
}

pub(crate) struct Applied {
    pub(crate) state: Bytes,
    pub(crate) timings: Vec<pb::Timing>,
}

pub(crate) struct Graphed {
    pub(crate) converted: Converted,
    pub(crate) timings: Vec<pb::Timing>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(
        tools: Tools<'a>,
        work: &'a WorkDir,
        reporter: &'a Reporter,
        cancel: &'a Cancel,
        log_level: &str,
    ) -> Self {
        let lowest = lowest_level(log_level);
        let debug = !log_level.is_empty();
        Self {
            tools,
            work,
            reporter,
            cancel,
            lowest,
            debug,
            binary: None,
            root: None,
            graph: None,
            provider: None,
        }
    }

    fn log(&self, stage: &'static str) -> StageLog {
        self.reporter.of_stage(stage, self.lowest)
    }

    fn runner<'r>(&'r self, dir: &'r std::path::Path) -> Result<Runner<'r>, BinaryError> {
        let binary = self.binary.as_ref().ok_or(BinaryError::NotInPath)?;
        Ok(Runner {
            program: &binary.path,
            dir,
            environment: self.tools.environment,
            cancel: self.cancel,
            exit_timeout: self.tools.exit_timeout,
        })
    }

    /// Unpacks the template, and the modules if they came along, and lets Terraform set itself up.
    pub(crate) async fn init(
        &mut self,
        template: Bytes,
        module_files: Option<Bytes>,
        wants_archive: bool,
    ) -> Result<Initialized, StepError> {
        let log = self.log(INIT_STAGE);
        let mut observer = Observer::start(Step::Init, self.tools.clock);
        let result = self.run_init(template, module_files, wants_archive, &log, &mut observer).await;
        let timings = observer.finish(result.is_ok());
        match result {
            Ok(modules) => Ok(Initialized { modules, timings }),
            Err(error) => Err(StepError { timings, ..error }),
        }
    }

    async fn run_init(
        &mut self,
        template: Bytes,
        module_files: Option<Bytes>,
        wants_archive: bool,
        log: &StageLog,
        observer: &mut Observer<'_>,
    ) -> Result<Modules, StepError> {
        let dir = self.work.template();
        let target = dir.clone();
        let plugin_cache = self.tools.plugin_cache.clone();
        blocking(move || {
            archive::extract(&template, &target, Limits::TEMPLATE)
                .map_err(|error| failed("extract template archive", error))?;
            if let Some(files) = module_files {
                archive::extract(&files, &target, Limits::MODULES)
                    .map_err(|error| failed("extract module archive", error))?;
            }
            let has_source = std::fs::read_dir(&target)
                .map_err(|error| failed("read the template's folder", error))?
                .flatten()
                .any(|entry| parse::is_source(&entry.file_name().to_string_lossy()));
            if !has_source {
                return Err(StepError::from(
                    "the template has no Terraform file (*.tf or *.tf.json) at its top level; push the folder that holds main.tf",
                ));
            }
            std::fs::create_dir_all(&plugin_cache).map_err(|error| failed("make the plugin cache", error))
        })
        .await?;

        let binary = self.tools.finder.find(self.tools.environment).await?;
        for line in self.tools.environment.announcements() {
            log.line(LogLevel::Warn, &line).await;
        }
        let mut arguments = args(["init", "-no-color", "-input=false"]);
        if binary.version.has_json_init() {
            arguments.push("-json".into());
        }
        self.binary = Some(binary);
        let provider =
            provider_server().listen(&self.work.private_dir(), coder_tfprovider::Environment::default());
        self.provider = Some(provider.map_err(|error| failed("serve the coder provider", error))?);
        let mut variables = self.with_provider(Variables::new());
        variables
            .push(("TF_PLUGIN_CACHE_DIR".to_owned(), self.tools.plugin_cache.to_string_lossy().into_owned()));
        self.runner(&dir)?
            .stream(&arguments, &variables, log, observer)
            .await
            .map_err(|error| failed("initialize terraform", error))?;

        let found = blocking(move || {
            modules::read(&dir, wants_archive).map_err(|error| failed("read modules", error))
        });
        match found.await {
            Ok(modules) => {
                for skipped in &modules.skipped {
                    tracing::warn!(module = %skipped, "a module is too large to be kept with the template version");
                }
                Ok(modules)
            }
            Err(error) => {
                tracing::warn!(error = %error.message, "the list of modules cannot be read");
                Ok(Modules::default())
            }
        }
    }

    /// Reads variables and tags; needs no process.
    pub(crate) async fn parse(&mut self) -> Result<&RootModule, StepError> {
        if self.root.is_none() {
            let dir = self.work.template();
            self.root = Some(blocking(move || RootModule::read(&dir).map_err(StepError::from)).await?);
        }
        self.root.as_ref().ok_or_else(|| StepError::from("the root module was not read"))
    }

    /// The template's README, or nothing.
    pub(crate) async fn readme(&self) -> Bytes {
        tokio::fs::read(self.work.template().join("README.md")).await.map(Bytes::from).unwrap_or_default()
    }

    pub(crate) async fn plan(&mut self, request: PlanRequest<'_>) -> Result<PlanResult, StepError> {
        let log = self.log(request.stage);
        let mut observer = Observer::start(Step::Plan, self.tools.clock);
        let result = self.run_plan(request, &log, &mut observer).await;
        let timings = observer.finish(result.is_ok());
        match result {
            Ok(planned) => Ok(PlanResult { timings, ..planned }),
            Err(error) => Err(StepError { timings, ..error }),
        }
    }

    async fn run_plan(
        &mut self,
        request: PlanRequest<'_>,
        log: &StageLog,
        observer: &mut Observer<'_>,
    ) -> Result<PlanResult, StepError> {
        let destroys = request.input.metadata.workspace_transition() == pb::WorkspaceTransition::Destroy;
        if destroys && request.state.is_empty() {
            log.line(LogLevel::Info, "The terraform state does not exist, there is nothing to do").await;
            return Ok(PlanResult {
                summary: Summary::default(),
                json: Bytes::new(),
                timings: Vec::new(),
                plan: None,
            });
        }
        if !request.state.is_empty() {
            let (path, state) = (self.work.state_file(), request.state.to_owned());
            blocking(move || write_private(&path, &state).map_err(|error| failed("write statefile", error)))
                .await?;
        }
        let dir = self.work.template();
        let plan_file = self.work.private("terraform.tfplan");
        let mut arguments = args(["plan", "-no-color", "-input=false", "-json", "-refresh=true"]);
        arguments.push(joined("-out=", &plan_file));
        if destroys {
            arguments.push("-destroy".into());
        }
        if !request.variables.is_empty() {
            arguments.push(joined("-var-file=", &self.write_variables(request.variables).await?));
        }
        let step_variables = self.with_debug(self.with_provider(environment::for_plan(request.input)));

        let runner = self.runner(&dir)?;
        let planning = runner.stream(&arguments, &step_variables, log, observer);
        // The graph needs the configuration only, so it is made while Terraform plans.
        let graph_variables = self.common_variables();
        let graphing = self.make_graph(&runner, &graph_variables);
        let (planned, graphed) = tokio::join!(planning, graphing);
        planned.map_err(|error| failed("terraform plan", error))?;
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
            (Summary::default(), Bytes::new(), None)
        };
        if let Some(graph) = graphed? {
            self.graph = Some(graph);
        }
        Ok(PlanResult { summary, json, timings: Vec::new(), plan })
    }

    /// Whether a plan can only have a summary without cost, AI tasks and replacements. Everything a plan changes was
    /// announced by it, and what it leaves alone is in the state.
    fn summary_is_empty(&self, planned: Planned, state: &[u8]) -> bool {
        let mentions = |text: &[u8]| state.windows(text.len()).any(|window| window == text);
        !planned.replaces
            && !planned.counted_types
            && !mentions(b"coder_metadata")
            && !mentions(b"coder_ai_task")
    }

    /// The graph, unless it is known already.
    async fn make_graph(
        &self,
        runner: &Runner<'_>,
        variables: &Variables,
    ) -> Result<Option<Graph>, StepError> {
        if self.graph.is_some() {
            return Ok(None);
        }
        let mut arguments = args(["graph"]);
        if self.binary.as_ref().is_some_and(|binary| binary.version.has_graph_types()) {
            arguments.push("-type=plan".into());
        }
        let log = self.log(GRAPH_STAGE);
        let text = runner
            .capture(&arguments, variables, &log)
            .await
            .map_err(|error| failed("generate graph", error))?;
        let graph =
            Graph::parse(&String::from_utf8_lossy(&text)).map_err(|error| failed("parse graph", error))?;
        Ok(Some(graph))
    }

    /// Everything a plan would make of the template.
    pub(crate) fn graph_of_plan(&self, planned: PlanResult) -> Result<Graphed, StepError> {
        let started_at = self.tools.clock.now();
        let modules = planned.plan.map(Plan::into_modules).unwrap_or_default();
        self.convert(&modules, started_at)
    }

    fn convert(&self, modules: &[state::Module], started_at: Timestamp) -> Result<Graphed, StepError> {
        let timings = Timings::start(Step::Graph, started_at);
        let empty = Graph::default();
        let result = convert::convert(modules, self.graph.as_ref().unwrap_or(&empty));
        let timings = timings.finish(result.is_ok(), self.tools.clock.now());
        match result {
            Ok(converted) => Ok(Graphed { converted, timings }),
            Err(error) => Err(StepError { timings, ..failed("convert state for graph", error) }),
        }
    }

    pub(crate) async fn apply(
        &mut self,
        stage: &'static str,
        metadata: &pb::Metadata,
    ) -> Result<Applied, StepError> {
        let log = self.log(stage);
        let mut observer = Observer::start(Step::Apply, self.tools.clock);
        let result = self.run_apply(metadata, &log, &mut observer).await;
        let timings = observer.finish(result.is_ok());
        let state = tokio::fs::read(self.work.state_file()).await;
        let state_file = match state {
            Ok(bytes) => Ok(Bytes::from(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Bytes::new()),
            Err(error) => Err(failed("read statefile", error)),
        };
        match (result, state_file) {
            (Ok(()), Ok(state)) => Ok(Applied { state, timings }),
            (Ok(()), Err(error)) => Err(StepError { timings, ..error }),
            (Err(error), state) => Err(StepError { timings, state: state.unwrap_or_default(), ..error }),
        }
    }

    async fn run_apply(
        &self,
        metadata: &pb::Metadata,
        log: &StageLog,
        observer: &mut Observer<'_>,
    ) -> Result<(), StepError> {
        let destroys = metadata.workspace_transition() == pb::WorkspaceTransition::Destroy;
        if destroys && !tokio::fs::try_exists(self.work.state_file()).await.unwrap_or(false) {
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

    /// Everything the state holds.
    pub(crate) async fn graph_of_state(&self, state: &[u8]) -> Result<Graphed, StepError> {
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

    /// Asks Terraform for the state, which may be kept elsewhere than in the file.
    async fn shown_state(&self) -> Result<state::Module, StepError> {
        let dir = self.work.template();
        let json = self
            .runner(&dir)?
            .capture(&args(["show", "-json", "-no-color"]), &self.common_variables(), &self.log(GRAPH_STAGE))
            .await
            .map_err(|error| failed("load tfstate for graph", error))?;
        let shown: ShownState =
            serde_json::from_slice(&json).map_err(|error| failed("load tfstate for graph", error))?;
        Ok(shown.values.unwrap_or_default().root_module)
    }

    async fn write_variables(&mut self, values: &[pb::VariableValue]) -> Result<PathBuf, StepError> {
        // A module that cannot be read here has its values written as text, as Terraform itself has accepted it.
        let declared = match self.parse().await {
            Ok(root) => root.variables.clone(),
            Err(_) => Vec::new(),
        };
        let path = self.work.private(&format!("{}.tfvars", uuid::Uuid::new_v4()));
        let (target, values) = (path.clone(), values.to_vec());
        blocking(move || variables::write_file(&target, &values, &declared).map_err(StepError::from)).await?;
        Ok(path)
    }

    /// Gives a step's variables to the provider, and adds those by which Terraform finds it.
    fn with_provider(&self, mut variables: Variables) -> Variables {
        if let Some(provider) = &self.provider {
            provider.set_environment(
                variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            );
        }
        variables.extend(self.common_variables());
        variables
    }

    /// What every Terraform command of the job needs: the way to the provider (terraform 6.4), and the mark by which
    /// its processes are recognised.
    fn common_variables(&self) -> Variables {
        let reattach =
            |provider: &Listening| ("TF_REATTACH_PROVIDERS".to_owned(), provider.reattach().to_string());
        let mut variables: Variables = self.provider.iter().map(reattach).collect();
        variables.push((strays::MARKER.to_owned(), self.work.root().to_string_lossy().into_owned()));
        variables
    }

    fn with_debug(&self, mut variables: Variables) -> Variables {
        if self.debug {
            variables.push(("TF_LOG".to_owned(), "JSON".to_owned()));
        }
        variables
    }
}

/// The `coder` provider, which answers each job on a socket of its own. Its schemas are made when the first job needs
/// them, once for all daemons of the process.
fn provider_server() -> &'static ProviderServer {
    static SERVER: OnceLock<ProviderServer> = OnceLock::new();
    SERVER.get_or_init(ProviderServer::new)
}

fn lowest_level(name: &str) -> LogLevel {
    match name.to_ascii_lowercase().as_str() {
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "warn" | "warning" => LogLevel::Warn,
        "error" => LogLevel::Error,
        _ => LogLevel::Trace,
    }
}

fn args<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

fn joined(prefix: &str, path: &std::path::Path) -> OsString {
    let mut argument = OsString::from(prefix);
    argument.push(path);
    argument
}

fn write_private(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StepError> + Send + 'static,
) -> Result<T, StepError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| failed("internal error", error))?
}
