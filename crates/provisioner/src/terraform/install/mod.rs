//! Installs Terraform when no available program can run a template: from HashiCorp's releases, or from a
//! mirror.
//!
//! Only the signed checksum list of a release is trusted. Daemons that share a directory lock it, so a version
//! is downloaded once; it is moved to its path atomically.

mod fetch;
mod openpgp;
mod release;
mod unpack;

use std::fs::TryLockError;
use std::path::{Path, PathBuf};

use std::time::Duration;

use coder_wire::messages::provisioner::LogLevel;
use parking_lot::Mutex;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use self::fetch::ReleaseServer;
use self::openpgp::Keys;
use self::release::Release;
use super::binary::choose::choose;
use super::binary::program::{Binary, BinaryError, BinaryOrigin, Product};
use super::binary::required::TemplateRequirements;
use super::binary::version::Version;
use crate::job::reporter::StageLog;

/// Where HashiCorp publishes Terraform.
pub const RELEASES: &str = "https://releases.hashicorp.com/terraform/";

/// HashiCorp's signing keys, from the security page of their web site.
const HASHICORP_KEYS: &str = include_str!("hashicorp.asc");

/// Prefix of unfinished directories.
const UNFINISHED_PREFIX: &str = "new-";

/// How often to check whether another daemon has finished.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// After a failure later jobs fail at once for this time, instead of each waiting for the same timeout.
const FAILURE_MEMORY: Duration = Duration::from_secs(30);

/// Settings for installing Terraform.
#[derive(Clone)]
pub struct InstallConfig {
    /// The target directory; daemons may share it.
    pub dir: PathBuf,
    /// OpenPGP keys in ASCII armor that sign releases; by default those of HashiCorp.
    pub keys: String,
    /// Longest time without data from the server.
    pub read_timeout: Duration,
    mirror: Url,
}

/// The address of a mirror may contain a password.
impl std::fmt::Debug for InstallConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstallConfig").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Why the address of a mirror is invalid.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    #[error(
        "the address of the mirror is invalid ({0}): it must look like {RELEASES}, with index.json right below it"
    )]
    NotAnAddress(url::ParseError),
    #[error("the address of the mirror begins with {0:?}: it must begin with https:// or http://")]
    Scheme(String),
}

impl InstallConfig {
    /// Installs into `dir`, from `mirror` instead of [`RELEASES`].
    ///
    /// # Errors
    /// The mirror is not an HTTP address.
    pub fn new(dir: impl Into<PathBuf>, mirror: Option<&str>) -> Result<Self, MirrorError> {
        let mut mirror = Url::parse(mirror.unwrap_or(RELEASES)).map_err(MirrorError::NotAnAddress)?;
        if !matches!(mirror.scheme(), "https" | "http") {
            return Err(MirrorError::Scheme(mirror.scheme().to_owned()));
        }
        if !mirror.path().ends_with('/') {
            mirror.set_path(&format!("{}/", mirror.path()));
        }
        Ok(Self {
            dir: dir.into(),
            keys: HASHICORP_KEYS.to_owned(),
            read_timeout: Duration::from_secs(30),
            mirror,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error(transparent)]
    Fetch(#[from] fetch::FetchError),
    #[error("the signature of {file} is invalid: {reason}; nothing was installed")]
    Signature { file: String, reason: openpgp::Error },
    #[error(transparent)]
    Release(#[from] release::ReleaseError),
    #[error(
        "the SHA-256 of {file} is {found}, but its signed list says {wanted}; nothing was installed: check the mirror and the proxies before it"
    )]
    Checksum { file: String, found: String, wanted: String },
    #[error("{0}")]
    Archive(String),
    #[error("{}: {reason}", path.display())]
    Disk { path: PathBuf, reason: std::io::Error },
    #[error("{0} (tried less than 30 seconds ago)")]
    Recently(String),
}

/// Reports progress in the daemon's log, and in the log of the job that waits.
pub(crate) struct InstallProgress<'a>(Option<&'a StageLog>);

impl<'a> InstallProgress<'a> {
    pub(crate) fn of_job(log: &'a StageLog) -> Self {
        Self(Some(log))
    }

    /// In the daemon's log only.
    pub(crate) fn silent() -> Self {
        Self(None)
    }

    async fn report(&self, text: &str) {
        tracing::info!(target: "provisioner", "{text}");
        if let Some(log) = self.0 {
            log.line(LogLevel::Info, text).await;
        }
    }
}

/// Installs versions on demand.
#[derive(Debug)]
pub(crate) struct Installer {
    settings: InstallConfig,
    failed: Mutex<Option<(Instant, TemplateRequirements, String)>>,
    /// The failure that is in the log. The daemon tries again and again, and the same failure is logged once.
    logged: Mutex<Option<String>>,
}

impl Installer {
    pub(crate) fn new(settings: InstallConfig) -> Self {
        Self { settings, failed: Mutex::default(), logged: Mutex::default() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.settings.dir
    }

    /// Installs the newest release that fits, and returns its path.
    ///
    /// # Errors
    /// The release could not be downloaded, verified or written; nothing is installed then.
    pub(crate) async fn install(
        &self,
        required: &TemplateRequirements,
        reason: &BinaryError,
        progress: &InstallProgress<'_>,
    ) -> Result<PathBuf, InstallError> {
        if let Some(reason) = self.failed_recently(required) {
            return Err(InstallError::Recently(reason));
        }
        if self.logged.lock().is_none() {
            tracing::info!(target: "provisioner", reason = reason.summary(), "installing terraform");
        }
        let installed = self.install_locked(required, progress).await;
        let failure =
            installed.as_ref().err().map(|error| (Instant::now(), required.clone(), error.to_string()));
        self.log_failure(failure.as_ref().map(|(_, _, error)| error.clone()));
        *self.failed.lock() = failure;
        installed
    }

    /// Logs a failure that is not the one that was logged last.
    fn log_failure(&self, failure: Option<String>) {
        let mut logged = self.logged.lock();
        if let Some(error) = failure.as_ref().filter(|_| *logged != failure) {
            tracing::warn!(target: "provisioner", %error, "terraform could not be installed");
        }
        *logged = failure;
    }

    /// Forgets the last failure, so that the next attempt is real.
    pub(crate) fn clear_failure(&self) {
        *self.failed.lock() = None;
    }

    fn failed_recently(&self, required: &TemplateRequirements) -> Option<String> {
        let failed = self.failed.lock();
        let (at, of, reason) = failed.as_ref()?;
        (of == required && at.elapsed() < FAILURE_MEMORY).then(|| reason.clone())
    }

    async fn install_locked(
        &self,
        required: &TemplateRequirements,
        progress: &InstallProgress<'_>,
    ) -> Result<PathBuf, InstallError> {
        let dir = &self.settings.dir;
        let disk = |reason| InstallError::Disk { path: dir.clone(), reason };
        std::fs::create_dir_all(dir).map_err(disk)?;
        let _lock = lock(&dir.join("lock"), progress).await.map_err(disk)?;
        // Another daemon may have installed it meanwhile.
        if let Some(installed) = installed(dir, required) {
            return Ok(installed);
        }
        remove_unfinished(dir);
        let keys = Keys::read(&self.settings.keys).map_err(|reason| InstallError::Signature {
            file: "the list of trusted keys".to_owned(),
            reason,
        })?;
        let remote = ReleaseServer::new(self.settings.mirror.clone(), self.settings.read_timeout)?;
        let release = release::newest(&remote.get("index.json", fetch::INDEX_LIMIT).await?, required)?;
        let archive = release.archive();
        progress
            .report(&format!(
                "Installing Terraform {} from {}",
                release.version,
                remote.without_credentials()
            ))
            .await;
        let wanted = self.checksum(&remote, &keys, &release).await?;

        let new = dir.join(format!("{UNFINISHED_PREFIX}{}", Uuid::new_v4()));
        std::fs::create_dir_all(&new).map_err(disk)?;
        let _cleared = RemoveDirOnDrop(new.clone());
        let (zip, program) = (new.join("archive.zip"), new.join("terraform"));
        let found = remote.download(&release.path(&archive), &zip, progress).await?;
        if found != wanted {
            return Err(InstallError::Checksum { file: archive, found, wanted });
        }
        tokio::task::spawn_blocking(move || unpack::program(&zip, &program).and_then(|()| remove(&zip)))
            .await
            .map_err(|error| InstallError::Archive(error.to_string()))??;
        let place = dir.join(release.version.to_string());
        // An existing one cannot be run, otherwise it would have been found above.
        let _ = std::fs::remove_dir_all(&place);
        std::fs::rename(&new, &place).map_err(disk)?;
        progress.report(&format!("Terraform {} is installed in {}", release.version, place.display())).await;
        Ok(place.join("terraform"))
    }

    /// The checksum of the archive in the signed list.
    async fn checksum(
        &self,
        remote: &ReleaseServer,
        keys: &Keys,
        release: &Release,
    ) -> Result<String, InstallError> {
        let list = release.list();
        let sums = remote.get(&release.path(&list), fetch::SMALL_LIMIT).await?;
        let signature = remote.get(&release.path(&format!("{list}.sig")), fetch::SMALL_LIMIT).await?;
        keys.verify(&sums, &signature)
            .map_err(|reason| InstallError::Signature { file: list.clone(), reason })?;
        Ok(release::checksum(&sums, &list, &release.archive())?)
    }
}

fn remove(path: &Path) -> Result<(), InstallError> {
    std::fs::remove_file(path).map_err(|reason| InstallError::Disk { path: path.to_owned(), reason })
}

/// An installed version that fits, by the name of its directory.
fn installed(dir: &Path, required: &TemplateRequirements) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    let binaries = entries.filter_map(|entry| {
        let version = Version::parse(entry.file_name().to_str()?)?;
        let path = entry.path().join("terraform");
        path.is_file().then_some(Binary {
            path,
            version,
            product: Product::Terraform,
            origin: BinaryOrigin::Installed,
        })
    });
    choose(&binaries.collect::<Vec<_>>(), required).map(|binary| binary.path.clone())
}

/// Removes what killed daemons left; call it only with the lock held.
fn remove_unfinished(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX)
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(dir = %entry.path().display(), %error, "an unfinished installation cannot be removed");
        }
    }
}

/// Locks the directory; the operating system releases the lock with the process.
async fn lock(path: &Path, progress: &InstallProgress<'_>) -> std::io::Result<std::fs::File> {
    let mut reported = false;
    loop {
        let lock = std::fs::File::create(path)?;
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !std::mem::replace(&mut reported, true) {
            progress.report("Waiting for another installation of Terraform on this machine").await;
        }
        // A blocking lock could not be canceled with the job.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Removes a directory when dropped, unless it was moved away.
struct RemoveDirOnDrop(PathBuf);

impl Drop for RemoveDirOnDrop {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(dir = %self.0.display(), %error, "an unfinished installation cannot be removed");
            }
            _ => {}
        }
    }
}
