//! One server for each data directory and each database file: a second one would hand out the same jobs again. The kernel holds the
//! locks and releases them when the process ends, even if it is killed. The lock file contains the process id of the holder. The
//! database itself is locked too, because the lock file may be moved away, and links may lead to the database from another directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// In the data directory.
const FILE: &str = "coder.lock";
/// A holder whose process id is unknown.
const UNKNOWN_HOLDER: &str = "another server";
/// Longest process id that is read.
const MAX_PID_BYTES: u64 = 32;
/// How long a lock of another process is tried again. A server that was killed while it started a program leaves a child that
/// has the lock until it runs this program.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// The locks, until it is dropped. The database must be closed before.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Empty where the file system has no locks.
    _directory: Option<File>,
    database: Option<File>,
}

impl Lock {
    /// Locks an existing data directory, with the database if there is one.
    pub(crate) fn take(directory: &Path) -> anyhow::Result<Self> {
        let until = Instant::now() + MAX_WAIT;
        Self::take_with(directory, &mut || {
            std::thread::sleep(RETRY_DELAY);
            Instant::now() < until
        })
    }

    /// `again` waits a moment, and says whether a lock that another process has is tried again.
    fn take_with(directory: &Path, again: &mut dyn FnMut() -> bool) -> anyhow::Result<Self> {
        let lock_file = lock_directory(directory, again)?;
        let database = lock_database(directory, again)?;
        // Only now: until here the file may name the process that has the database.
        if let Some(mut file) = lock_file.as_ref() {
            let note = file.set_len(0).and_then(|()| file.rewind());
            note.and_then(|()| writeln!(file, "{}", std::process::id()))
                .with_context(|| format!("write {}", directory.join(FILE).display()))?;
        }
        Ok(Self { _directory: lock_file, database })
    }

    /// Locks a database that was created since.
    pub(crate) fn include_database(&mut self, directory: &Path) -> anyhow::Result<()> {
        if self.database.is_none() {
            self.database = lock_database(directory, &mut || false)?;
        }
        Ok(())
    }
}

/// Locks the file of the database itself. `None` where there is none, or no lock that leaves SQLite its own.
fn lock_database(directory: &Path, again: &mut dyn FnMut() -> bool) -> anyhow::Result<Option<File>> {
    let Ok(path) = directory.join(super::database::FILE).canonicalize() else { return Ok(None) };
    let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
    let system = rustix::fs::fstatfs(&file).with_context(|| format!("inspect {}", path.display()))?;
    // There the lock of a whole file also counts as a lock of each part, and SQLite locks parts.
    if system.f_type == rustix::fs::NFS_SUPER_MAGIC {
        return Ok(None);
    }
    match lock(&file, again) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let lock_file = path.parent().map(|parent| File::open(parent.join(FILE)));
            let holder = lock_file
                .and_then(Result::ok)
                .map_or_else(|| UNKNOWN_HOLDER.to_owned(), |file| holder(&file));
            bail!(
                "{holder} uses the database {}: stop it first, or choose another directory with --data-dir",
                path.display()
            )
        }
        Err(TryLockError::Error(error)) if has_no_locks(&error) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

/// Locks one directory. `None` where the file system has no locks.
fn lock_directory(directory: &Path, again: &mut dyn FnMut() -> bool) -> anyhow::Result<Option<File>> {
    let path = directory.join(FILE);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).with_context(|| format!("open {}", path.display()))?;
    match lock(&file, again) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "{} uses the data directory {}: stop it first, or choose another directory with --data-dir",
            holder(&file),
            directory.display()
        ),
        Err(TryLockError::Error(error)) if has_no_locks(&error) => {
            tracing::warn!(
                target: "coderd",
                "the file system of {} has no locks ({error}): make sure that no second server uses this directory, or keep it on a local disk",
                directory.display()
            );
            return Ok(None);
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("lock {}", path.display()));
        }
    }
    Ok(Some(file))
}

fn lock(file: &File, again: &mut dyn FnMut() -> bool) -> Result<(), TryLockError> {
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if again() => {}
            result => return result,
        }
    }
}

/// Describes the process that has the lock.
fn holder(file: &File) -> String {
    let mut text = String::new();
    // Only a hint for people. The lock itself decides.
    let read = file.take(MAX_PID_BYTES).read_to_string(&mut text);
    let pid = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
    pid.map_or_else(|| UNKNOWN_HOLDER.to_owned(), |pid| format!("another server, process {pid},"))
}

/// The errors of network file systems without a lock service.
fn has_no_locks(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(libc::ENOLCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_with_the_process_id_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let first = Lock::take(directory.path()).unwrap();
        let refused = Lock::take(directory.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {},", std::process::id())), "{refused}");
        assert!(refused.contains(&directory.path().display().to_string()), "{refused}");
        drop(first);
        // The content of the file is not the lock.
        std::fs::write(directory.path().join(FILE), "not a process id, and longer than any that there is\n")
            .unwrap();
        let again = Lock::take(directory.path()).unwrap();
        let text = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
        drop(again);
    }

    #[test]
    fn a_lock_that_is_released_soon_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = Some(Lock::take(directory.path()).unwrap());
        let mut attempts = 0;
        let second = Lock::take_with(directory.path(), &mut || {
            attempts += 1;
            if attempts == 3 {
                first = None;
            }
            true
        });
        drop(second.unwrap());
        assert_eq!(attempts, 3);
    }

    #[test]
    fn a_linked_database_is_locked_where_it_is() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let database = crate::cmd::server::database::FILE;
        std::fs::write(directory.path().join(database), "").unwrap();
        std::os::unix::fs::symlink(directory.path().join(database), other.path().join(database)).unwrap();
        let first = Lock::take(directory.path()).unwrap();
        let refused = Lock::take(other.path()).unwrap_err().to_string();
        assert!(refused.contains(&directory.path().display().to_string()), "{refused}");
        drop(first);
        let _linked = Lock::take(other.path()).unwrap();
        assert!(Lock::take(directory.path()).is_err());
    }

    #[test]
    fn a_database_stays_locked_when_the_lock_file_is_moved_away() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = Lock::take(directory.path()).unwrap();
        std::fs::write(directory.path().join(crate::cmd::server::database::FILE), "").unwrap();
        first.include_database(directory.path()).unwrap();
        std::fs::rename(directory.path().join(FILE), directory.path().join("moved")).unwrap();
        let refused = Lock::take(directory.path()).unwrap_err().to_string();
        // The new lock file does not name the process that has the database, and must not name this one.
        assert!(refused.starts_with("another server uses the database"), "{refused}");
        drop(first);
        Lock::take(directory.path()).unwrap();
    }

    #[test]
    fn file_systems_without_locks_are_told_from_failures() {
        for (code, expected) in
            [(libc::ENOLCK, true), (libc::EOPNOTSUPP, true), (libc::ENOSYS, true), (libc::EIO, false)]
        {
            let error = std::io::Error::from_raw_os_error(code);
            assert_eq!(has_no_locks(&error), expected, "{error}");
        }
    }
}
