//! Setting up: the template is unpacked, Terraform initialises itself, and the root module is read.

use std::sync::OnceLock;
use std::time::SystemTime;

use bytes::Bytes;
use coder_tfprovider::ProviderServer;
use coder_wire::messages::provisioner as pb;
use pb::LogLevel;

use super::{StepError, Steps, args, blocking, failed};
use crate::archive::{self, Limits};
use crate::logs::StageLog;
use crate::terraform::cache;
use crate::terraform::environment::Variables;
use crate::terraform::modules::{self, Modules};
use crate::terraform::parse::{self, RootModule};
use crate::terraform::run::Observer;
use crate::terraform::timings::Step;

const INIT_STAGE: &str = "Initializing Terraform Directory";

pub(crate) struct Initialized {
    pub(crate) modules: Modules,
    pub(crate) timings: Vec<pb::Timing>,
}

impl Steps<'_> {
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
        let now = SystemTime::from(self.tools.clock.now());
        blocking(move || {
            archive::extract(&template, &target, Limits::TEMPLATE)
                .map_err(|error| failed("extract template archive", error))?;
            if let Some(files) = module_files {
                archive::extract(&files, &target, Limits::MODULES)
                    .map_err(|error| failed("extract module archive", error))?;
            }
            // State comes with the job; one that was packed by mistake would be taken for this workspace's.
            let _ = std::fs::remove_file(target.join("terraform.tfstate"));
            let has_source = std::fs::read_dir(&target)
                .map_err(|error| failed("read the template's folder", error))?
                .flatten()
                .any(|entry| parse::is_source(&entry.file_name().to_string_lossy()));
            if !has_source {
                return Err(StepError::from(
                    "the template has no Terraform file (*.tf or *.tf.json) at its top level; push the folder that holds main.tf",
                ));
            }
            std::fs::create_dir_all(&plugin_cache).map_err(|error| failed("make the plugin cache", error))?;
            cache::remove_stale(&plugin_cache, now);
            Ok(())
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
}

/// The `coder` provider, which answers each job on a socket of its own. Its schemas are made when the first job needs
/// them, once for all daemons of the process.
fn provider_server() -> &'static ProviderServer {
    static SERVER: OnceLock<ProviderServer> = OnceLock::new();
    SERVER.get_or_init(ProviderServer::new)
}
