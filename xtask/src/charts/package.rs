//! One chart as the archive that Helm installs. Equal sources make equal bytes.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};

use super::Release;

/// The version of a chart in a checkout.
const CHECKOUT: &str = "0.0.0-dev";

/// The repository of images in a checkout.
const CHECKOUT_REGISTRY: &str = "repo: localhost/";

/// The archive of the chart `name` in `directory`.
pub(super) fn package(directory: &Path, name: &str, release: &Release) -> Result<Vec<u8>> {
    // Neither the name of a file nor a time is in the header.
    let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let mut archive = tar::Builder::new(gzip);
    for path in files(directory)? {
        let relative = path.strip_prefix(directory).context("a file outside of its chart")?;
        let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let content = released(relative, content, release)?;
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        archive.append_data(&mut header, Path::new(name).join(relative), content.as_slice())?;
    }
    let mut gzip = archive.into_inner()?;
    gzip.flush()?;
    Ok(gzip.finish()?)
}

/// What is in a file of the release: the versions, and the registry of the images.
fn released(relative: &Path, content: Vec<u8>, release: &Release) -> Result<Vec<u8>> {
    let replaced = |from: &str, to: &str| {
        let text = String::from_utf8(content.clone()).context("not UTF-8")?;
        ensure!(text.contains(from), "{} does not have {from}", relative.display());
        Ok(text.replace(from, to).into_bytes())
    };
    if relative.file_name().is_some_and(|name| name == "Chart.yaml") {
        replaced(CHECKOUT, &release.version)
    } else if relative == Path::new("values.yaml") {
        replaced(CHECKOUT_REGISTRY, &format!("repo: {}/", release.registry))
    } else {
        Ok(content)
    }
}

/// All files below a directory, sorted, those behind links included: `charts/libcoder` is a link.
pub(super) fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
