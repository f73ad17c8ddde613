//! The sessions of the built-in daemon of a cache directory, so that the next server process on this machine finds the
//! jobs of a killed one. Only hashes are stored. The process that holds the lock knows that the other ones have ended.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use coder_domain::key::Sha256Digest;

const FILE: &str = "sessions";
/// A larger file is not read.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The directory's sessions, locked for this process.
#[derive(Debug)]
pub(super) struct Sessions {
    file: File,
}

impl Sessions {
    /// Records a new session. Returns the earlier ones, whose processes have ended; none while another process uses the
    /// directory. Blocks for a moment.
    pub(super) fn take(dir: &Path, own: Sha256Digest) -> std::io::Result<Option<(Self, Vec<Sha256Digest>)>> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(dir.join(FILE))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let mut text = String::new();
        // An incomplete last line is not a hash.
        if Read::by_ref(&mut file).take(MAX_FILE_BYTES).read_to_string(&mut text).is_err() {
            text.clear();
        }
        let former: Vec<_> = text.lines().filter_map(read).collect();
        file.seek(std::io::SeekFrom::End(0))?;
        file.write_all(format!("\n{}\n", write(own)).as_bytes())?;
        Ok(Some((Self { file }, former)))
    }

    /// The jobs of all sessions but this one have ended.
    pub(super) fn forget_others(&mut self, own: Sha256Digest) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(format!("{}\n", write(own)).as_bytes())
    }
}

fn write(hash: Sha256Digest) -> String {
    hash.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(line: &str) -> Option<Sha256Digest> {
    let mut hash = [0; 32];
    if line.len() != 64 || !line.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(line.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(Sha256Digest(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_finds_the_sessions_of_those_that_were_killed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("provisioner-0");
        let sessions = [Sha256Digest([1; 32]), Sha256Digest([0xab; 32]), Sha256Digest([3; 32])];
        let (first, former) = Sessions::take(&dir, sessions[0]).unwrap().unwrap();
        assert!(former.is_empty());
        assert!(Sessions::take(&dir, sessions[1]).unwrap().is_none(), "the first one lives");
        drop(first);
        let (second, former) = Sessions::take(&dir, sessions[1]).unwrap().unwrap();
        assert_eq!(former, sessions[..1]);
        drop(second);
        let mut torn = OpenOptions::new().append(true).open(dir.join(FILE)).unwrap();
        torn.write_all(b"0123").unwrap();
        let (mut third, former) = Sessions::take(&dir, sessions[2]).unwrap().unwrap();
        assert_eq!(former, sessions[..2]);
        third.forget_others(sessions[2]).unwrap();
        drop(third);
        assert_eq!(Sessions::take(&dir, sessions[0]).unwrap().unwrap().1, sessions[2..]);
    }
}
