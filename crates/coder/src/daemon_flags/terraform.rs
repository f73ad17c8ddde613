//! Which Terraform and OpenTofu a daemon offers, and whether it installs one: the same flags wherever there are daemons.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use coder_provisioner::{Config, InstallConfig, TerraformSource};

use crate::env;

/// Flags of programs with daemons.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Terraform {
    /// Terraform or OpenTofu to offer: programs, and directories with versions of them; may be repeated. Default: those
    /// in PATH. A template gets the newest that fits its required_version.
    #[arg(long = "terraform-path", env = env::TERRAFORM_PATH, value_delimiter = ',', value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Install Terraform when nothing on offer can run a template.
    #[arg(long = "terraform-install", env = env::TERRAFORM_INSTALL, action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_value_t = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) install: bool,
    /// Where to install from instead of https://releases.hashicorp.com/terraform/: an address with index.json below it.
    #[arg(long = "terraform-mirror", env = env::TERRAFORM_MIRROR, hide_env_values = true, value_name = "URL")]
    pub(crate) mirror: Option<String>,
}

impl Terraform {
    /// Sets up a daemon. Daemons that share `installed` share what they install.
    pub(crate) fn apply(&self, config: &mut Config, installed: &Path) -> anyhow::Result<()> {
        if !self.paths.is_empty() {
            config.terraform = TerraformSource::Paths(self.paths.clone());
        }
        if self.install {
            let install = InstallConfig::new(installed, self.mirror.as_deref());
            config.install = Some(install.context("--terraform-mirror")?);
        }
        Ok(())
    }

    /// The same as variables, for a daemon that is another process: a mirror may have a password in it.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let paths: Vec<&OsStr> = self.paths.iter().map(|path| path.as_os_str()).collect();
        let paths = (!paths.is_empty()).then(|| (env::TERRAFORM_PATH, paths.join(OsStr::new(","))));
        let install = (env::TERRAFORM_INSTALL, OsString::from(self.install.to_string()));
        let mirror = self.mirror.as_ref().map(|mirror| (env::TERRAFORM_MIRROR, OsString::from(mirror)));
        paths.into_iter().chain([install]).chain(mirror).collect()
    }
}

/// Where in a cache directory programs are installed.
pub(crate) fn installed(cache: &Path) -> PathBuf {
    cache.join("terraform")
}
