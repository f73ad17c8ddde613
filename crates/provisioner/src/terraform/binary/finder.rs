//! Finds the available programs, and caches the version of each while its file is unchanged.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Notify, OnceCell};
use tokio::time::Instant;

use super::choose::choose;
use super::program::{Binary, BinaryError, BinaryOrigin, MINIMUM_VERSION, Product, TerraformSource};
use super::required::TemplateRequirements;
use super::version::Version;
use crate::terraform::command::environment::Environment;
use crate::terraform::command::start_failure;
use crate::terraform::command::start_failure::StartFailure;
use crate::terraform::install::{InstallProgress, Installer};

/// Time limit of `terraform version`; it normally takes 50 ms.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

const VERSION_LIMIT_BYTES: u64 = 64 * 1024;

/// How long a new program may be busy, and how often to try.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Further programs in a directory are ignored.
const MAX_PROGRAMS: usize = 256;

/// The identity of a program file.
type FileIdentity = (PathBuf, u64, Option<SystemTime>);

/// The version that a program reported, or when and why it failed.
type ProbeResult = Result<(Version, Product), (Instant, ProbeError)>;

type SharedProbe = Arc<OnceCell<ProbeResult>>;

/// A program that failed is not probed again for this time, unless its file changes.
const PROBE_RETRY: Duration = Duration::from_secs(60);

/// Why the version of a program is unknown.
#[derive(Debug, Clone)]
enum ProbeError {
    /// It is not a usable program.
    Unusable(String),
    /// The system could not run it.
    StartFailed(StartFailure),
}

/// Finds programs. It searches again for each job, so a new program needs no restart.
#[derive(Debug)]
pub(crate) struct Finder {
    source: TerraformSource,
    installer: Option<Installer>,
    probes: Mutex<HashMap<FileIdentity, SharedProbe>>,
    /// A job found no program.
    recheck: Notify,
}

#[derive(Deserialize)]
struct VersionOutput {
    terraform_version: String,
}

/// A program, or why a path contains none.
type Candidate = Result<(PathBuf, BinaryOrigin), BinaryError>;

impl Finder {
    pub(crate) fn new(source: TerraformSource, installer: Option<Installer>) -> Self {
        Self { source, installer, probes: Mutex::default(), recheck: Notify::new() }
    }

    /// Logs which configured paths contain no program.
    pub(crate) async fn warn_of_unusable_paths(&self, environment: &Environment) {
        if self.source != TerraformSource::SearchPath {
            for error in
                self.candidates(environment).await.iter().filter_map(|candidate| candidate.as_ref().err())
            {
                tracing::warn!(target: "provisioner", %error, "a path of --terraform-path cannot be used");
            }
        }
    }

    /// The program for a template without requirements; installs one if there is none. Ignores cached failures:
    /// the caller decides how often to try.
    ///
    /// # Errors
    /// No program can be used or installed; the message says what to do.
    pub(crate) async fn check(&self, environment: &Environment) -> Result<Binary, BinaryError> {
        self.probes.lock().retain(|_, probe| probe.get().is_none_or(Result::is_ok));
        if let Some(installer) = &self.installer {
            installer.clear_failure();
        }
        self.choose(environment, &TemplateRequirements::default(), &InstallProgress::silent()).await
    }

    /// Waits until a job has found no program.
    pub(crate) async fn recheck_requested(&self) {
        self.recheck.notified().await;
    }

    /// The program for a template.
    ///
    /// # Errors
    /// No program fits and none could be installed; the message says what to do.
    pub(crate) async fn find(
        &self,
        environment: &Environment,
        required: &TemplateRequirements,
        progress: &InstallProgress<'_>,
    ) -> Result<Binary, BinaryError> {
        let found = self.choose(environment, required, progress).await;
        if found.is_err() {
            self.recheck.notify_one();
        }
        found
    }

    async fn choose(
        &self,
        environment: &Environment,
        required: &TemplateRequirements,
        progress: &InstallProgress<'_>,
    ) -> Result<Binary, BinaryError> {
        let (available, mut errors) = self.available(environment).await;
        // When the operator names a wrong path, another program must not be used silently.
        let named = self.source != TerraformSource::SearchPath;
        if named
            && !errors.is_empty()
            && !available.iter().any(|binary| binary.origin == BinaryOrigin::Configured)
        {
            return Err(errors.swap_remove(0));
        }
        if let Some(binary) = choose(&available, required) {
            return Ok(binary.clone());
        }
        let installer = self.installer.as_ref().filter(|_| required.opentofu_only_file.is_none());
        let without = if available.is_empty() && !errors.is_empty() {
            errors.swap_remove(0)
        } else {
            none_fits(required, &available, installer.is_some() || required.opentofu_only_file.is_some())
        };
        let Some(installer) = installer else { return Err(without) };
        let failed = |reason: String| BinaryError::Install { without: Box::new(without.clone()), reason };
        let path = installer
            .install(required, &without, progress)
            .await
            .map_err(|error| failed(error.to_string()))?;
        self.probe(&path, BinaryOrigin::Installed, environment)
            .await
            .map_err(|error| failed(error.to_string()))
    }

    /// The available programs, and why other paths contain none.
    async fn available(&self, environment: &Environment) -> (Vec<Binary>, Vec<BinaryError>) {
        let (mut available, mut errors) = (Vec::new(), Vec::new());
        for candidate in self.candidates(environment).await {
            let probe = match candidate {
                Ok((path, origin)) => self.probe(&path, origin, environment).await,
                Err(error) => Err(error),
            };
            match probe {
                Ok(binary) => available.push(binary),
                Err(error) => errors.push(error),
            }
        }
        (available, errors)
    }

    async fn candidates(&self, environment: &Environment) -> Vec<Candidate> {
        let source = self.source.clone();
        let path = environment.path().map(OsStr::to_owned);
        let installed = self.installer.as_ref().map(|installer| installer.dir().to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let mut candidates = configured(&source, path.as_deref());
            let own = installed.iter().flat_map(|dir| programs_in(dir));
            candidates.extend(own.map(|path| Ok((path, BinaryOrigin::Installed))));
            candidates
        });
        looked.await.unwrap_or_default()
    }

    async fn probe(
        &self,
        path: &Path,
        origin: BinaryOrigin,
        environment: &Environment,
    ) -> Result<Binary, BinaryError> {
        let unusable = |reason: String| BinaryError::Unusable(path.to_owned(), reason);
        let path = tokio::fs::canonicalize(path).await.map_err(|error| unusable(error.to_string()))?;
        let file = tokio::fs::metadata(&path).await.map_err(|error| unusable(error.to_string()))?;
        let identity = (path.clone(), file.len(), file.modified().ok());
        let cell = {
            let mut probes = self.probes.lock();
            // Removes the results of replaced files.
            probes.retain(|other, _| other.0 != path || *other == identity);
            let cell = probes.entry(identity).or_default();
            // A limit of the machine may change at any time.
            let is_expired = |(at, failure): &(Instant, ProbeError)| {
                matches!(failure, ProbeError::StartFailed(cause) if cause.is_transient)
                    || at.elapsed() > PROBE_RETRY
            };
            if cell.get().is_some_and(|result| result.as_ref().is_err_and(is_expired)) {
                *cell = SharedProbe::default();
            }
            Arc::clone(cell)
        };
        // Of many jobs at once one probes, and the others wait for the result.
        let result = cell.get_or_init(|| async {
            probe(&path, environment).await.map_err(|failure| (Instant::now(), failure))
        });
        let (version, product) = result.await.clone().map_err(|(_, failure)| match failure {
            ProbeError::Unusable(reason) => unusable(reason),
            ProbeError::StartFailed(cause) => BinaryError::CannotStart(path.clone(), cause.text),
        })?;
        if version.numbers < MINIMUM_VERSION {
            let path = path.display().to_string();
            return Err(BinaryError::TooOld { found: version.to_string(), path });
        }
        Ok(Binary { path, version, product, origin })
    }
}

fn none_fits(required: &TemplateRequirements, available: &[Binary], has_other_advice: bool) -> BinaryError {
    let available: Vec<String> = available.iter().map(ToString::to_string).collect();
    let installing =
        if has_other_advice { "" } else { ", or let it install one (--terraform-install)" }.to_owned();
    let required = required.to_string();
    if required.is_empty() && available.is_empty() {
        return BinaryError::NonePresent { installing };
    }
    let offered = if available.is_empty() { "nothing".to_owned() } else { available.join(", ") };
    BinaryError::NoneFits { required, offered, installing }
}

/// The programs of the configured source. Blocks.
fn configured(source: &TerraformSource, path: Option<&OsStr>) -> Vec<Candidate> {
    let missing = |path: &Path| BinaryError::Unusable(path.to_owned(), "no such file".to_owned());
    let candidates = match source {
        TerraformSource::SearchPath => {
            let found = ["terraform", "tofu"].iter().filter_map(|name| search(path, name));
            let found: Vec<Candidate> = found.map(|path| Ok((path, BinaryOrigin::Configured))).collect();
            return if found.is_empty() { vec![Err(BinaryError::NotInPath)] } else { found };
        }
        TerraformSource::File(path) => std::slice::from_ref(path),
        TerraformSource::Paths(candidates) => candidates,
    };
    let mut found = Vec::new();
    for candidate in candidates {
        if candidate.is_dir() {
            let programs = programs_in(candidate);
            if programs.is_empty() {
                found.push(Err(BinaryError::EmptyDirectory(candidate.clone())));
            }
            found.extend(programs.into_iter().map(|path| Ok((path, BinaryOrigin::Configured))));
        } else if candidate.is_file() {
            found.push(Ok((candidate.clone(), BinaryOrigin::Configured)));
        } else {
            found.push(Err(missing(candidate)));
        }
    }
    found
}

fn search(path: Option<&OsStr>, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|dir| dir.join(name)).find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The programs in a directory and one level below, sorted by name.
fn programs_in(dir: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let is_named = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        ["terraform", "tofu"].iter().any(|product| {
            // `terraform_1.9.8` matches, `terraform-provider-x` and `terraform-ls` do not.
            let rest = name.strip_prefix(product);
            rest.is_some_and(|rest| {
                rest.is_empty()
                    || rest.trim_start_matches(['_', '-', 'v']).starts_with(|c: char| c.is_ascii_digit())
            })
        })
    };
    let mut found = Vec::new();
    for path in entries(dir) {
        if path.is_dir() {
            // Unfinished installations have another name.
            let is_new = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("new-"));
            if !is_new {
                found.extend(entries(&path).into_iter().filter(is_named).filter(|path| is_program(path)));
            }
        } else if is_named(&path) && is_program(&path) {
            found.push(path);
        }
    }
    found.truncate(MAX_PROGRAMS);
    found
}

async fn probe(path: &Path, environment: &Environment) -> Result<(Version, Product), ProbeError> {
    let unusable = |reason: &str| ProbeError::Unusable(reason.to_owned());
    let bytes = run_program(path, &["version", "-json"], environment).await?;
    let output: VersionOutput =
        serde_json::from_slice(&bytes).map_err(|_| unusable("version -json printed no version"))?;
    let version = Version::parse(&output.terraform_version).ok_or_else(|| {
        ProbeError::Unusable(format!("version -json printed {:?} as its version", output.terraform_version))
    })?;
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let product = if name.starts_with("terraform") {
        Product::Terraform
    } else if name.starts_with("tofu") {
        Product::OpenTofu
    } else {
        // Both report `terraform_version` in JSON; the text output names the product.
        let words = run_program(path, &["version"], environment).await?;
        if words.starts_with(b"OpenTofu") { Product::OpenTofu } else { Product::Terraform }
    };
    Ok((version, product))
}

/// The output of a program. Its exit status counts only for external causes: old versions exit with an error
/// after complete output.
async fn run_program(
    path: &Path,
    arguments: &[&str],
    environment: &Environment,
) -> Result<Vec<u8>, ProbeError> {
    let mut command = tokio::process::Command::new(path);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    environment.apply_basic(&mut command);
    command.kill_on_drop(true);
    let until = Instant::now() + BUSY_TIMEOUT;
    let mut child = loop {
        match command.spawn() {
            // The file was just written, and a process that is being started still holds it open.
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy && Instant::now() < until =>
            {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(ProbeError::StartFailed(start_failure::from_spawn_error(path, &error))),
            Ok(child) => break child,
        }
    };
    let stdout = child.stdout.take().expect("stdout is piped when the command is made");
    let stderr = child.stderr.take().expect("stderr is piped when the command is made");
    let answer = tokio::time::timeout(VERSION_TIMEOUT, async {
        let (mut bytes, mut errors) = (Vec::new(), Vec::new());
        let (mut stdout, mut stderr) = (stdout.take(VERSION_LIMIT_BYTES), stderr.take(VERSION_LIMIT_BYTES));
        tokio::try_join!(stdout.read_to_end(&mut bytes), stderr.read_to_end(&mut errors))?;
        Ok::<_, std::io::Error>((bytes, errors, child.wait().await?))
    });
    let unusable = |reason: String| ProbeError::Unusable(reason);
    let answer = answer.await.map_err(|_| unusable("version did not answer in 30 s".to_owned()))?;
    let (bytes, errors, status) = answer.map_err(|error| unusable(error.to_string()))?;
    match start_failure::from_exit(status, &String::from_utf8_lossy(&errors)) {
        Some(cause) => Err(ProbeError::StartFailed(cause)),
        None => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::terraform::binary::constraint::Constraint;
    use crate::terraform::binary::required::VersionRequirement;

    fn script(path: &Path, version: &str) -> PathBuf {
        let dir = path.parent().unwrap();
        std::fs::create_dir_all(dir).unwrap();
        let text = format!(
            "#!/bin/sh\necho x >> {}/calls\ntest \"$2\" = -json && echo '{{\"terraform_version\":\"{version}\"}}' || echo OpenTofu\n",
            dir.display()
        );
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_owned()
    }

    fn required(constraint: &str) -> TemplateRequirements {
        let constraint = Constraint::parse(constraint).unwrap();
        let place = "main.tf:3".to_owned();
        let requirement = VersionRequirement { constraint, place, opentofu_only: false, replaced: false };
        TemplateRequirements { requirements: vec![requirement], ..TemplateRequirements::default() }
    }

    async fn find(finder: &Finder, required: &TemplateRequirements) -> Result<String, String> {
        let found = finder.find(&Environment::of_daemon(), required, &InstallProgress::silent()).await;
        found.map(|binary| binary.version.to_string()).map_err(|error| error.to_string())
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_that_somebody_still_holds_open_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(&dir.path().join("terraform"), "1.4.2");
        // A script is read by its interpreter and is never busy, so the test uses a system program.
        std::fs::copy("/bin/true", &path).unwrap();
        let open = std::fs::File::options().append(true).open(&path).unwrap();
        let environment = Environment::of_daemon();
        let running = run_program(&path, &[], &environment);
        let closing = async {
            tokio::time::sleep(POLL_INTERVAL * 2).await;
            drop(open);
        };
        let (ran, ()) = tokio::join!(running, closing);
        assert_eq!(ran.unwrap(), b"");
    }

    #[tokio::test]
    async fn the_version_is_asked_once_per_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(&dir.path().join("terraform"), "1.4.2");
        let finder = Finder::new(TerraformSource::File(path.clone()), None);
        let any = TemplateRequirements::default();
        let (one, two, three) = tokio::join!(find(&finder, &any), find(&finder, &any), find(&finder, &any));
        assert!([one, two, three].iter().all(|found| found.as_deref() == Ok("1.4.2")));
        assert_eq!(std::fs::read_to_string(dir.path().join("calls")).unwrap(), "x\n");
        script(&path, "1.14.12");
        assert_eq!(find(&finder, &any).await.unwrap(), "1.14.12");
    }

    #[tokio::test]
    async fn a_program_of_no_use_is_not_asked_by_each_job() {
        let dir = tempfile::tempdir().unwrap();
        let broken = script(&dir.path().join("broken/tofu"), "");
        let good = script(&dir.path().join("good/terraform"), "1.9.8");
        let finder = Finder::new(TerraformSource::Paths(vec![broken, good]), None);
        for _ in 0..3 {
            assert_eq!(find(&finder, &TemplateRequirements::default()).await.unwrap(), "1.9.8");
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("broken/calls")).unwrap(), "x\n");
    }

    #[tokio::test]
    async fn missing_and_old_ones_say_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let any = TemplateRequirements::default();
        let old = TerraformSource::File(script(&dir.path().join("terraform"), "1.0.11"));
        let error = find(&Finder::new(old, None), &any).await.unwrap_err();
        assert!(error.contains("terraform version \"1.0.11\" is too old. required >= \"1.1.0\""), "{error}");
        assert!(error.contains("--terraform-path"), "{error}");
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        for name in ["nothing", "empty"] {
            let source = TerraformSource::Paths(vec![dir.path().join(name)]);
            let error = find(&Finder::new(source, None), &any).await.unwrap_err();
            assert!(error.contains("--terraform-path") && error.contains(name), "{error}");
        }
        assert!(search(Some(dir.path().join("empty").as_os_str()), "terraform").is_none());
    }

    #[tokio::test]
    async fn directories_offer_many_versions() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/1.5.7/terraform", "a/1.9.8/terraform", "a/new-1/terraform", "b/terraform_1.11.4"] {
            let version = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            script(&dir.path().join(name), version.split('/').next().unwrap());
        }
        script(&dir.path().join("b/terraform-provider-x"), "9.0.0");
        script(&dir.path().join("c/program"), "1.8.3");
        let candidates = ["a", "b", "c/program"].map(|name| dir.path().join(name)).to_vec();
        let finder = Finder::new(TerraformSource::Paths(candidates), None);
        for (constraint, wanted) in
            [(">= 1", "1.11.4"), ("~> 1.5.0", "1.5.7"), ("< 1.11", "1.9.8"), ("= 1.8.3", "1.8.3")]
        {
            assert_eq!(find(&finder, &required(constraint)).await.unwrap(), wanted, "{constraint}");
        }
        let error = find(&finder, &required("~> 1.6.0")).await.unwrap_err();
        for wanted in ["\"~> 1.6.0\" (main.tf:3)", "Terraform 1.5.7", "OpenTofu 1.8.3", "--terraform-path"] {
            assert!(error.contains(wanted), "{error}");
        }
        let calls = std::fs::read_to_string(dir.path().join("a/1.5.7/calls")).unwrap();
        assert_eq!(calls, "x\n", "asked once for all of these");
    }
}
