//! Files in a job's directory that the daemon reads and writes after programs of the job ran there: it follows
//! no link and opens no pipe or device.
//!
//! A job can change everything below its directory, but cannot rename the directory itself (docs/isolation.md).
//! So each path component below it is opened without following links.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, open, openat, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

/// A file in a job's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobFile {
    root: PathBuf,
    relative: PathBuf,
}

impl JobFile {
    /// The file at `relative` below the job's directory `root`.
    pub(crate) fn new(root: &Path, relative: impl Into<PathBuf>) -> Self {
        Self { root: root.to_owned(), relative: relative.into() }
    }

    /// The path, for programs and messages. The daemon itself never opens the file by it.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.join(&self.relative)
    }

    /// The length in bytes of a regular file.
    pub(crate) fn length(&self) -> Result<u64> {
        Ok(self.open()?.metadata()?.len())
    }

    /// The content. Blocks.
    ///
    /// # Errors
    /// The file is missing, longer than `max_bytes`, not a regular file, or reached through a link.
    pub(crate) fn read(&self, max_bytes: u64) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open()?.take(max_bytes + 1).read_to_end(&mut content)?;
        if content.len() as u64 > max_bytes {
            let message = format!("{} is longer than {max_bytes} bytes", self.relative.display());
            return Err(Error::new(ErrorKind::FileTooLarge, message));
        }
        Ok(content)
    }

    /// Atomically replaces whatever is there by a new file with mode 0600. Blocks.
    pub(crate) fn write(&self, content: &[u8]) -> Result<()> {
        let (dir, name) = self.parent()?;
        let mut new = name.as_os_str().to_owned();
        new.push(".new");
        match unlinkat(&dir, Path::new(&new), AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => {}
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&dir, Path::new(&new), flags, Mode::RUSR | Mode::WUSR)?);
        let written = file.write_all(content);
        let placed = written.and_then(|()| Ok(renameat(&dir, Path::new(&new), &dir, name)?));
        if placed.is_err() {
            // Nobody needs a partial file.
            let _ = unlinkat(&dir, Path::new(&new), AtFlags::empty());
        }
        placed
    }

    /// Renames; a link stays a link. Blocks.
    pub(crate) fn move_to(&self, to: &Self) -> Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.parent()?, to.parent()?);
        Ok(renameat(&from_dir, from, &to_dir, to)?)
    }

    /// Replaces what is there by a link. Blocks.
    pub(crate) fn link_to(&self, target: &Path) -> Result<()> {
        self.remove()?;
        let (dir, name) = self.parent()?;
        Ok(symlinkat(target, &dir, name)?)
    }

    /// Removes what is there, if anything; a link itself is removed. Blocks.
    pub(crate) fn remove(&self) -> Result<()> {
        let (dir, name) = match self.parent() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        match unlinkat(&dir, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self) -> Result<File> {
        let (dir, name) = self.parent()?;
        // Opening a named pipe would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&dir, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            let message = format!("{} is not a file", self.relative.display());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(file)
    }

    fn parent(&self) -> Result<(OwnedFd, &Path)> {
        let name = self.relative.file_name().ok_or(ErrorKind::InvalidInput)?;
        let dir = self.relative.parent().ok_or(ErrorKind::InvalidInput)?;
        Ok((open_dir(&self.root, dir)?, Path::new(name)))
    }
}

/// Whether every component from the job's directory `root` down to `relative` is a directory and not a link.
/// Blocks.
pub(crate) fn is_plain_dir(root: &Path, relative: &Path) -> bool {
    open_dir(root, relative).is_ok()
}

fn open_dir(root: &Path, relative: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = open(root, flags, Mode::empty())?;
    for component in relative.components() {
        match component {
            Component::Normal(name) => dir = openat(&dir, name, flags, Mode::empty())?,
            Component::CurDir => {}
            _ => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_link_or_a_pipe_in_a_jobs_directory_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (job, other) = (dir.path().join("job"), dir.path().join("other"));
        for path in [&job.join("template"), &other] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(other.join("state"), "SECRET").unwrap();
        let file = JobFile::new(&job, "template/state");
        assert_eq!(file.read(10).unwrap_err().kind(), ErrorKind::NotFound);
        file.write(b"mine").unwrap();
        assert_eq!(file.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!((file.read(4).unwrap(), file.length().unwrap()), (b"mine".to_vec(), 4));
        assert_eq!(file.read(3).unwrap_err().kind(), ErrorKind::FileTooLarge);

        std::fs::remove_file(file.path()).unwrap();
        symlink(other.join("state"), file.path()).unwrap();
        assert!(file.read(10).is_err() && file.length().is_err());
        file.write(b"mine").unwrap();
        assert_eq!(std::fs::read_to_string(other.join("state")).unwrap(), "SECRET");
        assert_eq!(file.read(10).unwrap(), b"mine");

        std::fs::remove_file(file.path()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(file.path()).status().unwrap();
        assert!(made.success() && file.read(10).is_err());

        std::fs::remove_dir_all(job.join("template")).unwrap();
        symlink(&other, job.join("template")).unwrap();
        assert!(file.read(10).is_err() && file.write(b"mine").is_err());
        assert!(!is_plain_dir(&job, Path::new("template")) && is_plain_dir(&job, Path::new("")));
        assert_eq!(std::fs::read_to_string(other.join("state")).unwrap(), "SECRET");
        assert!(JobFile::new(&job, "../other/state").read(10).is_err());
    }
}
