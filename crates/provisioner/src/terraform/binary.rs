//! Which Terraform runs, and whether it is new enough.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use super::environment::Environment;

/// Where to look for Terraform.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TerraformSource {
    /// The first `terraform` in the directories of `PATH`.
    #[default]
    SearchPath,
    /// This file.
    File(PathBuf),
}

/// A release number; text after the patch number is kept for display only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    numbers: (u64, u64, u64),
    text: String,
}

/// The oldest release whose output this daemon understands (terraform 1.5).
const MINIMUM: (u64, u64, u64) = (1, 1, 0);

/// How long `terraform version` may take; a healthy one needs a twentieth of a second.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

const VERSION_LIMIT_BYTES: u64 = 64 * 1024;

const HOW_TO_GET: &str = "install Terraform 1.1.0 or newer (https://developer.hashicorp.com/terraform/install) or name one with --terraform-path";

#[derive(Debug, Clone, thiserror::Error)]
pub enum BinaryError {
    #[error("terraform was not found in PATH: {HOW_TO_GET}")]
    NotInPath,
    #[error("{0:?} is not a terraform program ({1}): {HOW_TO_GET}")]
    Unusable(PathBuf, String),
    #[error("terraform version {found:?} is too old. required >= \"1.1.0\" ({path}): {HOW_TO_GET}")]
    TooOld { found: String, path: String },
}

/// A Terraform that may be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
}

impl Binary {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn version(&self) -> &Version {
        &self.version
    }
}

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let core = text.split(['-', '+']).next()?;
        let mut parts = core.split('.').map(|part| part.parse::<u64>().ok());
        let numbers = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then(|| Self { numbers, text: text.to_owned() })
    }

    /// `init -json` came with 1.9.0.
    pub(crate) fn has_json_init(&self) -> bool {
        self.numbers >= (1, 9, 0)
    }

    /// From 1.7.0 on `graph` prints the full graph only when asked for a type.
    pub(crate) fn has_graph_types(&self) -> bool {
        self.numbers >= (1, 7, 0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

type Identity = (PathBuf, u64, Option<SystemTime>);

/// Finds Terraform and remembers its version for as long as the file stays the same.
#[derive(Debug)]
pub(crate) struct Finder {
    source: TerraformSource,
    known: Mutex<HashMap<Identity, Version>>,
}

#[derive(Deserialize)]
struct VersionOutput {
    terraform_version: String,
}

impl Finder {
    pub(crate) fn new(source: TerraformSource) -> Self {
        Self { source, known: Mutex::default() }
    }

    /// Where Terraform is, without asking it anything.
    pub(crate) fn place(&self, environment: &Environment) -> Result<PathBuf, BinaryError> {
        match &self.source {
            TerraformSource::File(path) if path.is_file() => Ok(path.clone()),
            TerraformSource::File(path) => {
                Err(BinaryError::Unusable(path.clone(), "no such file".to_owned()))
            }
            TerraformSource::SearchPath => search(environment.path()).ok_or(BinaryError::NotInPath),
        }
    }

    /// The Terraform to run now. Looks again each time, so one installed later is found without a restart.
    pub(crate) async fn find(&self, environment: &Environment) -> Result<Binary, BinaryError> {
        let path = self.place(environment)?;
        let unusable = |reason: String| BinaryError::Unusable(path.clone(), reason);
        let path = tokio::fs::canonicalize(&path).await.map_err(|error| unusable(error.to_string()))?;
        let file = tokio::fs::metadata(&path).await.map_err(|error| unusable(error.to_string()))?;
        let identity = (path.clone(), file.len(), file.modified().ok());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&identity).cloned();
        let version = match known {
            Some(version) => version,
            None => {
                let version = ask(&path, environment).await.map_err(unusable)?;
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(identity, version.clone());
                version
            }
        };
        if version.numbers < MINIMUM {
            return Err(BinaryError::TooOld { found: version.text, path: path.display().to_string() });
        }
        Ok(Binary { path, version })
    }
}

fn search(path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    std::env::split_paths(path?).map(|dir| dir.join("terraform")).find(|candidate| {
        candidate.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

async fn ask(path: &Path, environment: &Environment) -> Result<Version, String> {
    let mut command = tokio::process::Command::new(path);
    command.args(["version", "-json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    environment.apply_basic(&mut command);
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| error.to_string())?;
    let stdout = child.stdout.take().expect("stdout is piped two lines above");
    let answer = tokio::time::timeout(VERSION_TIMEOUT, async {
        let mut bytes = Vec::new();
        stdout.take(VERSION_LIMIT_BYTES).read_to_end(&mut bytes).await?;
        Ok::<_, std::io::Error>((bytes, child.wait().await?))
    });
    let (bytes, _status) = answer
        .await
        .map_err(|_| "version -json did not answer in 30 s".to_owned())?
        .map_err(|error| error.to_string())?;
    let output: VersionOutput =
        serde_json::from_slice(&bytes).map_err(|_| "version -json printed no version".to_owned())?;
    Version::parse(&output.terraform_version)
        .ok_or_else(|| format!("version -json printed {:?} as its version", output.terraform_version))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn script(dir: &Path, version: &str) -> PathBuf {
        let path = dir.join("terraform");
        let text = format!(
            "#!/bin/sh\necho x >> {}/calls\necho '{{\"terraform_version\":\"{version}\"}}'\n",
            dir.display()
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn versions_parse_and_compare() {
        let version = Version::parse("1.9.0-rc1").unwrap();
        assert!(version.has_json_init() && version.has_graph_types());
        assert_eq!(version.to_string(), "1.9.0-rc1");
        assert!(!Version::parse("1.8.5").unwrap().has_json_init());
        for bad in ["", "1", "1.2", "1.2.3.4", "a.b.c"] {
            assert!(Version::parse(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn the_version_is_asked_once_per_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "1.4.2");
        let finder = Finder::new(TerraformSource::File(path));
        let environment = Environment::of_daemon();
        for _ in 0..3 {
            assert_eq!(finder.find(&environment).await.unwrap().version.to_string(), "1.4.2");
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("calls")).unwrap(), "x\n");
        script(dir.path(), "1.14.12");
        assert_eq!(finder.find(&environment).await.unwrap().version.to_string(), "1.14.12");
    }

    #[tokio::test]
    async fn missing_and_old_ones_say_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::of_daemon();
        let old = Finder::new(TerraformSource::File(script(dir.path(), "1.0.11")));
        let error = old.find(&environment).await.unwrap_err().to_string();
        assert!(error.contains("terraform version \"1.0.11\" is too old. required >= \"1.1.0\""), "{error}");
        assert!(error.contains("--terraform-path"), "{error}");
        let none = Finder::new(TerraformSource::File(dir.path().join("nothing")));
        assert!(none.find(&environment).await.unwrap_err().to_string().contains("--terraform-path"));
        assert!(search(Some(dir.path().join("empty").as_os_str())).is_none());
    }
}
