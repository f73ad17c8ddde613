//! Where lines go: a standard stream, or a file that is rotated at 5 MB and keeps some backups.

use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::terminal::output;

/// Size at which a file is rotated.
const MAX_FILE_BYTES: u64 = 5_000_000;
/// Backups of a file that nobody chose a number for.
const DEFAULT_BACKUPS: usize = 1;

pub(super) enum Sink {
    /// Standard output; whether it is a terminal with colours, if it is one.
    Out(Option<bool>),
    /// Standard error, in the same way.
    Err(Option<bool>),
    File {
        path: PathBuf,
        backups: usize,
        /// Opens the file, and its successor when it is rotated.
        opener: Opener,
        open: Mutex<Open>,
    },
}

type Opener = fn(&Path) -> io::Result<File>;

pub(super) struct Open {
    file: File,
    written: u64,
}

impl Sink {
    pub(super) fn open(path: &str) -> io::Result<Self> {
        Ok(match path {
            "/dev/stdout" => Self::Out(output::terminal(&io::stdout())),
            "/dev/stderr" => Self::Err(output::terminal(&io::stderr())),
            path => Self::file(Path::new(path), DEFAULT_BACKUPS, append)?,
        })
    }

    /// A file with a number of backups. Where others can write, it must be an own one.
    pub(super) fn open_file(path: &Path, backups: usize) -> io::Result<Self> {
        Self::file(path, backups, coder_agent::append_file)
    }

    fn file(path: &Path, backups: usize, opener: Opener) -> io::Result<Self> {
        Ok(Self::File { path: path.to_owned(), backups, opener, open: Mutex::new(Open::new(opener(path)?)?) })
    }

    /// Whether it is a terminal, and then whether it shows colours.
    pub(super) const fn terminal(&self) -> Option<bool> {
        match self {
            Self::Out(terminal) | Self::Err(terminal) => *terminal,
            Self::File { .. } => None,
        }
    }

    /// Writes one line. A log that cannot be written must not stop the work, so errors are dropped.
    pub(super) fn line(&self, text: &str) {
        let bytes = format!("{text}\n");
        drop(match self {
            Self::Out(_) => io::stdout().lock().write_all(bytes.as_bytes()),
            Self::Err(_) => io::stderr().lock().write_all(bytes.as_bytes()),
            Self::File { path, backups, opener, open } => {
                let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                open.write(path, *backups, *opener, bytes.as_bytes())
            }
        });
    }
}

impl Open {
    fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        // A device such as /dev/null has no size to watch.
        let written = if metadata.is_file() { metadata.len() } else { 0 };
        Ok(Self { file, written })
    }

    fn write(&mut self, path: &Path, backups: usize, opener: Opener, bytes: &[u8]) -> io::Result<()> {
        if self.written + bytes.len() as u64 > MAX_FILE_BYTES && self.written > 0 {
            let backup = |number: usize| {
                let mut name = path.as_os_str().to_owned();
                name.push(format!(".{number}"));
                name
            };
            for number in (1..backups).rev() {
                match rename(backup(number), backup(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            rename(path, backup(1))?;
            *self = Self::new(opener(path)?)?;
        }
        self.written += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_rotated_with_one_backup() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let sink = Sink::open(path.to_str().unwrap()).unwrap();
        let line = "x".repeat(999_999);
        for _ in 0..12 {
            sink.line(&line);
        }
        let size = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().len();
        assert_eq!(size("log"), 2_000_000);
        assert_eq!(size("log.1"), 5_000_000);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_oldest_of_several_backups_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let sink = Sink::open_file(&path, 3).unwrap();
        let zeros = "0".repeat(999_997);
        for number in 0..25 {
            sink.line(&format!("{zeros}{number:02}"));
        }
        let first = |name: &str| {
            let text = std::fs::read_to_string(directory.path().join(name)).unwrap();
            text.lines().next().unwrap().trim_start_matches('0').to_owned()
        };
        assert_eq!(["log", "log.1", "log.2", "log.3"].map(first), ["20", "15", "10", "5"]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4);
    }
}
