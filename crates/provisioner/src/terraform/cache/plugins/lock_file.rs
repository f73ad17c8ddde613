//! Which packages a template's lock file allows. Terraform rejects a cached provider whose hash is not in the
//! lock file, even if that only lists another platform: a lock file made on one platform names only archive
//! hashes of the others, and the cache contains unpacked packages. Such a provider is downloaded, as without a
//! cache.

use std::collections::HashMap;
use std::io::Result;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use super::{FileStamp, MAX_FILES};

/// Hashes by `host/namespace/type/version`.
#[derive(Debug, Default)]
pub(super) struct LockedHashes(HashMap<String, Vec<String>>);

impl LockedHashes {
    /// Parses a lock file as Terraform writes it; other notations are not found.
    pub(super) fn read(text: &str) -> Self {
        let mut locked = Self::default();
        let (mut address, mut version) = ("", "");
        for line in text.lines().map(str::trim) {
            let mut quoted = line.split('"').skip(1).step_by(2);
            if line.starts_with("provider ") {
                (address, version) = (quoted.next().unwrap_or_default(), "");
            } else if line.starts_with("version ") {
                version = quoted.next().unwrap_or_default();
            } else {
                let hashes = quoted.filter(|text| text.starts_with("h1:") || text.starts_with("zh:"));
                let of_package = locked.0.entry(format!("{address}/{version}")).or_default();
                of_package.extend(hashes.map(str::to_owned));
            }
        }
        locked
    }

    /// Whether Terraform accepts this package from its cache; `below` is
    /// `host/namespace/type/version/platform`.
    pub(super) fn allows(&self, package: &Path, below: &Path) -> bool {
        let name = below.parent().map(|version| version.to_string_lossy().into_owned()).unwrap_or_default();
        match self.0.get(&name) {
            Some(hashes) if !hashes.is_empty() => hash(package).is_ok_and(|hash| hashes.contains(&hash)),
            _ => true,
        }
    }
}

/// The hash of an unpacked provider in the notation of lock files: a hash over the list of file hashes.
pub(super) fn hash(package: &Path) -> Result<String> {
    let mut files = Vec::new();
    FileStamp::below(package, MAX_FILES, &mut files)?;
    let mut lines = Vec::new();
    for file in &files {
        let name = file.path().strip_prefix(package).map_err(std::io::Error::other)?;
        let mut sum = Sha256::new();
        std::io::copy(&mut std::fs::File::open(file.path())?, &mut sum)?;
        lines.push((name.to_string_lossy().into_owned(), hex::encode(sum.finalize())));
    }
    lines.sort();
    let list: String = lines.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    Ok(format!("h1:{}", BASE64_STANDARD.encode(Sha256::digest(list))))
}
