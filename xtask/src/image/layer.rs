//! A layer of an image: files, sorted and without times, so that equal content makes equal bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The files of a layer by their paths, which are relative to the root.
#[derive(Default)]
pub(super) struct Layer {
    entries: BTreeMap<PathBuf, Entry>,
}

/// One file.
pub(super) struct Entry {
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) content: Content,
}

/// What a file is.
pub(super) enum Content {
    Directory,
    /// A copy of a file of this machine.
    File(PathBuf),
    Text(String),
    Link(PathBuf),
    /// Another name of an earlier file of the layer.
    HardLink(PathBuf),
}

impl Entry {
    pub(super) fn directory(mode: u32, owner: u32) -> Self {
        Self { mode, user: owner, group: owner, content: Content::Directory }
    }

    pub(super) fn program(path: PathBuf) -> Self {
        Self { mode: 0o755, user: 0, group: 0, content: Content::File(path) }
    }

    pub(super) fn file(path: PathBuf) -> Self {
        Self { mode: 0o644, user: 0, group: 0, content: Content::File(path) }
    }

    pub(super) fn text(text: String) -> Self {
        Self { mode: 0o644, user: 0, group: 0, content: Content::Text(text) }
    }

    pub(super) fn link(target: &str) -> Self {
        Self { mode: 0o777, user: 0, group: 0, content: Content::Link(target.into()) }
    }
}

/// A compressed layer on disk.
pub(super) struct Written {
    /// The digest of the compressed bytes, by which the layer is found.
    pub(super) digest: String,
    /// The digest of the bytes before compression, which the configuration of the image lists.
    pub(super) diff: String,
    pub(super) size: u64,
}

impl Layer {
    /// Adds a file, and the directories above it that the layer does not have yet.
    pub(super) fn add(&mut self, path: impl Into<PathBuf>, entry: Entry) {
        let path = path.into();
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            self.entries.entry(above.to_owned()).or_insert_with(|| Entry::directory(0o755, 0));
        }
        self.entries.insert(path, entry);
    }

    /// Writes the layer as a compressed archive.
    pub(super) fn write(&self, path: &Path) -> Result<Written> {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let compressed = Hashing::new(io::BufWriter::new(file));
        let gzip = GzBuilder::new().mtime(0).write(compressed, Compression::new(6));
        let mut archive = Builder::new(Hashing::new(gzip));
        for (path, entry) in &self.entries {
            append(&mut archive, path, entry).with_context(|| format!("adding /{}", path.display()))?;
        }
        let (gzip, diff, _) = archive.into_inner()?.finish();
        let (mut file, digest, size) = gzip.finish()?.finish();
        file.flush().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Written { digest, diff, size })
    }
}

fn append(archive: &mut Builder<impl Write>, path: &Path, entry: &Entry) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.user.into());
    header.set_gid(entry.group.into());
    header.set_mtime(0);
    header.set_size(0);
    match &entry.content {
        Content::Directory => {
            header.set_entry_type(EntryType::Directory);
            archive.append_data(&mut header, path, io::empty())?;
        }
        Content::File(source) => {
            let file = File::open(source).with_context(|| format!("cannot read {}", source.display()))?;
            header.set_entry_type(EntryType::Regular);
            header.set_size(file.metadata()?.len());
            archive.append_data(&mut header, path, file)?;
        }
        Content::Text(text) => {
            header.set_entry_type(EntryType::Regular);
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, path, text.as_bytes())?;
        }
        Content::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            archive.append_link(&mut header, path, target)?;
        }
        Content::HardLink(first) => {
            header.set_entry_type(EntryType::Link);
            archive.append_link(&mut header, path, first)?;
        }
    }
    Ok(())
}

/// Hashes and counts what is written through it.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W> Hashing<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    fn finish(self) -> (W, String, u64) {
        (self.inner, format!("sha256:{}", hex::encode(self.hash.finalize())), self.size)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
