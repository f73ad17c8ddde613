//! Packs a template directory into an archive (http-api 6.1): which files are included, and its size limits.
//!
//! Equal files produce equal archives, so that a second push finds the first upload.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use coder_source::files::SourceName;

/// Most bytes of file content in an archive.
pub(crate) const MAX_CONTENT_BYTES: u64 = 1 << 20;
/// Deepest directory, against loops through mounts.
pub(crate) const MAX_DEPTH: usize = 64;

/// A packed template.
#[derive(Debug)]
pub(crate) struct Archive {
    /// The tar.
    pub(crate) bytes: Vec<u8>,
    /// Links and other special files that were skipped.
    pub(crate) skipped: Vec<String>,
}

/// Packs a directory.
pub(crate) fn directory(root: &Path) -> anyhow::Result<Archive> {
    let mut packer =
        Packer { tar: tar::Builder::new(Vec::new()), content: 0, has_terraform: false, skipped: Vec::new() };
    ensure!(root.is_dir(), "{} is not a directory", root.display());
    packer.add(root, "", 0)?;
    if !packer.has_terraform {
        bail!(
            "{} has no .tf or .tofu file: a template needs at least one, `coder templates init` makes an example",
            root.display()
        );
    }
    let Packer { tar, skipped, .. } = packer;
    Ok(Archive { bytes: tar.into_inner()?, skipped })
}

/// Packs named files that are part of this program.
#[cfg(feature = "server")]
pub(crate) fn embedded(files: &[(&str, &str)]) -> anyhow::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        append(&mut tar, name, text.as_bytes(), 0o644)?;
    }
    Ok(tar.into_inner()?)
}

struct Packer {
    tar: tar::Builder<Vec<u8>>,
    content: u64,
    has_terraform: bool,
    skipped: Vec<String>,
}

impl Packer {
    fn add(&mut self, directory: &Path, prefix: &str, depth: usize) -> anyhow::Result<()> {
        ensure!(depth <= MAX_DEPTH, "{} is nested more than {MAX_DEPTH} deep", directory.display());
        let read = || -> std::io::Result<Vec<_>> { fs::read_dir(directory)?.collect() };
        let mut entries = read().with_context(|| format!("read {}", directory.display()))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                bail!("the name of {} is not valid UTF-8", entry.path().display());
            };
            if is_left_out(prefix, name) {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.directory(&path)?;
                self.add(&entry.path(), &format!("{path}/"), depth + 1)?;
            } else if kind.is_file() {
                self.file(&entry.path(), &path, prefix.is_empty())?;
            } else {
                self.skipped.push(path);
            }
        }
        Ok(())
    }

    fn directory(&mut self, path: &str) -> anyhow::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        self.tar.append_data(&mut header, format!("{path}/"), std::io::empty())?;
        Ok(())
    }

    fn file(&mut self, source: &Path, path: &str, in_root: bool) -> anyhow::Result<()> {
        let describe = || format!("read {}", source.display());
        let metadata = fs::metadata(source).with_context(describe)?;
        self.content += metadata.len();
        ensure!(
            self.content <= MAX_CONTENT_BYTES,
            "the template is larger than 1 MiB (at {path}): move large files out of its directory, or give them a \
             name that starts with a dot"
        );
        let bytes = fs::read(source).with_context(describe)?;
        let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        self.has_terraform |= in_root && SourceName::parse(path).is_some();
        append(&mut self.tar, path, &bytes, mode)
    }
}

const LOCK_FILE: &str = ".terraform.lock.hcl";

fn append(tar: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, path, bytes).with_context(|| format!("pack {path}"))
}

/// Hidden files (but for the lock file), state files, and files of variable values, which are sent as values.
fn is_left_out(prefix: &str, name: &str) -> bool {
    let hidden = name.starts_with('.') && name != LOCK_FILE;
    hidden || name.contains(".tfstate") || is_variables_file(prefix.is_empty(), name)
}

/// Files from which Terraform would take variable values by itself.
pub(crate) fn is_variables_file(in_root: bool, name: &str) -> bool {
    let automatic = name.ends_with(".auto.tfvars") || name.ends_with(".auto.tfvars.json");
    automatic || (in_root && matches!(name, "terraform.tfvars" | "terraform.tfvars.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(bytes);
        let entries = archive.entries().unwrap();
        entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }

    fn template(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        root
    }

    #[test]
    fn pack_contains_the_files_of_a_template_and_no_state_or_secret() {
        let root = template(&[
            "main.tf",
            "README.md",
            ".terraform.lock.hcl",
            ".git/config",
            ".env",
            "terraform.tfstate",
            "a.tfstate.backup",
            "terraform.tfvars",
            "terraform.tfvars.json",
            "x.auto.tfvars",
            "mod/main.tf",
            "mod/terraform.tfvars",
            "mod/y.auto.tfvars.json",
            "mod/.hidden/z.tf",
            "build/run.sh",
        ]);
        std::os::unix::fs::symlink("main.tf", root.path().join("link.tf")).unwrap();
        fs::set_permissions(root.path().join("build/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let archive = directory(root.path()).unwrap();
        let expected = [
            ".terraform.lock.hcl",
            "README.md",
            "build/",
            "build/run.sh",
            "main.tf",
            "mod/",
            "mod/main.tf",
            "mod/terraform.tfvars",
        ];
        assert_eq!(names(&archive.bytes), expected);
        assert_eq!(archive.skipped, ["link.tf"]);
        let again = directory(root.path()).unwrap();
        assert_eq!(archive.bytes, again.bytes);
    }

    #[test]
    fn a_template_needs_terraform() {
        let root = template(&["README.md", "mod/main.tf"]);
        assert!(directory(root.path()).unwrap_err().to_string().contains("no .tf or .tofu file"));
        assert!(directory(template(&["main.tofu"]).path()).is_ok());
        assert!(directory(&root.path().join("absent")).unwrap_err().to_string().contains("not a directory"));
    }

    #[test]
    fn at_most_one_mebibyte_of_content() {
        let root = template(&["main.tf"]);
        fs::write(root.path().join("big"), vec![0; (1 << 20) - 1]).unwrap();
        assert!(directory(root.path()).is_ok());
        fs::write(root.path().join("big"), vec![0; 1 << 20]).unwrap();
        assert!(directory(root.path()).unwrap_err().to_string().contains("1 MiB"));
    }
}
