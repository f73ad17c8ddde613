//! Bundles: templates that contain their modules and providers (`coder templates bundle`), so that running them
//! needs no network.
//!
//! A bundle is the template's tar with additional files. Modules lie where Terraform itself puts them,
//! providers where it searches without configuration, so any daemon can use a bundle. This daemon configures
//! Terraform to use the bundled providers only.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The content of a bundle's marker file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// Version of this format.
    pub format: u32,
    /// The platforms of the providers, in Terraform's notation (`linux_amd64`).
    pub platforms: Vec<String>,
    /// For people: addresses of the contained providers with their versions.
    #[serde(default)]
    pub providers: Vec<String>,
}

impl Bundle {
    /// The file at the top of the archive that identifies a bundle.
    pub const MARKER: &'static str = ".coder-bundle.json";
    /// Where the provider archives lie, as in a filesystem mirror.
    pub const PROVIDERS: &'static str = "terraform.d/plugins";
    /// The newest format this program reads.
    pub const NEWEST_FORMAT: u32 = 1;

    /// Reads the marker of an unpacked template; `None` when it is not a bundle.
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
        if bundle.format > Self::NEWEST_FORMAT {
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
    #[error("the bundle is of format {0}, and this daemon reads up to {newest}; update the daemon, or bundle with its version", newest = Bundle::NEWEST_FORMAT)]
    Newer(u32),
    #[error("write the configuration for the bundle's providers: {0}")]
    Write(std::io::Error),
}

/// Whether a job's template is a bundle, and how to use it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BundleStatus {
    /// The template is not a bundle.
    No,
    /// Terraform must run with this configuration.
    Config(PathBuf),
    /// It was made for other platforms; Terraform searches for providers as usual.
    Elsewhere {
        /// The platforms it was made for.
        platforms: Vec<String>,
    },
}

/// The platform of this machine, in Terraform's notation.
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

/// Checks whether the template unpacked at `dir` is a bundle, and writes its configuration into `private`.
/// Blocks: call it off the async threads.
pub(crate) fn prepare(dir: &Path, private: &Path) -> Result<BundleStatus, BundleError> {
    let Some(bundle) = Bundle::of(dir)? else { return Ok(BundleStatus::No) };
    if !bundle.platforms.contains(&platform()) {
        return Ok(BundleStatus::Elsewhere { platforms: bundle.platforms });
    }
    let mirror = dir.join(Bundle::PROVIDERS);
    // A template that uses only our own provider has none in its bundle, but the mirror directory must exist.
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
