//! Where scripts have their directories. One of them is first in the search path of every command, so nobody else may write there: in
//! a directory for temporary files, others may have made it before.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The directory for all scripts, below the one that is set.
pub(crate) const DIRECTORY_NAME: &str = "coder-script-data";
/// In the place of one that others can write to, below the home of the user.
const IN_HOME: &str = ".cache";

/// `wanted`, or a directory in `home` when others can write to the root below it.
#[must_use]
pub fn script_data_dir(wanted: PathBuf, home: &Path) -> PathBuf {
    match make_private(&wanted.join(DIRECTORY_NAME)) {
        Ok(()) => wanted,
        // Nobody can write there. Scripts may do without.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => wanted,
        Err(error) => {
            let chosen = home.join(IN_HOME);
            tracing::warn!(
                dir = %wanted.join(DIRECTORY_NAME).display(), chosen = %chosen.display(), %error,
                "the directory for scripts is not used: set CODER_AGENT_SCRIPT_DATA_DIR"
            );
            chosen
        }
    }
}

/// Makes a directory that belongs to this user alone, unless it exists.
fn make_private(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let found = std::fs::metadata(parent)?;
        // Nobody renames what lies in a sticky directory of somebody else.
        let is_sticky = found.mode() & 0o1000 != 0;
        if !is_mine_or_roots(&found) || (found.mode() & 0o022 != 0 && !is_sticky) {
            return Err(denied(parent));
        }
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A link does not count as a directory.
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_dir() || !is_mine_or_roots(&found) || found.mode() & 0o022 != 0 {
        return Err(denied(path));
    }
    Ok(())
}

fn is_mine_or_roots(found: &std::fs::Metadata) -> bool {
    found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw()
}

fn denied(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("others can write to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn own_directory_is_used_and_made_for_this_user_alone() {
        let (wanted, home) = (tempfile::tempdir().unwrap(), Path::new("/home/x"));
        let root = wanted.path().join(DIRECTORY_NAME);
        for _ in 0..2 {
            assert_eq!(script_data_dir(wanted.path().to_owned(), home), wanted.path());
            assert_eq!(std::fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        }
        set_mode(wanted.path(), 0o1777);
        assert_eq!(script_data_dir(wanted.path().to_owned(), home), wanted.path(), "as /tmp is");
    }

    #[test]
    fn directory_that_others_can_write_to_is_not_used() {
        let (wanted, home) = (tempfile::tempdir().unwrap(), Path::new("/home/x"));
        let root = wanted.path().join(DIRECTORY_NAME);
        let chosen = || script_data_dir(wanted.path().to_owned(), home);
        std::fs::create_dir(&root).unwrap();
        for mode in [0o777, 0o770, 0o1777] {
            set_mode(&root, mode);
            assert_eq!(chosen(), home.join(".cache"), "{mode:o}");
        }
        set_mode(&root, 0o755);
        assert_eq!(chosen(), wanted.path());
        set_mode(wanted.path(), 0o777);
        assert_eq!(chosen(), home.join(".cache"), "the parent");
        set_mode(wanted.path(), 0o700);
        std::fs::remove_dir(&root).unwrap();
        symlink(home, &root).unwrap();
        assert_eq!(chosen(), home.join(".cache"), "a link");
    }
}
