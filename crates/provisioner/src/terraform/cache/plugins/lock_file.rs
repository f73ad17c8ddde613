//! Which packages a template's lock file allows. Terraform refuses a provider from its cache whose hash is not there, although
//! it may only be that of another platform: locks made on one platform name the archives of the others alone, and what is
//! unpacked is no archive. Such a provider is downloaded, as it would be without a cache.

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
    /// Reads a lock file as Terraform writes it. What is written in another way is not found.
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

    /// Whether Terraform takes this package from its cache; `below` is `host/namespace/type/version/platform`.
    pub(super) fn allows(&self, package: &Path, below: &Path) -> bool {
        let name = below.parent().map(|version| version.to_string_lossy().into_owned()).unwrap_or_default();
        match self.0.get(&name) {
            Some(hashes) if !hashes.is_empty() => hash(package).is_ok_and(|hash| hashes.contains(&hash)),
            _ => true,
        }
    }
}

/// The hash of an unpacked provider, as lock files have it: of the list of its files with their hashes.
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
