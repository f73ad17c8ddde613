//! Safe unpacking of template and module archives.
//!
//! Anyone who may push a template controls the archive. No entry may write outside the directory, follow a
//! link, or use more disk space and time than the limits allow.

use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Bounds on what an archive unpacks to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArchiveLimits {
    /// Files and directories. Directories that occur only in entry names count too: each takes an inode.
    pub(crate) entries: usize,
    pub(crate) entry_bytes: u64,
    pub(crate) total_bytes: u64,
    /// Length of an entry's name in the archive.
    pub(crate) name_bytes: usize,
    /// Path components of a name.
    pub(crate) depth: usize,
}

impl ArchiveLimits {
    pub(crate) const TEMPLATE: Self = Self {
        entries: 5_000,
        entry_bytes: 10 * 1024 * 1024,
        total_bytes: 64 * 1024 * 1024,
        name_bytes: 2_048,
        depth: 64,
    };
    pub(crate) const MODULES: Self = Self {
        entries: 50_000,
        entry_bytes: 128 * 1024 * 1024,
        total_bytes: 256 * 1024 * 1024,
        ..Self::TEMPLATE
    };
}

/// How much of a too long name an error quotes.
const NAME_EXCERPT_BYTES: usize = 64;

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
    #[error("the archive has more than {0} entries, with the folders that they are in")]
    TooMany(usize),
    #[error("entry {name:?}… has a name of {size} bytes; the limit is {limit}")]
    NameSize { name: String, size: usize, limit: usize },
    #[error("entry {name:?} lies more than {limit} folders deep")]
    Depth { name: String, limit: usize },
    #[error("entry {name:?} is {size} bytes long; the limit is {limit}")]
    EntrySize { name: String, size: u64, limit: u64 },
    #[error("entry {name:?} takes the archive over the limit of {limit} bytes unpacked")]
    TotalSize { name: String, limit: u64 },
    #[error("entry {name:?} cannot be written: {reason}")]
    Write { name: String, reason: String },
}

/// Unpacks `bytes` below `dir`. Entries that are neither files nor directories are skipped (terraform 1.4):
/// official clients pack the links in a template's directory, and none may be followed here. Blocks: call it
/// off the async threads.
pub(crate) fn extract(bytes: &[u8], dir: &Path, limits: ArchiveLimits) -> Result<(), ArchiveError> {
    let mut tar = tar::Archive::new(bytes);
    let mut total: u64 = 0;
    let mut created = CreatedEntries { remaining: limits.entries, limit: limits.entries };
    let unreadable = |error: std::io::Error| ArchiveError::Unreadable(error.to_string());
    for (number, entry) in tar.entries().map_err(unreadable)?.enumerate() {
        let mut entry = entry.map_err(unreadable)?;
        if number >= limits.entries {
            return Err(ArchiveError::TooMany(limits.entries));
        }
        let raw = entry.path_bytes().into_owned();
        if raw.len() > limits.name_bytes {
            let name = String::from_utf8_lossy(&raw[..NAME_EXCERPT_BYTES.min(raw.len())]).into_owned();
            return Err(ArchiveError::NameSize { name, size: raw.len(), limit: limits.name_bytes });
        }
        let shown = String::from_utf8_lossy(&raw).into_owned();
        let kind = entry.header().entry_type();
        if kind == tar::EntryType::XGlobalHeader {
            continue;
        }
        let path = local_path(&raw, &shown)?;
        if path.components().count() > limits.depth {
            return Err(ArchiveError::Depth { name: shown, limit: limits.depth });
        }
        let mode = entry.header().mode().unwrap_or(0) & 0o777;
        let write_error =
            |error: std::io::Error| ArchiveError::Write { name: shown.clone(), reason: error.to_string() };
        match kind {
            tar::EntryType::Directory => {
                created.dirs(dir, &path, mode, &write_error)?;
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
                if let Some(parent) = path.parent() {
                    created.dirs(dir, parent, 0o755, &write_error)?;
                }
                let target = dir.join(path);
                if !target.exists() {
                    created.count_entry()?;
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
                tracing::warn!(name = shown, kind = describe(other), "skipped an entry of an archive");
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

/// Counts the inodes that an archive has created.
struct CreatedEntries {
    remaining: usize,
    limit: usize,
}

impl CreatedEntries {
    fn count_entry(&mut self) -> Result<(), ArchiveError> {
        self.remaining = self.remaining.checked_sub(1).ok_or(ArchiveError::TooMany(self.limit))?;
        Ok(())
    }

    /// Creates a directory below `root` and its parents. A short name can stand for many directories, so each
    /// one counts.
    fn dirs(
        &mut self,
        root: &Path,
        path: &Path,
        mode: u32,
        write_error: &impl Fn(std::io::Error) -> ArchiveError,
    ) -> Result<(), ArchiveError> {
        let mut at = root.to_owned();
        // The caller owns the root, and has usually created it.
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(root).map_err(write_error)?;
        for part in path {
            at.push(part);
            if make_dir(&at, mode).map_err(write_error)? {
                self.count_entry()?;
            }
        }
        Ok(())
    }
}

/// Returns whether the directory was created.
fn make_dir(path: &Path, mode: u32) -> std::io::Result<bool> {
    // The owner must be able to use it, whatever mode the archive gives.
    match std::fs::DirBuilder::new().mode(mode | 0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ArchiveLimits =
        ArchiveLimits { entries: 10, entry_bytes: 100, total_bytes: 150, name_bytes: 60, depth: 4 };

    fn raw_entry(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, bytes: &[u8]) {
        let mut header = tar::Header::new_gnu();
        // Written by hand: the library refuses to write invalid names.
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
    fn entries_other_than_files_and_folders_are_skipped() {
        for kind in [Kind::Symlink, Kind::Link, Kind::Char, Kind::Block, Kind::Fifo] {
            let dir = tempfile::tempdir().unwrap();
            // A later entry with the same name is written here, not to the target of the link.
            let later: [(&str, Kind, &[u8]); 2] =
                [("a", Kind::Regular, b"y"), ("main.tf", Kind::Regular, b"x")];
            extract(&archive(&[&[("a", kind, &b""[..])], &later[..]].concat()), dir.path(), LIMITS).unwrap();
            assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"y", "{kind:?}");
            extract(&archive(&[("b", kind, b"")]), dir.path(), LIMITS).unwrap();
            assert!(dir.path().join("b").symlink_metadata().is_err(), "{kind:?}");
        }
    }

    #[test]
    fn the_log_says_what_was_skipped() {
        for (kind, words) in [
            (Kind::Symlink, "symbolic link"),
            (Kind::Link, "hard link"),
            (Kind::Char, "device"),
            (Kind::Block, "device"),
            (Kind::Fifo, "named pipe"),
            (Kind::GNUSparse, "sparse file"),
            (Kind::XHeader, "special entry"),
        ] {
            assert_eq!(describe(kind), words);
        }
    }

    /// An archive at the limit unpacks; one beyond it does not.
    fn bounds(at: &[(&str, Kind, &[u8])], beyond: &[(&str, Kind, &[u8])], wanted: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        extract(&archive(at), &dir.path().join("in"), LIMITS).unwrap();
        let error = refused(beyond);
        assert!(wanted.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn the_size_of_an_entry_is_bounded() {
        bounds(
            &[("big", Kind::Regular, &[0; 100])],
            &[("big", Kind::Regular, &[0; 101])],
            &["big", "101", "100"],
        );
    }

    #[test]
    fn the_size_of_all_is_bounded() {
        let (one, two) = ([0; 90], [0; 61]);
        bounds(
            &[("one", Kind::Regular, &one), ("two", Kind::Regular, &two[..60])],
            &[("one", Kind::Regular, &one), ("two", Kind::Regular, &two)],
            &["two", "150"],
        );
        // An entry that replaces another one counts too.
        let twice = [("one", Kind::Regular, &one[..]), ("one", Kind::Regular, &two[..])];
        assert!(refused(&twice).contains("150"));
    }

    #[test]
    fn the_number_of_entries_is_bounded_whatever_they_are() {
        for kind in [Kind::Regular, Kind::Directory, Kind::Symlink] {
            let many = [("x", kind, &b""[..]); 11];
            bounds(&many[..10], &many, &["more than 10 entries"]);
        }
    }

    #[test]
    fn folders_that_stand_in_names_count() {
        let files: Vec<String> = (0..4).map(|n| format!("{n}/a/f")).collect();
        let entries: Vec<_> = files.iter().map(|name| (name.as_str(), Kind::Regular, &b""[..])).collect();
        // Three files with their six directories, and a fourth file, are ten inodes; one more directory is the
        // eleventh.
        let ten = [&entries[..3], &[("f", Kind::Regular, &b""[..])][..]].concat();
        let eleven = [&ten[..], &[("d", Kind::Directory, &b""[..])][..]].concat();
        bounds(&ten, &eleven, &["more than 10 entries"]);
        assert!(refused(&entries).contains("more than 10 entries"));
        // Existing entries take no further inode.
        let again = [&ten[..], &ten[..]].concat();
        bounds(&again, &eleven, &["more than 10 entries"]);
    }

    #[test]
    fn the_length_of_a_name_is_bounded() {
        let long = format!("{}/{}", "a".repeat(29), "b".repeat(31));
        bounds(&[(&long[..60], Kind::Regular, b"")], &[(&long, Kind::Regular, b"")], &["aaaa", "61", "60"]);
        // The bound also holds for the extensions that carry long names.
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_entry_type(Kind::Regular);
        tar.append_data(&mut header, "c".repeat(4_000), &b""[..]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let error = extract(&tar.into_inner().unwrap(), dir.path(), LIMITS).unwrap_err().to_string();
        assert!(error.contains("4000 bytes") && error.len() < 200, "{error}");
    }

    #[test]
    fn the_depth_of_a_name_is_bounded() {
        for kind in [Kind::Regular, Kind::Directory] {
            bounds(&[("./a/b/c/d", kind, b"")], &[("a/b/c/d/e", kind, b"")], &["a/b/c/d/e", "more than 4"]);
        }
    }

    #[test]
    fn the_limits_are_those_of_the_documentation() {
        let ArchiveLimits { entries, entry_bytes, total_bytes, name_bytes, depth } = ArchiveLimits::TEMPLATE;
        assert_eq!(
            (entries, entry_bytes, total_bytes, name_bytes, depth),
            (5_000, 10 << 20, 64 << 20, 2_048, 64)
        );
        let ArchiveLimits { entries, entry_bytes, total_bytes, name_bytes, depth } = ArchiveLimits::MODULES;
        assert_eq!(
            (entries, entry_bytes, total_bytes, name_bytes, depth),
            (50_000, 128 << 20, 256 << 20, 2_048, 64)
        );
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
    fn names_that_are_no_text_are_refused() {
        for raw in [&b""[..], b"a\0b", b"\0", b"\xff"] {
            let error = local_path(raw, "shown").unwrap_err();
            assert!(matches!(error, ArchiveError::Name(_)), "{raw:?}: {error}");
        }
        assert_eq!(local_path(b"./a//b", "shown").unwrap(), Path::new("a/b"));
    }

    #[test]
    fn folder_cannot_take_the_place_of_a_file() {
        let error = refused(&[("a", Kind::Regular, b""), ("a", Kind::Directory, b"")]);
        assert!(error.contains("\"a\" cannot be written"), "{error}");
    }

    /// The owner can always read and write, and no special bit is taken over.
    #[test]
    fn modes_are_those_of_the_archive_with_the_owners_rights() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            ("none", Kind::Regular, 0, 0o600),
            ("plain", Kind::Regular, 0o644, 0o644),
            ("private", Kind::Regular, 0o400, 0o600),
            ("special", Kind::Regular, 0o6755, 0o755),
            ("closed", Kind::Directory, 0, 0o700),
            ("shared", Kind::Directory, 0o1055, 0o755),
        ];
        let mut tar = tar::Builder::new(Vec::new());
        for (name, kind, mode, _) in cases {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(mode);
            tar.append_data(&mut header, name, &b""[..]).unwrap();
        }
        extract(&tar.into_inner().unwrap(), dir.path(), LIMITS).unwrap();
        // What the umask of this process takes away is missing in all of them.
        let plain = dir.path().join("probe");
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o777).open(&plain).unwrap();
        let mode_of = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        let permitted = mode_of(&plain);
        for (name, _, mode, wanted) in cases {
            assert_eq!(
                mode_of(&dir.path().join(name)),
                wanted & permitted,
                "{name}, {mode:o} in the archive"
            );
        }
    }
}
