//! The archive of the bundle: the template's files, then the modules and providers.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use coder_provisioner::Bundle;

use super::lock::{self, Locked};

/// The deepest directory, as a bound for circular links.
const MAX_DEPTH: usize = 64;

/// The directories of the working directory that are packed.
const BROUGHT_ALONG: [&str; 2] = [".terraform/modules", Bundle::PROVIDERS];

/// Creates the archive. Equal content produces equal bytes, so that a second push finds the first upload.
pub(super) fn archive(
    own: &[u8],
    template: &Path,
    platforms: &[String],
    locked: &[Locked],
) -> anyhow::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for entry in tar::Archive::new(own).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        // The lock file is rewritten with the checksums of all platforms.
        if path == Path::new(lock::FILE) {
            continue;
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        tar.append_data(&mut entry.header().clone(), path, content.as_slice())?;
    }
    if template.join(lock::FILE).exists() {
        add(&mut tar, template, Path::new(lock::FILE))?;
    }
    for folder in BROUGHT_ALONG {
        for path in files(template, folder)? {
            add(&mut tar, template, Path::new(&path))?;
        }
    }
    let marker = Bundle {
        format: Bundle::NEWEST_FORMAT,
        platforms: platforms.to_vec(),
        providers: locked.iter().map(|l| format!("{} {}", l.address, l.version)).collect(),
    };
    let marker = serde_json::to_vec(&marker)?;
    tar.append_data(&mut header(marker.len() as u64, 0o644), Bundle::MARKER, marker.as_slice())?;
    Ok(tar.into_inner()?)
}

fn add(tar: &mut tar::Builder<Vec<u8>>, template: &Path, path: &Path) -> anyhow::Result<()> {
    let file = template.join(path);
    let describe = || format!("pack {}", path.display());
    let content = fs::read(&file).with_context(describe)?;
    let executable = fs::metadata(&file).with_context(describe)?.permissions().mode() & 0o111 != 0;
    let mode = if executable { 0o755 } else { 0o644 };
    tar.append_data(&mut header(content.len() as u64, mode), path, content.as_slice()).with_context(describe)
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

/// The regular files below a directory, sorted, relative to the template, without directories of version control.
fn files(template: &Path, folder: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        anyhow::ensure!(depth <= MAX_DEPTH, "{folder} is nested more than {MAX_DEPTH} deep");
        let entries = match fs::read_dir(template.join(&folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("read {folder}")),
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().into_string();
            let Ok(name) = name else { anyhow::bail!("a file in {folder} has a name that is not text") };
            let path = format!("{folder}/{name}");
            // Terraform creates links for modules with an absolute path. A broken link is not packed.
            let Ok(kind) = fs::metadata(entry.path()) else { continue };
            if kind.is_dir() && name != ".git" {
                open.push((path, depth + 1));
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks before the work that the file can be written.
pub(super) fn has_place(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(!path.is_dir(), "{} is a directory: name a file to write", path.display());
    let place = fs::metadata(folder(path)).with_context(|| format!("write {}", path.display()))?;
    anyhow::ensure!(
        place.is_dir(),
        "write {}: {} is not a directory",
        path.display(),
        folder(path).display()
    );
    Ok(())
}

/// Writes the file in one step.
pub(super) fn file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let describe = || format!("write {}", path.display());
    let folder = folder(path);
    let mut new = tempfile::NamedTempFile::new_in(folder).with_context(describe)?;
    std::io::Write::write_all(&mut new, bytes).with_context(describe)?;
    new.as_file().set_permissions(fs::Permissions::from_mode(0o644)).with_context(describe)?;
    new.persist(path).with_context(describe)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_the_template_and_what_it_needs() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("main.tf", "x");
        put(lock::FILE, "old");
        let own = crate::template::pack::directory(dir.path()).unwrap().bytes;
        put(lock::FILE, "new");
        put(".terraform/modules/modules.json", "{}");
        put(".terraform/modules/m/.git/config", "no");
        put("elsewhere/main.tf", "linked");
        std::os::unix::fs::symlink("../../elsewhere", dir.path().join(".terraform/modules/l")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join(".terraform/modules/broken")).unwrap();
        put(".terraform/providers/x/y", "no");
        put("terraform.d/plugins/h/n/t/a.zip", "zip");
        let make = || archive(&own, dir.path(), &["linux_amd64".to_owned()], &[]).unwrap();
        let bytes = make();
        assert_eq!(bytes, make());
        let mut seen = Vec::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            seen.push((entry.path().unwrap().display().to_string(), text));
        }
        let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = [
            "main.tf",
            lock::FILE,
            ".terraform/modules/l/main.tf",
            ".terraform/modules/modules.json",
            "terraform.d/plugins/h/n/t/a.zip",
            Bundle::MARKER,
        ];
        assert_eq!(names, wanted);
        assert_eq!(seen[1].1, "new");
        let out = dir.path().join("out.tar");
        file(&out, &bytes).unwrap();
        assert_eq!(fs::read(out).unwrap(), bytes);
    }
}
