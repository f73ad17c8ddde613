//! Reads a root module's files from an uploaded archive, in memory and within bounds.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use crate::files::SourceName;

/// Entries an archive may hold.
const MAX_ENTRIES: usize = 10_000;
/// Largest file of the root module that is read.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Largest zip that is read; servers keep tars.
const MAX_ZIP_BYTES: u64 = 16 << 20;
/// All files of the root module together, and all others together.
const MAX_TOTAL_BYTES: usize = 8 << 20;

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Neither tar nor zip (scheduling-and-auth TAG-16).
    #[error("unsupported file type {0:?}: upload a tar or a zip")]
    MediaType(String),
    /// The archive is not of its media type.
    #[error("the archive cannot be read: {0}")]
    Malformed(String),
    /// More entries than allowed.
    #[error("the archive has more than {0} entries")]
    TooManyEntries(usize),
    /// A file of the root module is too large, or all of them together are.
    #[error("{0} is too large: a Terraform file may have 1 MiB, and all of them together 8 MiB")]
    TooLarge(String),
}

/// The files Terraform or OpenTofu reads in the archive's top directory, by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The content of an archive.
#[derive(Default)]
pub(crate) struct Contents {
    /// The root module.
    pub(crate) files: Files,
    /// All other files, by their paths; without content when they are too large, alone or together.
    pub(crate) others: BTreeMap<String, Option<Vec<u8>>>,
}

/// Reads a tar as a stream, or a zip.
pub(crate) fn read(mut bytes: impl Read, mimetype: &str) -> Result<Contents, ReadError> {
    let media_type = mimetype.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "application/x-tar" | "application/tar" => tar(bytes),
        "application/zip" | "application/x-zip-compressed" => {
            // A zip has its directory at the end.
            let mut whole = Vec::new();
            let read = bytes.by_ref().take(MAX_ZIP_BYTES + 1).read_to_end(&mut whole);
            read.map_err(|error| ReadError::Malformed(error.to_string()))?;
            if whole.len() as u64 > MAX_ZIP_BYTES {
                return Err(ReadError::Malformed("the zip is too long; upload a tar".to_owned()));
            }
            zip(&whole)
        }
        _ => Err(ReadError::MediaType(mimetype.to_owned())),
    }
}

fn tar(bytes: impl Read) -> Result<Contents, ReadError> {
    let malformed = |error: std::io::Error| ReadError::Malformed(error.to_string());
    let mut files = Collected::default();
    let mut archive = tar::Archive::new(bytes);
    for (count, entry) in archive.entries().map_err(malformed)?.enumerate() {
        let mut entry = entry.map_err(malformed)?;
        if count >= MAX_ENTRIES {
            return Err(ReadError::TooManyEntries(MAX_ENTRIES));
        }
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type().is_file() {
            files.take(&path, &mut entry)?;
        }
    }
    Ok(files.contents)
}

fn zip(bytes: &[u8]) -> Result<Contents, ReadError> {
    let malformed = |error: zip::result::ZipError| ReadError::Malformed(error.to_string());
    let mut files = Collected::default();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(malformed)?;
    if archive.len() > MAX_ENTRIES {
        return Err(ReadError::TooManyEntries(MAX_ENTRIES));
    }
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(malformed)?;
        if entry.is_file() {
            let path = entry.name().to_owned();
            files.take(&path, &mut entry)?;
        }
    }
    Ok(files.contents)
}

/// Reads files that are not in an archive.
pub(crate) fn from_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Contents, ReadError> {
    let mut collected = Collected::default();
    for (name, content) in files {
        collected.take(&name, &mut content.as_slice())?;
    }
    Ok(collected.contents)
}

#[derive(Default)]
struct Collected {
    contents: Contents,
    total: usize,
    others_total: usize,
}

impl Collected {
    /// Reads an entry. Its declared size is not trusted.
    fn take(&mut self, path: &str, content: &mut dyn Read) -> Result<(), ReadError> {
        let name = path.strip_prefix("./").unwrap_or(path);
        let mut read = |most: usize| {
            let mut bytes = Vec::new();
            let read = content.take(most as u64 + 1).read_to_end(&mut bytes);
            read.map(|_| bytes).map_err(|error| ReadError::Malformed(error.to_string()))
        };
        if name.contains(['/', '\\']) || !(SourceName::parse(name).is_some() || is_values(name)) {
            let most = MAX_FILE_BYTES.min(MAX_TOTAL_BYTES - self.others_total);
            let bytes = read(most)?;
            let kept = (bytes.len() <= most).then_some(bytes);
            self.others_total += kept.as_ref().map_or(0, Vec::len);
            self.contents.others.insert(name.to_owned(), kept);
            return Ok(());
        }
        let bytes = read(MAX_FILE_BYTES)?;
        self.total += bytes.len();
        if bytes.len() > MAX_FILE_BYTES || self.total > MAX_TOTAL_BYTES {
            return Err(ReadError::TooLarge(name.to_owned()));
        }
        self.contents.files.insert(name.to_owned(), bytes);
        Ok(())
    }
}

/// Whether Terraform loads a file of this name by itself as values of variables.
pub(crate) fn is_values(name: &str) -> bool {
    matches!(name, "terraform.tfvars" | "terraform.tfvars.json")
        || name.ends_with(".auto.tfvars")
        || name.ends_with(".auto.tfvars.json")
}
