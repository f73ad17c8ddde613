//! Opens log files safely. In a directory that others can write to, such as /tmp, another user may have made a link or a file of that
//! name before.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for appending, or makes it for this user alone. In a directory that others can write to it must be a regular file of this
/// user: not a link, and not a pipe.
///
/// # Errors
/// The file cannot be opened, or another user may have put it there.
pub fn append_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if std::fs::metadata(directory)?.mode() & 0o022 == 0 {
        return options.open(path);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() != 1 {
        let message = format!("another user may have made {}: remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn where_others_write_only_an_own_file_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let [target, link, hard, pipe] =
            ["target", "link", "hard", "pipe"].map(|name| directory.path().join(name));
        std::fs::write(&target, "").unwrap();
        symlink(&target, &link).unwrap();
        assert!(append_file(&link).is_ok(), "nobody else can have made it");
        set_mode(0o1777);
        assert!(append_file(&target).is_ok());
        assert!(append_file(&link).is_err());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(append_file(&pipe).is_err());
        std::fs::hard_link(&target, &hard).unwrap();
        assert!(append_file(&hard).is_err());
        let new = directory.path().join("new");
        assert_eq!(append_file(&new).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
}
