//! Helm, for the tests of the charts: built once from the Go module that `tools/helm` pins.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::run::{root, run, target};

/// The command in its Go module.
const PACKAGE: &str = "helm.sh/helm/v3/cmd/helm";

/// Builds Helm into `target/tools`, where the tests find it, unless it is there and the module has not changed since.
pub(crate) fn build() -> Result<PathBuf> {
    let module = root().join("tools/helm");
    let program = target().join("tools/helm");
    let built = if program.is_file() { Some(changed(&program)?) } else { None };
    if Some(changed(&module.join("go.sum"))?) > built {
        let mut build = Command::new("go");
        build.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&program).arg(PACKAGE);
        run(build.current_dir(&module).env("CGO_ENABLED", "0")).context("building Helm")?;
    }
    Ok(program)
}

fn changed(path: &Path) -> Result<SystemTime> {
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(metadata.modified()?)
}
