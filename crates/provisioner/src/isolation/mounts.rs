//! The mounts of this process: by which other paths a directory can be reached.

use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<Mount>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    /// The mounted directory of the file system.
    root: PathBuf,
    point: PathBuf,
}

impl Mounts {
    /// Reads them from `/proc`; empty without it.
    pub(super) fn read() -> Self {
        Self::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Self {
        let mounts = text.split(|&byte| byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|&byte| byte == b' ').skip(2);
            let device = String::from_utf8_lossy(fields.next()?).into_owned();
            Some(Mount { device, root: path(fields.next()?), point: path(fields.next()?) })
        });
        Self(mounts.collect())
    }

    /// Other paths that lead to a path or into it, because its file system, or a part of it, is mounted several
    /// times.
    pub(super) fn aliases(&self, path: &Path) -> Vec<PathBuf> {
        self.candidates(path)
            .into_iter()
            .filter(|(alias, same)| is_same(alias, same))
            .map(|(alias, _)| alias)
            .collect()
    }

    /// Paths, each with the path that it is the same as unless another mount hides it.
    fn candidates(&self, path: &Path) -> Vec<(PathBuf, PathBuf)> {
        // Later mounts hide earlier ones.
        let own = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        let Some(own) = own.max_by_key(|mount| mount.point.components().count()) else { return Vec::new() };
        let Ok(below) = path.strip_prefix(&own.point) else { return Vec::new() };
        let inside = own.root.join(below);
        let others = self.0.iter().filter(|mount| mount.device == own.device);
        let aliases = others.filter_map(|mount| {
            if let Ok(rest) = inside.strip_prefix(&mount.root) {
                Some((join(&mount.point, rest), path.to_owned()))
            } else {
                let rest = mount.root.strip_prefix(&inside).ok()?;
                Some((mount.point.clone(), join(path, rest)))
            }
        });
        aliases.filter(|(alias, _)| !alias.starts_with(path)).collect()
    }
}

/// Joins without a trailing slash.
fn join(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.symlink_metadata().map(|file| (file.dev(), file.ino()));
    identity(one).is_ok_and(|one| identity(other).is_ok_and(|other| one == other))
}

/// Decodes the octal escapes of spaces and control characters.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let number = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = number.filter(|_| first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_a_directory_are_found() {
        let text = b"20 1 8:1 / / rw - ext4 /dev/sda rw\n\
                     21 20 8:1 / /host rw - ext4 /dev/sda rw\n\
                     22 20 8:1 /srv /data\\040disk rw - ext4 /dev/sda rw\n\
                     23 20 8:1 /srv/cache/plugins /plugins rw - ext4 /dev/sda rw\n\
                     24 20 8:2 / /srv/other rw - ext4 /dev/sdb rw\n\
                     25 20 8:2 /a /b rw - ext4 /dev/sdb rw\n";
        let mounts = Mounts::parse(text);
        let found = |path: &str| -> Vec<String> {
            let candidates = mounts.candidates(Path::new(path)).into_iter();
            candidates.map(|(alias, _)| alias.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(found("/srv/cache"), ["/host/srv/cache", "/data disk/cache", "/plugins"]);
        assert_eq!(found("/srv/other/a"), ["/b"]);
        assert_eq!(found("/srv/other/b"), Vec::<String>::new());
        assert_eq!(found("/data disk/cache"), ["/srv/cache", "/host/srv/cache", "/plugins"]);
    }

    #[test]
    fn different_directories_are_not_the_same() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert!(is_same(&dir.path().join("one"), &dir.path().join("one")));
        assert!(!is_same(&dir.path().join("one"), &dir.path().join("two")));
    }
}
