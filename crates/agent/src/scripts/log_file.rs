//! The log file of a script: bounded, and never a reason for the script to fail.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::append_file;

/// Bytes of one file. A script that prints without end must not fill the disk.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The file and how much was written.
#[derive(Debug)]
pub(super) struct LogFile {
    file: Option<File>,
    written: u64,
}

impl LogFile {
    /// Opens a file for appending. Where it cannot be written, as on a read-only root, the script runs without.
    pub(super) fn open(path: &Path) -> (Self, Option<std::io::Error>) {
        let opened = (|| {
            if let Some(folder) = path.parent() {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let file = append_file(path)?;
            let written = file.metadata()?.len();
            Ok((file, written))
        })();
        match opened {
            Ok((file, written)) => (Self { file: Some(file), written }, None),
            Err(error) => (Self { file: None, written: 0 }, Some(error)),
        }
    }

    /// Appends a line. Blocks like every write to a file.
    pub(super) fn line(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        self.written += bytes.len() as u64 + 1;
        let result = if self.written > MAX_FILE_BYTES {
            let notice = format!("the log has {} MiB; further output is dropped\n", MAX_FILE_BYTES >> 20);
            let result = file.write_all(notice.as_bytes());
            self.file = None;
            result
        } else {
            file.write_all(&[bytes, b"\n"].concat())
        };
        if let Err(error) = result {
            tracing::warn!(%error, "the log file of a script cannot be written any further");
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_stops_growing_at_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/log");
        let (mut log, error) = LogFile::open(&path);
        assert!(error.is_none());
        log.line(b"first");
        log.written = MAX_FILE_BYTES - 2;
        for _ in 0..3 {
            log.line(b"too much");
        }
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "first\nthe log has 64 MiB; further output is dropped\n"
        );
    }

    #[test]
    fn file_that_cannot_be_written_is_no_obstacle() {
        let (mut log, error) = LogFile::open(Path::new("/proc/nothing/here"));
        assert!(error.is_some());
        log.line(b"lost");
    }
}
