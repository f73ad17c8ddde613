//! Compressed copies of the programs that workspaces download. A copy is made when a client first asks for one, and lies in a temporary
//! file without a name, so it needs no memory and nothing is left behind.

use std::collections::HashMap;
use std::fs::File;
use std::io::Seek as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{HeaderMap, header};
use tokio::sync::Mutex;

use super::binaries::Version;

/// The newest version of each file that was asked for; without a copy where none could be made.
type Copies = HashMap<PathBuf, (Version, Option<CompressedFile>)>;

/// What is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The compressed copy of one version of a file.
#[derive(Clone)]
pub(super) struct CompressedFile {
    file: Arc<File>,
    pub(super) length: u64,
}

impl CompressedFile {
    pub(super) fn body(self) -> Body {
        Body::from_stream(stream::try_unfold((self, 0), async |(copy, offset)| {
            let file = copy.file.clone();
            let read = tokio::task::spawn_blocking(move || chunk(&file, offset)).await;
            let chunk = read.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))?;
            let next = offset + chunk.len() as u64;
            Ok::<_, std::io::Error>((!chunk.is_empty()).then_some((chunk, (copy, next))))
        }))
    }
}

/// What stands at an offset; empty at the end.
fn chunk(file: &File, offset: u64) -> std::io::Result<Bytes> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let count = file.read_at(&mut chunk, offset)?;
    chunk.truncate(count);
    Ok(chunk.into())
}

/// The compressed copy of a file; `None` if none can be made, which is logged. A file is compressed once for each of its versions,
/// also when those who ask go away meanwhile.
pub(super) async fn copy(path: PathBuf, version: Version) -> Option<CompressedFile> {
    static COPIES: LazyLock<Mutex<Copies>> = LazyLock::new(Mutex::default);
    let made = tokio::spawn(async move {
        let mut copies = COPIES.lock().await;
        if let Some((known, copy)) = copies.get(&path)
            && *known == version
        {
            return copy.clone();
        }
        let from = path.clone();
        let made = tokio::task::spawn_blocking(move || compress(&from)).await;
        let copy = match made.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(copy) => Some(copy),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a program cannot be compressed, so it is sent as it is: check the temporary directory");
                None
            }
        };
        copies.insert(path, (version, copy.clone()));
        copy
    });
    made.await.ok().flatten()
}

fn compress(path: &Path) -> std::io::Result<CompressedFile> {
    let mut encoder = GzEncoder::new(tempfile::tempfile()?, Compression::default());
    std::io::copy(&mut File::open(path)?, &mut encoder)?;
    let mut file = encoder.finish()?;
    let length = file.stream_position()?;
    Ok(CompressedFile { file: Arc::new(file), length })
}

/// Whether a client takes gzip (RFC 9110, 12.5.3).
pub(super) fn accepted(headers: &HeaderMap) -> bool {
    let mut any = false;
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for item in value.to_str().unwrap_or_default().split(',') {
            let (coding, weight) = item.split_once(';').unwrap_or((item, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            let taken = weight.is_ok_and(|weight| weight > 0.0);
            match coding.trim().to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => return taken,
                "*" => any = taken,
                _ => {}
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_whether_they_take_gzip() {
        let says = |value: &str| {
            let headers = [(header::ACCEPT_ENCODING, value.parse().unwrap())];
            accepted(&headers.into_iter().collect())
        };
        for value in ["gzip", "deflate, gzip, br, zstd", "GZIP;q=0.1", "br;q=1.0, gzip; q=0.8", "*", "x-gzip"]
        {
            assert!(says(value), "{value}");
        }
        for value in ["", "identity", "gzip;q=0", "*, gzip;q=0", "*;q=0", "gzip;q=x", "gzipped", "br"] {
            assert!(!says(value), "{value}");
        }
        assert!(!accepted(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_copy_is_made_once_for_each_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let version = |length| Version { length, modified: None };
        std::fs::write(&path, vec![7; 300 << 10]).unwrap();
        let first = copy(path.clone(), version(1)).await.unwrap();
        std::fs::write(&path, "other").unwrap();
        let again = copy(path.clone(), version(1)).await.unwrap();
        assert!(Arc::ptr_eq(&first.file, &again.file));
        let other = copy(path, version(2)).await.unwrap();
        assert_ne!(first.length, other.length);
        assert!(copy(folder.path().join("none"), version(1)).await.is_none());
    }
}
