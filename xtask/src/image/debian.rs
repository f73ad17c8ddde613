//! A minimal Debian as the lowest layer of an image.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::find_program;
use super::layer::{Content, Entry, Layer};
use super::recipe::Debian;
use crate::run::{run, target};

/// Directories that stay empty, and files that differ between two equal installations or that a container replaces.
const LEFT_OUT: &[&str] = &[
    "dev",
    "proc",
    "run",
    "sys",
    "tmp",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/lib/apt/lists",
    "var/lib/dpkg/diversions-old",
    "var/lib/dpkg/statoverride-old",
    "var/lib/dpkg/status-old",
    "var/log",
    "var/tmp",
];

/// Makes the root directory of a Debian in `target/images`, unless it is there from an earlier run.
pub(super) fn bootstrap(debian: &Debian) -> Result<PathBuf> {
    let packages = debian.packages.join(",");
    let directory = target().join("images").join(format!("{}-{}", debian.suite, packages.replace(',', "-")));
    if directory.is_dir() {
        return Ok(directory);
    }
    let Some(debootstrap) = find_program("debootstrap").or_else(|| find_program("sbin/debootstrap")) else {
        bail!(
            "debootstrap is missing: install the package debootstrap and run this as root, or name the root directory of a Debian \
             {} with the packages {packages} by --debian",
            debian.suite
        );
    };
    // An unfinished directory has another name, so it is never taken for a finished one.
    let unfinished = directory.with_extension("unfinished");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)
            .with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    std::fs::create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
    let mut command = Command::new(debootstrap);
    command.args(["--variant=minbase", &format!("--include={packages}"), &debian.suite]).arg(&unfinished);
    run(&mut command).context("debootstrap needs root and the package archive of Debian")?;
    std::fs::rename(&unfinished, &directory)?;
    Ok(directory)
}

/// The layer of a root directory.
pub(super) fn layer(root: &Path) -> Result<Layer> {
    let mut layer = Layer::default();
    add(&mut layer, root, root, &mut BTreeMap::new())?;
    Ok(layer)
}

/// Adds what is in `directory`. `names` has the first name of each file that has several.
fn add(
    layer: &mut Layer,
    root: &Path,
    directory: &Path,
    names: &mut BTreeMap<(u64, u64), PathBuf>,
) -> Result<()> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let relative = path.strip_prefix(root)?.to_owned();
        let left_out = LEFT_OUT.iter().any(|known| relative == Path::new(known));
        let metadata = path.symlink_metadata()?;
        let content = if metadata.is_dir() {
            Content::Directory
        } else if left_out {
            continue;
        } else if metadata.is_symlink() {
            Content::Link(std::fs::read_link(&path)?)
        } else if !metadata.is_file() {
            // Devices, pipes and sockets: an engine makes its own.
            continue;
        } else if metadata.nlink() > 1 {
            match names.entry((metadata.dev(), metadata.ino())) {
                std::collections::btree_map::Entry::Occupied(first) => Content::HardLink(first.get().clone()),
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(relative.clone());
                    Content::File(path.clone())
                }
            }
        } else {
            Content::File(path.clone())
        };
        let descend = matches!(content, Content::Directory) && !left_out;
        layer.add(
            relative,
            Entry {
                // No program changes the user: that is of no use to a user who may not become root.
                mode: if metadata.is_dir() { metadata.mode() & 0o7777 } else { metadata.mode() & 0o1777 },
                user: metadata.uid(),
                group: metadata.gid(),
                content,
            },
        );
        if descend {
            add(layer, root, &path, names)?;
        }
    }
    Ok(())
}
