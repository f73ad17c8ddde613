//! Bundles: templates that bring their modules and providers along (`coder templates bundle`), so that nothing has to be
//! reached to run them.
//!
//! A bundle is the template's tar with more in it. Modules lie where Terraform itself puts them, providers where it
//! looks for them when nothing is configured, so any daemon can use a bundle. Here a job's Terraform is told that there
//! is no other place for providers, and asks none.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a template's folder has to contain to be a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// Version of this format.
    pub format: u32,
    /// The platforms that the providers are for, as Terraform names them (`linux_amd64`).
    pub platforms: Vec<String>,
    /// What is in it, for people: addresses of providers with their versions.
    #[serde(default)]
    pub providers: Vec<String>,
}

impl Bundle {
    /// The file at the top of the archive that tells a bundle.
    pub const MARKER: &'static str = ".coder-bundle.json";
    /// Where the archives of the providers lie, as in a filesystem mirror.
    pub const PROVIDERS: &'static str = "terraform.d/plugins";
    /// The newest format this program reads.
    pub const FORMAT: u32 = 1;

    /// Reads the marker of an unpacked template; none when it is no bundle.
    fn of(dir: &Path) -> Result<Option<Self>, BundleError> {
        let path = dir.join(Self::MARKER);
        let length = match std::fs::metadata(&path) {
            Ok(file) => file.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BundleError::Read(error.to_string())),
        };
        if length > MAX_MARKER_BYTES {
            return Err(BundleError::Read(format!("it is longer than {MAX_MARKER_BYTES} bytes")));
        }
        let bytes = std::fs::read(path).map_err(|error| BundleError::Read(error.to_string()))?;
        let bundle: Self =
            serde_json::from_slice(&bytes).map_err(|error| BundleError::Read(error.to_string()))?;
        if bundle.format > Self::FORMAT {
            return Err(BundleError::Newer(bundle.format));
        }
        Ok(Some(bundle))
    }
}

const MAX_MARKER_BYTES: u64 = 256 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    #[error("the template's {marker} cannot be read: {0}; make the bundle again with `coder templates bundle`", marker = Bundle::MARKER)]
    Read(String),
    #[error("the bundle is of format {0}, and this daemon reads up to {newest}; update the daemon, or bundle with its version", newest = Bundle::FORMAT)]
    Newer(u32),
    #[error("write the configuration for the bundle's providers: {0}")]
    Write(std::io::Error),
}

/// What a job has of a bundle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BundleStatus {
    /// The template is no bundle.
    No,
    /// Terraform has to be run with this configuration.
    Config(PathBuf),
    /// It is made for other platforms than this daemon's; Terraform is left to find providers as it is used to.
    Elsewhere {
        /// The platforms it is made for.
        platforms: Vec<String>,
    },
}

/// The platform of this machine, as Terraform names it.
#[must_use]
pub fn platform() -> String {
    let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    format!("{os}_{arch}")
}

/// Looks whether the template unpacked at `dir` is a bundle, and writes the configuration for it into `private`.
/// Blocks, so call it off the async threads.
pub(crate) fn prepare(dir: &Path, private: &Path) -> Result<BundleStatus, BundleError> {
    let Some(bundle) = Bundle::of(dir)? else { return Ok(BundleStatus::No) };
    if !bundle.platforms.contains(&platform()) {
        return Ok(BundleStatus::Elsewhere { platforms: bundle.platforms });
    }
    let mirror = dir.join(Bundle::PROVIDERS);
    // A template whose only provider is our own has none in its bundle, and a mirror must be there.
    std::fs::create_dir_all(&mirror).map_err(BundleError::Write)?;
    let quoted = mirror.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    let config = private.join("bundle.tfrc");
    let text = format!(
        "disable_checkpoint = true\nprovider_installation {{\n  filesystem_mirror {{\n    path = \"{quoted}\"\n  }}\n}}\n"
    );
    std::fs::write(&config, text).map_err(BundleError::Write)?;
    Ok(BundleStatus::Config(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(marker: Option<&str>) -> (tempfile::TempDir, Result<BundleStatus, BundleError>) {
        let dir = tempfile::tempdir().unwrap();
        if let Some(marker) = marker {
            std::fs::write(dir.path().join(Bundle::MARKER), marker).unwrap();
        }
        let private = dir.path().join("private");
        std::fs::create_dir(&private).unwrap();
        let result = prepare(dir.path(), &private);
        (dir, result)
    }

    #[test]
    fn a_bundle_for_this_platform_knows_one_place_for_providers() {
        let marker = format!("{{\"format\":1,\"platforms\":[\"plan9_mips\",{:?}]}}", platform());
        let (dir, result) = prepared(Some(&marker));
        let Ok(BundleStatus::Config(config)) = result else { panic!("{result:?}") };
        let text = std::fs::read_to_string(config).unwrap();
        assert!(text.contains(&format!("path = {:?}", dir.path().join("terraform.d/plugins"))), "{text}");
        assert!(!text.contains("direct"), "{text}");
    }

    #[test]
    fn others_leave_terraform_alone_or_are_refused() {
        assert_eq!(prepared(None).1.unwrap(), BundleStatus::No);
        let elsewhere = prepared(Some(r#"{"format":1,"platforms":["plan9_mips"]}"#)).1.unwrap();
        assert_eq!(elsewhere, BundleStatus::Elsewhere { platforms: vec!["plan9_mips".to_owned()] });
        let error = |marker: &str| prepared(Some(marker)).1.unwrap_err().to_string();
        assert!(error(r#"{"format":2,"platforms":[]}"#).contains("update the daemon"));
        assert!(error("[]").contains("cannot be read"));
        assert!(error(&" ".repeat(300_000)).contains("longer"));
    }
}
