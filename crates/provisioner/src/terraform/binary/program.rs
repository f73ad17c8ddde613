//! A program that can run templates, and why there may be none.

use std::fmt;
use std::path::{Path, PathBuf};

use coder_source::files::Dialect;

use super::version::Version;

/// Where to look for programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TerraformSource {
    /// The first `terraform` and the first `tofu` in the directories of `PATH`.
    #[default]
    SearchPath,
    File(PathBuf),
    /// Files, and directories with programs in them or one level below: `DIR/terraform*`,
    /// `DIR/1.9.8/terraform`, `DIR/tofu*`. A missing one is an error when no other can be used.
    Paths(Vec<PathBuf>),
}

/// The product that a program belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Product {
    /// `terraform`.
    Terraform,
    /// `tofu`.
    OpenTofu,
}

impl Product {
    /// Its name in the protocol.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::OpenTofu => "opentofu",
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terraform => "Terraform",
            Self::OpenTofu => "OpenTofu",
        })
    }
}

/// How a program got here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BinaryOrigin {
    /// An operator installed it.
    Configured,
    /// A daemon downloaded it.
    Installed,
}

/// The oldest release whose output this daemon understands (terraform 1.5).
pub(crate) const MINIMUM_VERSION: (u64, u64, u64) = (1, 1, 0);

const HOW_TO_GET: &str = "install Terraform 1.1.0 or newer (https://developer.hashicorp.com/terraform/install), or name one with --terraform-path";

#[derive(Debug, Clone, thiserror::Error)]
pub enum BinaryError {
    #[error("neither terraform nor tofu was found in PATH: {HOW_TO_GET}")]
    NotInPath,
    #[error("{0:?} is not a terraform program ({1}): {HOW_TO_GET}")]
    Unusable(PathBuf, String),
    #[error("{0:?} cannot be run: {1}")]
    CannotStart(PathBuf, String),
    #[error("found no terraform or tofu in {0:?}: {HOW_TO_GET}")]
    EmptyDirectory(PathBuf),
    #[error("terraform version {found:?} is too old. required >= \"1.1.0\" ({path}): {HOW_TO_GET}")]
    TooOld { found: String, path: String },
    #[error("this daemon has no Terraform: name one with --terraform-path{installing}")]
    NonePresent { installing: String },
    #[error(
        "the template requires {required}, and this daemon has {offered}: change the template, or give the daemon a fitting version with --terraform-path{installing}"
    )]
    NoneFits { required: String, offered: String, installing: String },
    #[error("{without}; installing one failed: {reason}")]
    Install { without: Box<BinaryError>, reason: String },
}

impl BinaryError {
    /// A short summary for lists of daemons.
    pub(crate) fn summary(&self) -> &'static str {
        match self {
            Self::CannotStart(..) => "Terraform cannot be run",
            Self::TooOld { .. } => "Terraform is too old",
            Self::Install { without, .. } => without.summary(),
            Self::NotInPath
            | Self::Unusable(..)
            | Self::EmptyDirectory(_)
            | Self::NonePresent { .. }
            | Self::NoneFits { .. } => "no Terraform",
        }
    }
}

/// A usable program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    pub(crate) product: Product,
    pub(crate) origin: BinaryOrigin,
}

impl Binary {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn version(&self) -> &Version {
        &self.version
    }

    pub fn product(&self) -> Product {
        self.product
    }

    /// `init -json` came with Terraform 1.9.0, and OpenTofu has it by 1.9.0 too.
    pub(crate) fn has_json_init(&self) -> bool {
        self.version.numbers >= (1, 9, 0)
    }

    /// OpenTofu has files of its own (`*.tofu`) since 1.8.0.
    pub(crate) fn dialect(&self) -> Dialect {
        let is_new = self.version.numbers >= (1, 8, 0);
        if self.product == Product::OpenTofu && is_new { Dialect::OpenTofu } else { Dialect::Terraform }
    }

    /// Since Terraform 1.7.0 `graph` prints the full graph only when asked for a type.
    pub(crate) fn has_graph_types(&self) -> bool {
        self.version.numbers >= (1, 7, 0)
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.product, self.version, self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_follow_product_and_version() {
        let binary = |product, version: &str| Binary {
            path: "/bin/terraform".into(),
            version: Version::parse(version).unwrap(),
            product,
            origin: BinaryOrigin::Configured,
        };
        for (product, version, json, types) in [
            (Product::Terraform, "1.6.6", false, false),
            (Product::Terraform, "1.8.5", false, true),
            (Product::Terraform, "1.9.0-rc1", true, true),
            (Product::OpenTofu, "1.8.0", false, true),
            (Product::OpenTofu, "1.12.6", true, true),
        ] {
            let binary = binary(product, version);
            assert_eq!((binary.has_json_init(), binary.has_graph_types()), (json, types), "{binary}");
        }
        assert_eq!(binary(Product::OpenTofu, "1.12.6").to_string(), "OpenTofu 1.12.6 (/bin/terraform)");
    }
}
