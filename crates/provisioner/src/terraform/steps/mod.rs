//! The steps of a job: init, parse, plan, apply, and the graphs of plans and states (wire-protocol 7.2).
//!
//! Each step starts as few processes as possible. The configuration's graph does not change during a job, so it
//! is computed once, in parallel with the first plan; a plan is shown only when something must be read from it;
//! the state is read from its file.

mod apply;
mod from_scratch;
mod init;
mod module_fetch;
mod plan;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use coder_domain::clock::Clock;
use coder_tfprovider::{ProviderListener, ProviderServer};
use coder_wire::messages::provisioner as pb;
use jiff::Timestamp;
use pb::LogLevel;

pub(crate) use self::plan::PlanRequest;
use super::binary::{Binary, BinaryError, Finder};
use super::cache::TerraformCache;
use super::command::Runner;
use super::command::environment::{EnvVars, Environment};
use super::command::timings::{TerraformStep, Timings};
use super::journal::Journal;
use super::resources::convert;
use super::resources::convert::ConvertedResources;
use super::resources::graph::Graph;
use super::resources::state;
use super::template::parse::RootModule;
use crate::cancel::Cancel;
use crate::isolation::{JobCgroups, SandboxConfig};
use crate::job::orphans;
use crate::job::program_report::ProgramReport;
use crate::job::reporter::{Reporter, StageLog};
use crate::job::workdir::WorkDir;

pub(crate) const GRAPH_STAGE: &str = "Graphing Infrastructure";

/// A failed step: the error, and what it leaves behind.
#[derive(Debug, Default)]
pub(crate) struct StepError {
    pub(crate) message: String,
    pub(crate) timings: Vec<pb::Timing>,
    /// The state that was written before the failure; only applies have one.
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

/// What a daemon provides to each job.
pub(crate) struct Tools<'a> {
    pub(crate) finder: &'a Finder,
    pub(crate) environment: &'a Environment,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) cache: &'a TerraformCache,
    pub(crate) exit_timeout: Duration,
    pub(crate) journal: &'a Journal,
    pub(crate) program: &'a ProgramReport,
    pub(crate) init_retry: Duration,
    pub(crate) sandbox_config: &'a SandboxConfig,
    pub(crate) groups: &'a JobCgroups,
    /// The provider of this daemon, when it has one of its own.
    pub(crate) provider: Option<&'a ProviderServer>,
}

/// Terraform of one job: its directory, its program, and the results so far.
pub(crate) struct Steps<'a> {
    tools: Tools<'a>,
    work: &'a WorkDir,
    reporter: &'a Reporter,
    cancel: &'a Cancel,
    min_level: LogLevel,
    debug: bool,
    binary: Option<Binary>,
    root: Option<RootModule>,
    graph: Option<Graph>,
    provider: Option<ProviderListener>,
    /// Terraform's CLI configuration for a bundle.
    bundle: Option<PathBuf>,
}

pub(crate) struct GraphOutput {
    pub(crate) converted: ConvertedResources,
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
        let min_level = lowest_level(log_level);
        let debug = !log_level.is_empty();
        Self {
            tools,
            work,
            reporter,
            cancel,
            min_level,
            debug,
            binary: None,
            root: None,
            graph: None,
            provider: None,
            bundle: None,
        }
    }

    fn log(&self, stage: &'static str) -> StageLog {
        self.reporter.stage_log(stage, self.min_level)
    }

    fn runner<'r>(&'r self, dir: &'r Path) -> Result<Runner<'r>, BinaryError> {
        let binary = self.binary.as_ref().ok_or(BinaryError::NotInPath)?;
        Ok(Runner {
            program: &binary.path,
            dir,
            environment: self.tools.environment,
            cancel: self.cancel,
            exit_timeout: self.tools.exit_timeout,
            sandbox: Some(self.tools.sandbox_config.for_job(self.work.root(), self.tools.groups)),
        })
    }

    fn convert(&self, modules: &[state::Module], started_at: Timestamp) -> Result<GraphOutput, StepError> {
        let timings = Timings::start(TerraformStep::Graph, started_at);
        let empty = Graph::default();
        let result = convert::convert(modules, self.graph.as_ref().unwrap_or(&empty));
        let timings = timings.finish(result.is_ok(), self.tools.clock.now());
        match result {
            Ok(converted) => Ok(GraphOutput { converted, timings }),
            Err(error) => Err(StepError { timings, ..failed("convert state for graph", error) }),
        }
    }

    /// Passes a step's variables to the provider, and adds those by which Terraform finds it.
    fn with_provider(&self, mut variables: EnvVars) -> EnvVars {
        if let Some(provider) = &self.provider {
            provider.set_environment(
                variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            );
        }
        variables.extend(self.common_variables());
        variables
    }

    /// The variables of all Terraform commands of the job: the address of the provider (terraform 6.4), and the
    /// marker that identifies its processes.
    fn common_variables(&self) -> EnvVars {
        let living = self.tools.sandbox_config.long_lived_pid();
        let reattach = |provider: &ProviderListener| {
            let mut reattach = provider.reattach();
            if let (Some(pid), Some(providers)) = (living, reattach.as_object_mut()) {
                providers.values_mut().for_each(|provider| provider["Pid"] = pid.into());
            }
            ("TF_REATTACH_PROVIDERS".to_owned(), reattach.to_string())
        };
        let mut variables: EnvVars = self.provider.iter().map(reattach).collect();
        variables.push((orphans::JOB_VARIABLE.to_owned(), self.work.root().to_string_lossy().into_owned()));
        if let Some(config) = &self.bundle {
            variables.push(("TF_CLI_CONFIG_FILE".to_owned(), config.to_string_lossy().into_owned()));
        }
        variables
    }

    fn with_debug(&self, mut variables: EnvVars) -> EnvVars {
        if self.debug {
            variables.push(("TF_LOG".to_owned(), "JSON".to_owned()));
        }
        variables
    }
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

fn concat(prefix: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(prefix);
    argument.push(path);
    argument
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StepError> + Send + 'static,
) -> Result<T, StepError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| failed("internal error", error))?
}
