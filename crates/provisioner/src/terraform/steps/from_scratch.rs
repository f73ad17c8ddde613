//! The first initialization of a template on this machine.
//!
//! Providers that `init` downloads serve all jobs, so no code of a template may influence them. Terraform
//! itself runs none, but `init` also runs git for modules, which runs what its configuration names, and
//! programs by which some backends authenticate. Templates with these are initialized in separate commands:
//! modules are fetched first, then providers are installed by a process that fetches nothing else, and a
//! backend is initialized last. Each command sees of the caches what a job sees; the second one also gets a
//! scratch directory for downloads (`cache/plugins/`).

use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use coder_wire::messages::provisioner::LogLevel;

use super::init::ALREADY_INITIALIZED;
use super::{StepError, Steps, args, blocking, failed};
use crate::cancel::Urgency;
use crate::isolation::IsolationLevel;
use crate::job::reporter::StageLog;
use crate::terraform::cache::init_cache;
use crate::terraform::cache::init_cache::{FileLock, InitKey, InitPurpose};
use crate::terraform::cache::plugins::PluginCache;
use crate::terraform::command::environment::EnvVars;
use crate::terraform::command::events::Event;
use crate::terraform::command::{CommandError, EventObserver, Runner};
use crate::terraform::template::features::TemplateFeatures;

/// Attempts of a command, and the growth of the delay between them.
const MAX_ATTEMPTS: u32 = 4;
const RETRY_FACTOR: u32 = 3;

/// What Terraform logs when `init` fetches modules.
const MODULE_FETCH_MESSAGES: [(&str, &str); 2] = [
    ("initializing_backend_message", "Initializing the backend..."),
    ("initializing_modules_message", "Initializing modules..."),
];

/// Terraform uses providers from here without configuration.
const LOCAL_MIRROR: &str = "terraform.d";

/// Moves the directory of Terraform's data.
const DATA_VARIABLE: &str = "TF_DATA_DIR";

impl Steps<'_> {
    /// Initializes the template, and stores the result. Daemons of this machine lock each template.
    pub(super) async fn init_from_scratch(
        &self,
        key: &InitKey,
        purpose: InitPurpose,
        has_json: bool,
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<(), StepError> {
        let (dir, now) = (self.work.template(), SystemTime::from(self.tools.clock.now()));
        let plugins = self.tools.cache.plugins.clone();
        blocking(move || plugins.prepare().map_err(|error| failed("make the plugin cache", error))).await?;
        let lock = self.lock(&format!("template-{}", &key.as_str()[..2])).await?;
        // Another daemon may have done it meanwhile.
        let (prepared, wanted, target) = (self.tools.cache.init_cache.clone(), key.clone(), dir.clone());
        if blocking(move || Ok(prepared.restore(&wanted, purpose, &target, now))).await? {
            log.line(LogLevel::Info, ALREADY_INITIALIZED).await;
            return Ok(());
        }
        self.run_commands(key, has_json, log, observer).await?;
        if lock.is_some() {
            let (prepared, key) = (self.tools.cache.init_cache.clone(), key.clone());
            blocking(move || {
                if let Err(error) = prepared.store(&key, &dir, now) {
                    tracing::debug!(%error, "an initialized directory could not be cached");
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn run_commands(
        &self,
        key: &InitKey,
        has_json: bool,
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<(), StepError> {
        let mut features = self.features().await?;
        let mut is_shared = self.can_share_providers(features);
        let fetches_modules = is_shared && features.modules;
        if features.modules && !fetches_modules && self.bundle.is_none() && !self.moves_data_dir() {
            self.seed_modules(log).await?;
        }
        if fetches_modules {
            self.get_modules(log, observer).await?;
            // Git may have run programs that changed anything in the job's directory, and without a PID
            // namespace they may still run.
            features = self.features().await?;
            is_shared = self.can_share_providers(features)
                && self.tools.sandbox_config.support.level != IsolationLevel::Directories;
        }
        let lock = if is_shared { self.lock("plugins").await? } else { None };
        is_shared = lock.is_some() && self.remove_data_except_modules().await?;

        let mut arguments = args(["init", "-no-color", "-input=false"]);
        if has_json {
            arguments.push("-json".into());
        }
        let whole = arguments.clone();
        if is_shared && fetches_modules {
            arguments.push("-get=false".into());
        }
        let without_backend = is_shared && (fetches_modules || features.backend);
        if without_backend {
            arguments.push("-backend=false".into());
        }
        let plugins = if is_shared {
            self.empty_home().await?;
            self.tools.cache.plugins.clone()
        } else {
            self.tools.cache.plugins.for_template(key)
        };
        self.install_providers(plugins, is_shared, &arguments, log, observer).await?;
        drop(lock);
        if without_backend && features.backend {
            self.run_with_retries(&whole, &self.with_provider(EnvVars::new()), None, log, observer).await?;
        }
        Ok(())
    }

    /// Runs an `init` that may download providers.
    async fn install_providers(
        &self,
        plugins: PluginCache,
        is_locked: bool,
        arguments: &[OsString],
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<(), StepError> {
        let now = SystemTime::from(self.tools.clock.now());
        let lock_file = self.work.in_template(init_cache::LOCK_FILE);
        let staging = blocking(move || {
            if is_locked {
                plugins.remove_stale(now);
            }
            let lock_file = lock_file.read(init_cache::MAX_LOCK_FILE_BYTES).ok();
            let lock_file = lock_file.and_then(|text| String::from_utf8(text).ok());
            plugins.stage(lock_file.as_deref()).map_err(|error| failed("make the plugin cache", error))
        })
        .await?;
        let mut variables = self.with_provider(EnvVars::new());
        variables.push(("TF_PLUGIN_CACHE_DIR".to_owned(), staging.dir().to_string_lossy().into_owned()));
        // Without it Terraform uses the cache only for what a lock file names. A job's own lock file is not
        // stored.
        variables.push(("TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE".to_owned(), "1".to_owned()));
        self.run_with_retries(arguments, &variables, Some(staging.dir()), log, observer).await?;
        let dir = self.work.template();
        blocking(move || staging.commit(&dir, now).map_err(|error| failed("keep the providers", error))).await
    }

    async fn get_modules(&self, log: &StageLog, observer: &mut EventObserver<'_>) -> Result<(), StepError> {
        for (code, message) in MODULE_FETCH_MESSAGES {
            let event = serde_json::json!({"@level": "info", "@message": message, "type": "init_output", "message_code": code});
            if let Some(event) = Event::parse(&event.to_string()) {
                observer.observe(&event);
            }
            log.line(LogLevel::Info, message).await;
        }
        self.seed_modules(log).await?;
        let arguments = args(["get", "-no-color"]);
        self.run_with_retries(&arguments, &self.with_provider(EnvVars::new()), None, log, observer).await
    }

    /// The next command serves all jobs, so nothing that ran before may have left configuration for it.
    pub(super) async fn empty_home(&self) -> Result<(), StepError> {
        let (home, job) = (self.tools.sandbox_config.home.clone(), self.work.root().to_owned());
        blocking(move || home.create(&job).map_err(|error| failed("make the job's home directory", error)))
            .await
    }

    /// Waits for a lock, unless the job is canceled; `None` when its holder takes too long.
    pub(super) async fn lock(&self, name: &str) -> Result<Option<FileLock>, StepError> {
        let lock = self.tools.cache.scratch.lock(name);
        self.unless_canceled(FileLock::wait(&lock))
            .await?
            .map_err(|error| failed("lock the plugin cache", error))
    }

    pub(super) async fn unless_canceled<T>(&self, work: impl Future<Output = T>) -> Result<T, StepError> {
        tokio::select! {
            done = work => Ok(done),
            () = self.cancel.reached(Urgency::Graceful) => Err(StepError::from("the job was canceled")),
        }
    }

    async fn features(&self) -> Result<TemplateFeatures, StepError> {
        let dir = self.work.template();
        blocking(move || {
            TemplateFeatures::read(&dir).map_err(|error| failed("read the template's folder", error))
        })
        .await
    }

    /// Whether an `init` of this template may install providers for all jobs: they come from the sources in the
    /// daemon's configuration, and nothing of the template runs.
    fn can_share_providers(&self, features: TemplateFeatures) -> bool {
        let brings_providers = || self.work.template().join(LOCAL_MIRROR).symlink_metadata().is_ok();
        self.bundle.is_none() && !features.encryption && !self.moves_data_dir() && !brings_providers()
    }

    fn moves_data_dir(&self) -> bool {
        self.tools.environment.terraform_variables().any(|(name, _)| name == DATA_VARIABLE)
    }

    /// Removes everything but modules from Terraform's data directory, such as an earlier backend, which `init`
    /// would ask about. Returns false on errors.
    async fn remove_data_except_modules(&self) -> Result<bool, StepError> {
        let data = self.work.template().join(init_cache::DATA);
        let is_plain = self.work.is_plain(init_cache::DATA);
        blocking(move || {
            if data.symlink_metadata().is_err() {
                return Ok(true);
            }
            if !is_plain {
                return Ok(false);
            }
            let cleared = data.read_dir().and_then(|entries| {
                for entry in entries {
                    let entry = entry?;
                    if entry.file_name() == "modules" {
                        continue;
                    }
                    let is_dir = entry.file_type()?.is_dir();
                    if is_dir {
                        std::fs::remove_dir_all(entry.path())
                    } else {
                        std::fs::remove_file(entry.path())
                    }?;
                }
                Ok(())
            });
            Ok(cleared.is_ok())
        })
        .await
    }

    /// Runs a command, with retries after transient failures of a remote. Nothing else of a job is retried.
    async fn run_with_retries(
        &self,
        arguments: &[OsString],
        variables: &EnvVars,
        writable: Option<&Path>,
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<(), StepError> {
        let dir = self.work.template();
        let mut delay = self.tools.init_retry;
        for attempt in 1..=MAX_ATTEMPTS {
            let runner = self.runner(&dir)?;
            let sandbox = runner
                .sandbox
                .map(|sandbox| writable.map_or(sandbox, |writable| sandbox.with_writable(writable)));
            let runner = Runner { sandbox, ..runner };
            let result = runner.stream(arguments, variables, log, observer).await;
            let error = match result {
                Ok(()) => return Ok(()),
                Err(error @ CommandError::Exit { .. })
                    if attempt < MAX_ATTEMPTS && observer.take_transient() =>
                {
                    error
                }
                Err(error) => return Err(failed("initialize terraform", error)),
            };
            let next = attempt + 1;
            tracing::debug!(%error, "init is tried again");
            let message = format!(
                "Initializing failed for a reason that may be temporary; trying again in {} s (attempt {next} of {MAX_ATTEMPTS})",
                delay.as_secs_f32()
            );
            log.line(LogLevel::Warn, &message).await;
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.cancel.reached(Urgency::Graceful) => return Err(failed("initialize terraform", CommandError::Canceled)),
            }
            delay *= RETRY_FACTOR;
        }
        Err(StepError::from("initialize terraform: the last attempt has no result"))
    }
}
