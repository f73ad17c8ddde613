//! Runs Terraform for a bundle, with the user's program, configuration and mirrors.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use coder_source::files::SourceName;
use coder_tfprovider::{Environment, ProviderListener, ProviderServer};

/// Terraform, with the coder provider already running, so that it is not downloaded.
pub(super) struct BundleTerraform {
    program: PathBuf,
    provider: ProviderListener,
}

impl BundleTerraform {
    /// Finds the program, for a template in `template`; sockets go to `sockets`.
    pub(super) fn find(given: Option<&Path>, template: &Path, sockets: &Path) -> anyhow::Result<Self> {
        let program = match given {
            // It is run in another directory.
            Some(path) => std::path::absolute(path)?,
            None => in_path(is_for_opentofu(template)).context(
                "neither terraform nor tofu is in PATH: install one, or name it with --terraform-path",
            )?,
        };
        debug_assert!(template.is_absolute(), "the staging directory has a full path");
        // Terraform runs in several directories, so only an absolute path leads to the socket from each.
        let provider = ProviderServer::new().listen(sockets, Path::new("/"), Environment::default());
        Ok(Self { program, provider: provider.context("serve the coder provider")? })
    }

    /// Runs a command in `dir`. Its output is the error when it fails.
    pub(super) async fn run<S: AsRef<OsStr>>(&self, args: &[S], dir: &Path) -> anyhow::Result<()> {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(args)
            .current_dir(dir)
            .env("TF_REATTACH_PROVIDERS", self.provider.reattach().to_string())
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_IN_AUTOMATION", "1")
            // They would move modules and providers, or change the commands.
            .env_remove("TF_DATA_DIR")
            .env_remove("TF_PLUGIN_CACHE_DIR")
            .env_remove("TF_WORKSPACE")
            .env_remove("TF_CLI_ARGS")
            .env_remove("TF_CLI_ARGS_init")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await;
        let output = output.with_context(|| format!("run {}", self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said =
            String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
        let words: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        bail!("{} {} failed:\n{}", self.program.display(), words.join(" "), said.trim());
    }
}

/// Whether the template has files that only OpenTofu reads, as daemons decide it.
fn is_for_opentofu(template: &Path) -> bool {
    let entries = std::fs::read_dir(template).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| SourceName::parse(&name).is_some_and(|source| source.is_tofu))
}

fn in_path(tofu_first: bool) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let programs = if tofu_first { ["tofu", "terraform"] } else { ["terraform", "tofu"] };
    programs
        .iter()
        .find_map(|name| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()))
}
