//! Terraform alone, with the official provider in an unpacked mirror: what a person would run for a build, and what the
//! official daemon runs. Builds of this program are compared with both.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::cpu_seconds;

/// Wall time and CPU time of one run, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

/// What a person would run for one build.
pub(crate) const BARE_COMMANDS: &[&[&str]] = &[
    &["init", "-no-color", "-input=false"],
    &["plan", "-no-color", "-input=false", "-out=plan"],
    &["apply", "-no-color", "-input=false", "-auto-approve", "plan"],
];

/// What the official daemon runs for one build.
pub(crate) const OFFICIAL_COMMANDS: &[&[&str]] = &[
    &["version", "-json"],
    &["init", "-no-color", "-input=false"],
    &["plan", "-no-color", "-input=false", "-json", "-refresh=true", "-out=plan"],
    &["show", "-json", "-no-color", "plan"],
    &["apply", "-no-color", "-auto-approve", "-input=false", "-json", "plan"],
    &["show", "-json", "-no-color"],
    &["graph"],
];

/// A provider that Go builds from its module, and where a mirror keeps it.
struct Source {
    package: &'static str,
    version: &'static str,
    address: &'static str,
}

const CODER_PROVIDER: Source = Source {
    package: "github.com/coder/terraform-provider-coder/v2",
    version: "2.13.1",
    address: "registry.terraform.io/coder/coder",
};
const OTHER_PROVIDERS: [Source; 2] = [
    Source {
        package: "github.com/hashicorp/terraform-provider-time",
        version: "0.14.2",
        address: "registry.terraform.io/hashicorp/time",
    },
    // The same program under another address: Terraform takes it for another provider, and only one has to be built.
    Source {
        package: "github.com/hashicorp/terraform-provider-time",
        version: "0.14.2",
        address: "registry.terraform.io/example/clock",
    },
];

/// An unpacked mirror of the official provider, made once.
pub(crate) fn mirror(cache: &Path) -> Result<PathBuf> {
    build_into(cache, &cache.join("mirror"), &[CODER_PROVIDER])
}

/// The same with two other providers.
pub(crate) fn mirror_of_three(cache: &Path) -> Result<PathBuf> {
    let mirror = mirror(cache)?;
    build_into(cache, &mirror, &OTHER_PROVIDERS)
}

fn build_into(cache: &Path, mirror: &Path, sources: &[Source]) -> Result<PathBuf> {
    for source in sources {
        let arch = if cfg!(target_arch = "aarch64") { "linux_arm64" } else { "linux_amd64" };
        let name = source.address.rsplit('/').next().unwrap_or_default();
        let folder = mirror.join(source.address).join(source.version).join(arch);
        let binary = folder.join(format!("terraform-provider-{name}_v{}", source.version));
        if binary.exists() {
            continue;
        }
        std::fs::create_dir_all(&folder)?;
        let module = cache.join(format!("module-{}", source.package.replace('/', "-")));
        std::fs::create_dir_all(&module)?;
        let go = |arguments: &[&str]| -> Result<()> {
            let mut command = Command::new("go");
            command.args(arguments).current_dir(&module).env("CGO_ENABLED", "0");
            let status = command.status().context("go must be in the PATH")?;
            if !status.success() {
                bail!("go {} failed", arguments.join(" "));
            }
            Ok(())
        };
        if !module.join("go.mod").exists() {
            go(&["mod", "init", "measured"])?;
        }
        go(&["get", &format!("{}@v{}", source.package, source.version)])?;
        go(&["build", "-o", &binary.to_string_lossy(), source.package])?;
    }
    Ok(mirror.to_owned())
}

/// The CLI configuration that takes providers from a mirror alone.
pub(crate) fn configuration(mirror: &Path) -> String {
    let mirror = mirror.to_string_lossy();
    format!("provider_installation {{\n  filesystem_mirror {{\n    path = {mirror:?}\n  }}\n}}\n")
}

/// Runs these commands in a fresh directory.
pub(crate) fn run(template: &str, mirror: &Path, steps: &[&[&str]]) -> Result<Cost> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("main.tf"), template)?;
    let rc = folder.path().join("terraform.rc");
    std::fs::write(&rc, configuration(mirror))?;
    let own = std::process::id();
    let (start, before) = (Instant::now(), cpu_seconds(own)?);
    for arguments in steps {
        let output = Command::new("terraform")
            .args(*arguments)
            .current_dir(folder.path())
            .env("TF_CLI_CONFIG_FILE", &rc)
            .env("CHECKPOINT_DISABLE", "1")
            .env("CODER_WORKSPACE_TRANSITION", "start")
            .env("CODER_AGENT_URL", "http://localhost:3000")
            .stdin(Stdio::null())
            .output()
            .context("terraform must be in the PATH")?;
        if !output.status.success() {
            bail!("terraform {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(Cost { wall: start.elapsed().as_secs_f64(), cpu: cpu_seconds(own)? - before })
}
