//! The modules that Terraform downloaded: their manifest, and the archive that saves builds the download
//! (terraform 1.9).

use std::path::{Path, PathBuf};

use coder_wire::messages::provisioner::Module;
use serde::{Deserialize, Serialize};

use crate::files::job_file;
use crate::files::job_file::JobFile;

/// Longer manifests are rejected.
const MAX_MANIFEST_BYTES: u64 = 16 * 1024 * 1024;

/// Where Terraform puts them.
pub(crate) const MODULES: &str = ".terraform/modules";
const MANIFEST: &str = ".terraform/modules/modules.json";

/// Modules beyond this are left out of the archive; the job continues without them.
const ARCHIVE_LIMIT_BYTES: u64 = 20 * 1024 * 1024;
const ENTRY_OVERHEAD_BYTES: u64 = 512;
const RESERVED_BYTES: u64 = 1024;

/// Terraform's module manifest.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ModuleManifest {
    #[serde(rename = "Modules", default)]
    pub(crate) modules: Vec<ModuleEntry>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModuleEntry {
    /// The names of the calls that lead to it, joined by dots; empty for the template itself.
    #[serde(rename = "Key", default)]
    pub(crate) key: String,
    #[serde(rename = "Source", default)]
    pub(crate) source: String,
    /// Only for modules of a registry.
    #[serde(rename = "Version", default, skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    /// Its directory, relative to the template's.
    #[serde(rename = "Dir", default)]
    pub(crate) dir: String,
}

impl ModuleManifest {
    /// Reads the manifest in a template's directory, with its text. Blocks.
    pub(crate) fn read(dir: &Path) -> std::io::Result<(Self, Vec<u8>)> {
        let text = JobFile::new(dir, MANIFEST).read(MAX_MANIFEST_BYTES)?;
        Ok((serde_json::from_slice(&text)?, text))
    }

    /// Writes the manifest. Blocks.
    pub(crate) fn write(&self, dir: &Path) -> std::io::Result<()> {
        JobFile::new(dir, MANIFEST).write(&serde_json::to_vec(self)?)
    }
}

impl ModuleEntry {
    /// Whether it was downloaded.
    pub(crate) fn is_fetched(&self) -> bool {
        Path::new(&self.dir).starts_with(MODULES) && !self.dir.split('/').any(|part| part == "..")
    }
}

/// The modules after `init`.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) list: Vec<Module>,
    /// Tar of the remote modules; empty without any.
    pub(crate) archive: Vec<u8>,
    /// Modules that did not fit into the archive.
    pub(crate) skipped: Vec<String>,
}

/// Reads the modules of a directory after `init`. Blocks: call it off the async threads.
pub(crate) fn read(dir: &Path, with_archive: bool) -> std::io::Result<Modules> {
    let (manifest, text) = match ModuleManifest::read(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Modules::default()),
        other => other?,
    };
    let mut modules = Modules::default();
    if with_archive {
        (modules.archive, modules.skipped) = archive(dir, &manifest, &text)?;
    }
    modules.list = manifest
        .modules
        .into_iter()
        .filter(|entry| !entry.source.is_empty())
        .map(|entry| Module {
            source: entry.source,
            version: entry.version,
            key: entry.key,
            ..Module::default()
        })
        .collect();
    Ok(modules)
}

struct File {
    path: PathBuf,
    is_dir: bool,
    size: u64,
    mode: u32,
}

fn archive(
    dir: &Path,
    manifest: &ModuleManifest,
    manifest_text: &[u8],
) -> std::io::Result<(Vec<u8>, Vec<String>)> {
    let mut trees = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for entry in &manifest.modules {
        // The target of a link does not belong to the job.
        let is_plain = || job_file::is_plain_dir(dir, Path::new(&entry.dir));
        if !entry.is_fetched() || !seen.insert(entry.dir.as_str()) || !is_plain() {
            continue;
        }
        let mut files = Vec::new();
        collect(dir, Path::new(&entry.dir), &mut files)?;
        let size: u64 = files.iter().map(|file| ENTRY_OVERHEAD_BYTES + file.size.next_multiple_of(512)).sum();
        trees.push((size, entry.key.as_str(), files));
    }
    if trees.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    trees.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));

    let mut skipped = Vec::new();
    let mut used = RESERVED_BYTES + manifest_text.len() as u64;
    let mut tar = tar::Builder::new(Vec::new());
    let mut written = std::collections::HashSet::new();
    for (size, key, files) in trees {
        if used + size > ARCHIVE_LIMIT_BYTES {
            skipped.push(key.to_owned());
            continue;
        }
        used += size;
        for file in files {
            if !written.insert(file.path.clone()) {
                continue;
            }
            if file.is_dir {
                let mut name = file.path.into_os_string();
                name.push("/");
                tar.append_data(
                    &mut header(tar::EntryType::Directory, 0, file.mode),
                    name,
                    std::io::empty(),
                )?;
            } else {
                let bytes = JobFile::new(dir, &file.path).read(file.size)?;
                tar.append_data(
                    &mut header(tar::EntryType::Regular, bytes.len() as u64, file.mode),
                    &file.path,
                    bytes.as_slice(),
                )?;
            }
        }
    }
    tar.append_data(
        &mut header(tar::EntryType::Regular, manifest_text.len() as u64, 0o644),
        MANIFEST,
        manifest_text,
    )?;
    Ok((tar.into_inner()?, skipped))
}

/// Equal trees give equal bytes: headers contain no times and no names.
fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(1000);
    header.set_gid(1000);
    header.set_mtime(0);
    header
}

/// Directories and regular files below `path`, sorted, without `.git`.
fn collect(root: &Path, path: &Path, files: &mut Vec<File>) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = std::fs::symlink_metadata(root.join(&path))?;
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.is_dir() {
            for entry in std::fs::read_dir(root.join(&path))? {
                let name = entry?.file_name();
                if name != ".git" {
                    pending.push(path.join(name));
                }
            }
            files.push(File { path, is_dir: true, size: 0, mode });
        } else if metadata.is_file() {
            files.push(File { path, is_dir: false, size: metadata.len(), mode });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(big: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let modules = dir.path().join(".terraform/modules");
        std::fs::create_dir_all(modules.join("a/.git")).unwrap();
        std::fs::create_dir_all(modules.join("b")).unwrap();
        std::fs::write(modules.join("a/.git/config"), "x").unwrap();
        std::fs::write(modules.join("a/main.tf"), "# a").unwrap();
        std::fs::write(modules.join("b/main.tf"), vec![b'#'; big]).unwrap();
        std::fs::write(
            modules.join("modules.json"),
            r#"{"Modules":[{"Key":"","Source":"","Dir":"."},
               {"Key":"b","Source":"registry/b","Version":"1.2.3","Dir":".terraform/modules/b"},
               {"Key":"a","Source":"git::x","Dir":".terraform/modules/a"},
               {"Key":"local","Source":"./local","Dir":"local"}]}"#,
        )
        .unwrap();
        dir
    }

    fn names(archive: &[u8]) -> Vec<String> {
        let mut tar = tar::Archive::new(archive);
        tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }

    #[test]
    fn targets_of_links_are_not_packed() {
        let (tree, other) = (tree(3), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("main.tf"), "SECRET").unwrap();
        let modules = tree.path().join(".terraform/modules");
        for link in [modules.join("a/link"), modules.join("linked")] {
            std::os::unix::fs::symlink(other.path(), link).unwrap();
        }
        let manifest =
            |dir: &str| format!(r#"{{"Modules":[{{"Key":"m","Source":"git::x","Dir":"{dir}"}}]}}"#);
        for dir in [".terraform/modules/linked", ".terraform/modules/a/link"] {
            std::fs::write(modules.join("modules.json"), manifest(dir)).unwrap();
            assert!(read(tree.path(), true).unwrap().archive.is_empty(), "{dir}");
        }
        std::fs::write(modules.join("modules.json"), manifest(".terraform/modules/a")).unwrap();
        let archive = read(tree.path(), true).unwrap().archive;
        assert!(names(&archive).iter().all(|name| !name.contains("link")), "{:?}", names(&archive));
        std::fs::remove_dir_all(&modules).unwrap();
        std::fs::write(other.path().join("modules.json"), manifest(".terraform/modules/x")).unwrap();
        std::fs::create_dir(other.path().join("x")).unwrap();
        std::os::unix::fs::symlink(other.path(), &modules).unwrap();
        assert!(read(tree.path(), true).is_err());
    }

    #[test]
    fn remote_modules_are_packed_reproducibly() {
        let modules = read(tree(3).path(), true).unwrap();
        let keys: Vec<_> = modules.list.iter().map(|module| module.key.as_str()).collect();
        assert_eq!(keys, ["b", "a", "local"]);
        assert_eq!(
            names(&modules.archive),
            [
                ".terraform/modules/a/",
                ".terraform/modules/a/main.tf",
                ".terraform/modules/b/",
                ".terraform/modules/b/main.tf",
                MANIFEST
            ]
        );
        assert_eq!(modules.archive, read(tree(3).path(), true).unwrap().archive);
    }

    #[test]
    fn modules_beyond_the_limit_are_skipped_and_listed() {
        let modules = read(tree(21 * 1024 * 1024).path(), true).unwrap();
        assert_eq!(modules.skipped, ["b"]);
        assert_eq!(names(&modules.archive).len(), 3);
    }

    #[test]
    fn no_manifest_means_no_modules() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), true).unwrap().list.is_empty());
        std::fs::create_dir_all(dir.path().join(".terraform/modules")).unwrap();
        std::fs::write(dir.path().join(MANIFEST), r#"{"Modules":[{"Key":"","Source":"","Dir":"."}]}"#)
            .unwrap();
        assert!(read(dir.path(), true).unwrap().archive.is_empty());
    }
}
