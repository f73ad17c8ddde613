//! The Helm charts of a release: packages, and the index of the repository that serves them.

mod index;
mod package;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::{root, target};

/// The charts that people install. `libcoder` is part of each.
const CHARTS: &[&str] = &["coder", "coder-operator", "coder-provisioner"];

const HELP: &str = "\
usage: cargo xtask charts [--version VERSION] [--registry REGISTRY] [--output DIRECTORY]

  --version    of the charts, and of the images that they start by default (the version of the workspace)
  --registry   where the images of cargo xtask image are pushed to, such as registry.example.com/tools (localhost, which is
               right for images that were imported into the nodes)
  --output     where the packages and index.yaml are written (target/charts)";

/// What is put into the charts of a release.
pub(crate) struct Release {
    pub(crate) version: String,
    pub(crate) registry: String,
}

/// `cargo xtask charts`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut release =
        Release { version: env!("CARGO_PKG_VERSION").to_owned(), registry: "localhost".to_owned() };
    let mut output = target().join("charts");
    let mut arguments = arguments.iter();
    while let Some(flag) = arguments.next() {
        if flag == "--help" {
            println!("{HELP}");
            return Ok(());
        }
        let Some(value) = arguments.next().filter(|value| !value.is_empty()) else {
            bail!("{flag} needs a value\n{HELP}");
        };
        match flag.as_str() {
            "--version" => release.version.clone_from(value),
            "--registry" => release.registry = value.trim_end_matches('/').to_owned(),
            "--output" => output = PathBuf::from(value),
            _ => bail!("unknown argument {flag}\n{HELP}"),
        }
    }
    for path in write(&root().join("deploy/helm"), &release, &output)? {
        println!("{}", path.display());
    }
    Ok(())
}

/// Writes a package of each chart below `source`, and the index, into `output`. Returns the written files.
pub(crate) fn write(source: &Path, release: &Release, output: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let mut written = Vec::new();
    let mut entries = Vec::new();
    for chart in CHARTS {
        let bytes = package::package(&source.join(chart), chart, release)
            .with_context(|| format!("packaging the chart {chart}"))?;
        let name = format!("{chart}-{}.tgz", release.version);
        entries.push(index::entry(&source.join(chart), release, &name, &bytes)?);
        written.push((name, bytes));
    }
    written.push(("index.yaml".to_owned(), index::index(entries)?.into_bytes()));
    written
        .into_iter()
        .map(|(name, bytes)| {
            let path = output.join(name);
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        })
        .collect()
}
