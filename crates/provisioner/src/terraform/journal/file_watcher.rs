//! Watches a file for writes: by inotify on Linux, by polling elsewhere.

use std::io;
use std::path::Path;

pub(crate) struct FileWatcher(imp::Watcher);

impl FileWatcher {
    /// Starts watching. The file need not exist; its directory must.
    pub(crate) fn of(file: &Path) -> io::Result<Self> {
        imp::Watcher::of(file).map(Self)
    }

    /// Waits for the next change, possibly a spurious one. No change is lost between calls or when the future
    /// is dropped.
    pub(crate) async fn next(&mut self) {
        self.0.next().await;
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::ffi::OsString;
    use std::io;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    use tokio::net::unix::pipe::Receiver;

    const BUFFER_BYTES: usize = 4096;

    /// Bytes of an event before its name: watch, mask, cookie, and length of the name, four bytes each.
    const HEADER_BYTES: usize = 16;

    pub(super) struct Watcher {
        /// Not a pipe, but it can be read like one.
        events: Receiver,
        name: OsString,
    }

    impl Watcher {
        pub(super) fn of(file: &Path) -> io::Result<Self> {
            let (dir, name) = match (file.parent(), file.file_name()) {
                (Some(dir), Some(name)) => (dir, name.to_owned()),
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            };
            let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            add_watch(&events, dir, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO)?;
            Ok(Self { events: Receiver::from_owned_fd_unchecked(events)?, name })
        }

        pub(super) async fn next(&mut self) {
            let mut buffer = [0; BUFFER_BYTES];
            loop {
                if self.events.readable().await.is_err() {
                    // The runtime is shutting down.
                    return std::future::pending().await;
                }
                let mut changed = false;
                // Reads until empty, or the next wake-up would not come.
                while let Ok(read @ 1..) = self.events.try_read(&mut buffer) {
                    changed |= mentions(&buffer[..read], self.name.as_bytes());
                }
                if changed {
                    return;
                }
            }
        }
    }

    /// Whether an event names this file, or none, which means that events were lost.
    fn mentions(mut events: &[u8], name: &[u8]) -> bool {
        while let Some((header, rest)) = events.split_first_chunk::<HEADER_BYTES>() {
            let length = header[12..].try_into().map_or(0, u32::from_ne_bytes);
            let Some((found, rest)) = rest.split_at_checked(length as usize) else { return true };
            let found = found.split(|byte| *byte == 0).next().unwrap_or_default();
            if found.is_empty() || found == name {
                return true;
            }
            events = rest;
        }
        false
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    const POLL_INTERVAL: Duration = Duration::from_millis(100);

    pub(super) struct Watcher {
        file: PathBuf,
        seen: Option<(SystemTime, u64)>,
    }

    impl Watcher {
        pub(super) fn of(file: &Path) -> io::Result<Self> {
            Ok(Self { file: file.to_owned(), seen: look(file) })
        }

        pub(super) async fn next(&mut self) {
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                let now = look(&self.file);
                if now != self.seen {
                    self.seen = now;
                    return;
                }
            }
        }
    }

    fn look(file: &Path) -> Option<(SystemTime, u64)> {
        let metadata = file.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn writes_to_the_file_wake_and_writes_to_others_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        let mut changes = FileWatcher::of(&file).unwrap();
        let soon = Duration::from_secs(10);
        std::fs::write(&file, "a").unwrap();
        tokio::time::timeout(soon, changes.next()).await.unwrap();
        std::fs::write(dir.path().join("other"), "a").unwrap();
        std::fs::write(dir.path().join("new"), "b").unwrap();
        std::fs::rename(dir.path().join("new"), &file).unwrap();
        tokio::time::timeout(soon, changes.next()).await.unwrap();
    }
}
