//! Initialization: unpacks the template, runs `init`, and parses the root module.

use std::sync::OnceLock;
use std::time::SystemTime;

use bytes::Bytes;
use coder_source::files::{Dialect, SourceName};
use coder_tfprovider::ProviderServer;
use coder_wire::messages::provisioner as pb;
use pb::LogLevel;

use super::{StepError, Steps, blocking, failed};
use crate::cancel::Urgency;
use crate::files::archive;
use crate::files::archive::ArchiveLimits;
use crate::job::reporter::StageLog;
use crate::terraform::binary::Binary;
use crate::terraform::binary::required::TemplateRequirements;
use crate::terraform::cache::init_cache::{InitKey, InitPurpose};
use crate::terraform::command::EventObserver;
use crate::terraform::command::timings::TerraformStep;
use crate::terraform::install::InstallProgress;
use crate::terraform::template::bundle;
use crate::terraform::template::bundle::BundleStatus;
use crate::terraform::template::modules;
use crate::terraform::template::modules::Modules;
use crate::terraform::template::parse::RootModule;

/// The size limit of a file in a template's archive.
const MAX_README_BYTES: u64 = 10 * 1024 * 1024;

const LOCK_FILE: &str = ".terraform.lock.hcl";

/// Logged instead of the output of `init`.
pub(super) const ALREADY_INITIALIZED: &str =
    "Terraform has been initialized with this template before; nothing is downloaded";

pub(super) const INIT_STAGE: &str = "Initializing Terraform Directory";

pub(crate) struct InitOutput {
    pub(crate) modules: Modules,
    pub(crate) timings: Vec<pb::Timing>,
}

impl Steps<'_> {
    /// Unpacks the template and its modules, and runs `init`.
    pub(crate) async fn init(
        &mut self,
        template: Bytes,
        module_files: Option<Bytes>,
        wants_archive: bool,
    ) -> Result<InitOutput, StepError> {
        let log = self.log(INIT_STAGE);
        let mut observer = EventObserver::start(TerraformStep::Init, self.tools.clock);
        let result = self.run_init(template, module_files, wants_archive, &log, &mut observer).await;
        let timings = observer.finish(result.is_ok());
        match result {
            Ok(modules) => Ok(InitOutput { modules, timings }),
            Err(error) => Err(StepError { timings, ..error }),
        }
    }

    async fn run_init(
        &mut self,
        template: Bytes,
        module_files: Option<Bytes>,
        wants_archive: bool,
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<Modules, StepError> {
        let dir = self.work.template();
        let target = dir.clone();
        let (archive, modules, private) = (template.clone(), module_files.clone(), self.work.private_dir());
        let (locked, required, bundled) = blocking(move || {
            archive::extract(&archive, &target, ArchiveLimits::TEMPLATE)
                .map_err(|error| failed("extract template archive", error))?;
            if let Some(files) = modules {
                archive::extract(&files, &target, ArchiveLimits::MODULES)
                    .map_err(|error| failed("extract module archive", error))?;
            }
            // The state comes with the job; one in the archive would be taken for this workspace's.
            let _ = std::fs::remove_file(target.join("terraform.tfstate"));
            let has_source = std::fs::read_dir(&target)
                .map_err(|error| failed("read the template's folder", error))?
                .flatten()
                .any(|entry| SourceName::parse(&entry.file_name().to_string_lossy()).is_some());
            if !has_source {
                return Err(StepError::from(
                    "the template has no Terraform file (*.tf, *.tf.json; *.tofu, *.tofu.json for OpenTofu) at its top level; push the folder that holds main.tf",
                ));
            }
            let bundled = bundle::prepare(&target, &private)?;
            Ok((target.join(LOCK_FILE).exists(), TemplateRequirements::read(&target), bundled))
        })
        .await?;
        let is_bundle = bundled != BundleStatus::No;
        match bundled {
            BundleStatus::No => {}
            BundleStatus::Config(config) => {
                log.line(LogLevel::Info, "The template is a bundle: modules and providers come from it")
                    .await;
                self.bundle = Some(config);
            }
            BundleStatus::Elsewhere { platforms } => {
                let message = format!(
                    "The template is a bundle for {}, and this daemon runs on {}: providers are downloaded as usual",
                    platforms.join(", "),
                    bundle::platform()
                );
                log.line(LogLevel::Warn, &message).await;
            }
        }

        let (finder, progress) = (self.tools.finder, InstallProgress::of_job(log));
        let binary = tokio::select! {
            binary = finder.find(self.tools.environment, &required, &progress) => binary?,
            () = self.cancel.reached(Urgency::Graceful) => return Err(StepError::from("the job was canceled")),
        };
        self.tools.program.start(&binary);
        // Official servers record it nowhere else.
        log.line(LogLevel::Info, &format!("Using {binary}")).await;
        for line in self.tools.environment.announcements() {
            log.line(LogLevel::Warn, &line).await;
        }
        let purpose = if wants_archive { InitPurpose::Import { locked } } else { InitPurpose::Build };
        let (prepared, environment) = (self.tools.cache.init_cache.clone(), self.tools.environment.clone());
        let (asked, target, now) = (binary.clone(), dir.clone(), SystemTime::from(self.tools.clock.now()));
        let (key, is_ready) = blocking(move || {
            let key = InitKey::of(&template, module_files.as_deref(), &asked, &environment);
            let is_ready = prepared.restore(&key, purpose, &target, now);
            Ok((key, is_ready))
        })
        .await?;
        let has_json = binary.has_json_init();
        self.binary = Some(binary);
        let (sockets, run_dir) = (self.work.private_dir(), self.work.template());
        let server = self.tools.provider.unwrap_or_else(|| shared_provider());
        let provider = server.listen(&sockets, &run_dir, coder_tfprovider::Environment::default());
        self.provider = Some(provider.map_err(|error| failed("serve the coder provider", error))?);
        if is_ready {
            log.line(LogLevel::Info, ALREADY_INITIALIZED).await;
        } else {
            self.init_from_scratch(&key, purpose, has_json, log, observer).await?;
        }

        let found = blocking(move || {
            // A bundle contains its modules already.
            modules::read(&dir, wants_archive && !is_bundle).map_err(|error| failed("read modules", error))
        });
        match found.await {
            Ok(modules) => {
                for skipped in &modules.skipped {
                    tracing::warn!(module = %skipped, "a module is too large to be stored with the template version");
                }
                Ok(modules)
            }
            Err(error) => {
                tracing::warn!(error = %error.message, "the module manifest cannot be read");
                Ok(Modules::default())
            }
        }
    }

    /// Parses variables and tags without starting a process.
    pub(crate) async fn parse(&mut self) -> Result<&RootModule, StepError> {
        if self.root.is_none() {
            let dialect = self.binary.as_ref().map_or(Dialect::Terraform, Binary::dialect);
            let dir = self.work.template();
            if !self.work.is_plain("") {
                return Err(StepError::from("the template's directory was moved while it was initialized"));
            }
            self.root =
                Some(blocking(move || RootModule::read(&dir, dialect).map_err(StepError::from)).await?);
        }
        self.root.as_ref().ok_or_else(|| StepError::from("the root module was not read"))
    }

    /// The template's README; empty without one.
    pub(crate) async fn readme(&self) -> Bytes {
        let file = self.work.in_template("README.md");
        let reading = tokio::task::spawn_blocking(move || file.read(MAX_README_BYTES));
        reading.await.ok().and_then(Result::ok).map(Bytes::from).unwrap_or_default()
    }
}

/// The `coder` provider, which serves each job on a socket of its own. Its schemas are built once per process,
/// when the first job needs them.
fn shared_provider() -> &'static ProviderServer {
    static SERVER: OnceLock<ProviderServer> = OnceLock::new();
    SERVER.get_or_init(ProviderServer::new)
}
