//! Safe unpacking of template and module archives.
//!
//! The archive comes from whoever may push a template. Nothing in it may write outside the directory, follow a link,
//! or cost more disk and time than the limits say.

use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

/// What an archive may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) entries: usize,
    pub(crate) entry_bytes: u64,
    pub(crate) total_bytes: u64,
}

impl Limits {
    pub(crate) const TEMPLATE: Self =
        Self { entries: 5_000, entry_bytes: 10 * 1024 * 1024, total_bytes: 64 * 1024 * 1024 };
    pub(crate) const MODULES: Self =
        Self { entries: 50_000, entry_bytes: 128 * 1024 * 1024, total_bytes: 256 * 1024 * 1024 };
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("not a readable tar archive: {0}; pack the template with `coder templates push`")]
    Unreadable(String),
    #[error("entry {0:?} has an absolute name; names must be relative to the template's folder")]
    Absolute(String),
    #[error("entry {0:?} leaves the template's folder; names must not contain `..`")]
    Escapes(String),
    #[error("entry {0:?} has a name that is not text")]
    Name(String),
    #[error("the archive has more than {0} entries")]
    TooMany(usize),
    #[error("entry {name:?} is {size} bytes long; the limit is {limit}")]
    EntrySize { name: String, size: u64, limit: u64 },
    #[error("entry {name:?} takes the archive over the limit of {limit} bytes unpacked")]
    TotalSize { name: String, limit: u64 },
    #[error("entry {name:?} cannot be written: {reason}")]
    Write { name: String, reason: String },
}

/// Unpacks `bytes` below `dir`. What is neither a file nor a folder is passed over (terraform 1.4): official clients pack
/// links that lie in a template's folder, and none may be followed here. Blocks, so call it off the async threads.
pub(crate) fn extract(bytes: &[u8], dir: &Path, limits: Limits) -> Result<(), ArchiveError> {
    let mut tar = tar::Archive::new(bytes);
    let mut total: u64 = 0;
    let unreadable = |error: std::io::Error| ArchiveError::Unreadable(error.to_string());
    for (number, entry) in tar.entries().map_err(unreadable)?.enumerate() {
        let mut entry = entry.map_err(unreadable)?;
        if number >= limits.entries {
            return Err(ArchiveError::TooMany(limits.entries));
        }
        let raw = entry.path_bytes().into_owned();
        let shown = String::from_utf8_lossy(&raw).into_owned();
        let kind = entry.header().entry_type();
        if kind == tar::EntryType::XGlobalHeader {
            continue;
        }
        let path = local_path(&raw, &shown)?;
        let mode = entry.header().mode().unwrap_or(0) & 0o777;
        let write_error =
            |error: std::io::Error| ArchiveError::Write { name: shown.clone(), reason: error.to_string() };
        match kind {
            tar::EntryType::Directory => {
                if !path.as_os_str().is_empty() {
                    make_dirs(&dir.join(path), mode).map_err(write_error)?;
                }
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let size = entry.size();
                if size > limits.entry_bytes {
                    return Err(ArchiveError::EntrySize { name: shown, size, limit: limits.entry_bytes });
                }
                total = total.saturating_add(size);
                if total > limits.total_bytes {
                    return Err(ArchiveError::TotalSize { name: shown, limit: limits.total_bytes });
                }
                let target = dir.join(path);
                if let Some(parent) = target.parent() {
                    make_dirs(parent, 0o755).map_err(write_error)?;
                }
                let mode = if mode == 0 { 0o600 } else { mode | 0o600 };
                let mut file = std::fs::OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(mode)
                    .open(target)
                    .map_err(write_error)?;
                let copied = std::io::copy(&mut entry.by_ref().take(size), &mut file).map_err(write_error)?;
                if copied != size {
                    return Err(ArchiveError::Unreadable(format!("entry {shown:?} is cut short")));
                }
            }
            other => {
                tracing::warn!(name = shown, kind = describe(other), "entry of an archive passed over");
            }
        }
    }
    Ok(())
}

fn describe(kind: tar::EntryType) -> &'static str {
    match kind {
        tar::EntryType::Symlink => "symbolic link",
        tar::EntryType::Link => "hard link",
        tar::EntryType::Char | tar::EntryType::Block => "device",
        tar::EntryType::Fifo => "named pipe",
        tar::EntryType::GNUSparse => "sparse file",
        _ => "special entry",
    }
}

fn local_path(raw: &[u8], shown: &str) -> Result<PathBuf, ArchiveError> {
    let text = std::str::from_utf8(raw).map_err(|_| ArchiveError::Name(shown.to_owned()))?;
    if text.contains('\0') || text.is_empty() {
        return Err(ArchiveError::Name(shown.to_owned()));
    }
    let mut path = PathBuf::new();
    for component in Path::new(text).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => return Err(ArchiveError::Escapes(shown.to_owned())),
            Component::RootDir | Component::Prefix(_) => {
                return Err(ArchiveError::Absolute(shown.to_owned()));
            }
        }
    }
    Ok(path)
}

fn make_dirs(path: &Path, mode: u32) -> std::io::Result<()> {
    // The owner must be able to work in it, whatever the archive says.
    std::fs::DirBuilder::new().recursive(true).mode(mode | 0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { entries: 10, entry_bytes: 100, total_bytes: 150 };

    fn raw_entry(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, bytes: &[u8]) {
        let mut header = tar::Header::new_gnu();
        // Written by hand: the library refuses to write bad names itself.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        if matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link) {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    }

    fn archive(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, kind, bytes) in entries {
            raw_entry(&mut tar, name, *kind, bytes);
        }
        tar.into_inner().unwrap()
    }

    fn refused(entries: &[(&str, tar::EntryType, &[u8])]) -> String {
        let dir = tempfile::tempdir().unwrap();
        extract(&archive(entries), &dir.path().join("in"), LIMITS).unwrap_err().to_string()
    }

    use tar::EntryType as Kind;

    #[test]
    fn parents_are_made_when_the_archive_has_no_folders() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = archive(&[("./a/b/c.tf", Kind::Regular, b"x"), ("main.tf", Kind::Regular, b"y")]);
        extract(&bytes, dir.path(), LIMITS).unwrap();
        assert_eq!(std::fs::read(dir.path().join("a/b/c.tf")).unwrap(), b"x");
        assert_eq!(std::fs::read(dir.path().join("main.tf")).unwrap(), b"y");
    }

    #[test]
    fn a_second_entry_of_one_name_replaces_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = archive(&[("main.tf", Kind::Regular, b"longer"), ("main.tf", Kind::Regular, b"y")]);
        extract(&bytes, dir.path(), LIMITS).unwrap();
        assert_eq!(std::fs::read(dir.path().join("main.tf")).unwrap(), b"y");
    }

    #[test]
    fn attacks_are_refused_and_named() {
        for (name, kind, wanted) in [
            ("../out.tf", Kind::Regular, "must not contain `..`"),
            ("a/../../out", Kind::Directory, "must not contain `..`"),
            ("/etc/cron", Kind::Regular, "absolute"),
            ("../link", Kind::Symlink, "must not contain `..`"),
        ] {
            let error = refused(&[(name, kind, b"")]);
            assert!(error.contains(wanted) && error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn what_is_no_file_and_no_folder_is_passed_over() {
        for kind in [Kind::Symlink, Kind::Link, Kind::Char, Kind::Block, Kind::Fifo] {
            let dir = tempfile::tempdir().unwrap();
            // What comes later under its name is written here, not where a link points to.
            let later: [(&str, Kind, &[u8]); 2] =
                [("a", Kind::Regular, b"y"), ("main.tf", Kind::Regular, b"x")];
            extract(&archive(&[&[("a", kind, &b""[..])], &later[..]].concat()), dir.path(), LIMITS).unwrap();
            assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"y", "{kind:?}");
            extract(&archive(&[("b", kind, b"")]), dir.path(), LIMITS).unwrap();
            assert!(dir.path().join("b").symlink_metadata().is_err(), "{kind:?}");
        }
    }

    #[test]
    fn sizes_and_counts_are_bounded() {
        let error = refused(&[("big", Kind::Regular, &[0; 101])]);
        assert!(error.contains("big") && error.contains("101"), "{error}");
        let error = refused(&[("one", Kind::Regular, &[0; 90]), ("two", Kind::Regular, &[0; 90])]);
        assert!(error.contains("two") && error.contains("150"), "{error}");
        let many: Vec<_> = (0..11).map(|_| ("x", Kind::Regular, &b""[..])).collect();
        assert!(refused(&many).contains("more than 10 entries"));
    }

    #[test]
    fn a_huge_announced_size_costs_nothing() {
        let mut header = tar::Header::new_gnu();
        header.set_path("bomb").unwrap();
        header.set_entry_type(Kind::Regular);
        header.set_size(1 << 40);
        header.set_mode(0o644);
        header.set_cksum();
        let dir = tempfile::tempdir().unwrap();
        let error = extract(header.as_bytes(), dir.path(), LIMITS).unwrap_err().to_string();
        assert!(error.contains("bomb"), "{error}");
    }

    #[test]
    fn garbage_and_cut_archives_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(extract(&[b'x'; 2048], dir.path(), LIMITS).is_err());
        let whole = archive(&[("main.tf", Kind::Regular, &[1; 90])]);
        assert!(extract(&whole[..540], dir.path(), LIMITS).is_err());
        assert!(extract(&[], dir.path(), LIMITS).is_ok(), "an empty archive is the caller's problem");
    }

    #[test]
    fn modes_never_lock_the_owner_out() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let bytes = archive(&[("a", Kind::Regular, b"x")]);
        extract(&bytes, dir.path(), LIMITS).unwrap();
        let mode = std::fs::metadata(dir.path().join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o600, 0o600);
        assert_eq!(mode & 0o7000, 0);
    }
}
