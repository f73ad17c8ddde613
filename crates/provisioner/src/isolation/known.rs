//! Where the other daemons of this user keep their jobs: each writes it down, so that none lets its jobs look there.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The list of this user: a directory of links, which jobs do not see.
pub(super) fn list() -> PathBuf {
    std::env::temp_dir().join(format!("coder-daemons-{}", rustix::process::geteuid().as_raw()))
}

/// Writes down a directory of jobs, and forgets those that are gone. Without the list jobs of other daemons are seen, so
/// trouble is told.
pub(crate) fn register(work: &Path) {
    if let Err(error) = write(&list(), work) {
        tracing::warn!(target: "provisioner", %error, "other daemons of this user do not know what to hide of this one");
    }
}

fn write(list: &Path, work: &Path) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(list) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_ours(list) {
        return Err(std::io::Error::other(format!("{} belongs to somebody else", list.display())));
    }
    for entry in list.read_dir()?.flatten() {
        // A link to nothing.
        if !entry.path().exists() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let work = std::path::absolute(work)?;
    let name = hex::encode(&Sha256::digest(work.as_os_str().as_bytes())[..8]);
    match symlink(&work, list.join(name)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// What the list has, but for what is below `own`.
pub(super) fn others(list: &Path, own: &Path) -> Vec<PathBuf> {
    if !is_ours(list) {
        return Vec::new();
    }
    let entries = list.read_dir().into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|work| work.is_dir() && !work.starts_with(own)).collect()
}

/// Nobody else can have put something there.
fn is_ours(list: &Path) -> bool {
    let ours = |file: std::fs::Metadata| {
        file.is_dir() && file.uid() == rustix::process::geteuid().as_raw() && file.mode() & 0o077 == 0
    };
    list.symlink_metadata().is_ok_and(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_know_of_each_other_while_their_directories_last() {
        let dir = tempfile::tempdir().unwrap();
        let (list, one, two) =
            (dir.path().join("list"), dir.path().join("one/work"), dir.path().join("two/work"));
        for work in [&one, &two, &one] {
            std::fs::create_dir_all(work).unwrap();
            write(&list, work).unwrap();
        }
        assert_eq!(others(&list, &dir.path().join("one")), std::slice::from_ref(&two));
        std::fs::remove_dir_all(&two).unwrap();
        assert_eq!(others(&list, &dir.path().join("one")), Vec::<PathBuf>::new());
        write(&list, &one).unwrap();
        assert_eq!(list.read_dir().unwrap().count(), 1, "what is gone is forgotten");
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            write(&list, &one).is_err() && others(&list, dir.path()).is_empty(),
            "anybody could write there"
        );
    }
}
