//! Converting between zip and tar, with bounds on what an archive may expand to.

use std::io::{self, Cursor, Read, Write};

/// Entries an archive may hold.
const MAX_ENTRIES: usize = 10_000;
/// An archive that expands more than this is a bomb.
const MAX_RATIO: u64 = 200;
/// Archives below this size may have any ratio; empty files compress well.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// Why an archive was not converted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Not an archive of the kind it claims to be.
    #[error("the archive cannot be read: {0}")]
    Malformed(String),
    /// More entries than allowed.
    #[error("the archive holds more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    /// Content above the limit.
    #[error("the archive's content is larger than {0} bytes")]
    TooLarge(usize),
    /// Content far above the archive's own size.
    #[error("the archive expands more than {MAX_RATIO} times, which no template source does")]
    Bomb,
    /// An entry that would leave the directory it is unpacked into.
    #[error("the archive's entry {0:?} is outside of it")]
    Outside(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<zip::result::ZipError> for Error {
    fn from(error: zip::result::ZipError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Writes a zip's content as a tar of at most `limit` bytes. The same zip always gives the same tar.
pub(super) fn zip_to_tar(zip: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let mut archive = zip::ZipArchive::new(Cursor::new(zip))?;
    if archive.len() > MAX_ENTRIES {
        return Err(Error::TooManyEntries);
    }
    let mut budget = Budget::new(zip.len() as u64, limit);
    let mut tar = tar::Builder::new(Vec::new());
    tar.mode(tar::HeaderMode::Deterministic);
    for index in 0..archive.len() {
        let entry = archive.by_index(index)?;
        let path = entry.enclosed_name().ok_or_else(|| Error::Outside(entry.name().to_owned()))?;
        let directory = entry.is_dir();
        let mode = entry.unix_mode().unwrap_or(if directory { 0o755 } else { 0o644 }) & 0o777;
        if !directory && !entry.is_file() {
            return Err(Error::Malformed(format!("{:?} is neither a file nor a directory", entry.name())));
        }
        let modified = entry.last_modified();
        let mut content = Vec::new();
        if !directory {
            // One byte more than allowed tells "exactly at the limit" from "above".
            entry.take(budget.left() + 1).read_to_end(&mut content)?;
            budget.spend(content.len() as u64)?;
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(if directory { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_mtime(modified.map_or(0, |at| unix_seconds(&at)));
        tar.append_data(&mut header, path, content.as_slice())?;
    }
    Ok(tar.into_inner()?)
}

/// Writes a stored tar's content as a zip.
pub(super) fn tar_to_zip(tar: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let mut archive = tar::Archive::new(tar);
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut budget = Budget::new(tar.len() as u64, limit);
    for (index, entry) in archive.entries()?.enumerate() {
        if index >= MAX_ENTRIES {
            return Err(Error::TooManyEntries);
        }
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .unix_permissions(mode);
        match entry.header().entry_type() {
            tar::EntryType::Directory => zip.add_directory(name.trim_end_matches('/'), options)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let mut content = Vec::new();
                entry.take(budget.left() + 1).read_to_end(&mut content)?;
                budget.spend(content.len() as u64)?;
                zip.start_file(name, options)?;
                zip.write_all(&content)?;
            }
            // Links and devices have no place in a template; the daemon refuses them with the entry's name.
            _ => {}
        }
    }
    Ok(zip.finish()?.into_inner())
}

struct Budget {
    spent: u64,
    limit: usize,
    ratio_limit: u64,
}

impl Budget {
    fn new(archive_bytes: u64, limit: usize) -> Self {
        Self { spent: 0, limit, ratio_limit: archive_bytes.saturating_mul(MAX_RATIO).max(RATIO_FREE_BYTES) }
    }

    fn left(&self) -> u64 {
        (self.limit as u64).min(self.ratio_limit).saturating_sub(self.spent)
    }

    fn spend(&mut self, bytes: u64) -> Result<(), Error> {
        self.spent += bytes;
        if self.spent > self.limit as u64 {
            return Err(Error::TooLarge(self.limit));
        }
        if self.spent > self.ratio_limit { Err(Error::Bomb) } else { Ok(()) }
    }
}

fn unix_seconds(at: &zip::DateTime) -> u64 {
    let [year, month, day, hour, minute, second] = [
        at.year().cast_signed(),
        i16::from(at.month()),
        i16::from(at.day()),
        i16::from(at.hour()),
        i16::from(at.minute()),
        i16::from(at.second()),
    ];
    let small = |value: i16| i8::try_from(value).unwrap_or_default();
    jiff::civil::DateTime::new(year, small(month), small(day), small(hour), small(minute), small(second), 0)
        .ok()
        .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok())
        .map_or(0, |time| u64::try_from(time.timestamp().as_second()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zip_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in entries {
            let options =
                zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
            zip.start_file(*name, options).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn names(tar: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(tar);
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }

    #[test]
    fn zip_to_tar_and_back_keeps_the_content() {
        let zip = zip_of(&[("main.tf", b"resource"), ("modules/a/b.tf", b"x")]);
        let tar = zip_to_tar(&zip, 1 << 20).unwrap();
        assert_eq!(names(&tar), ["main.tf", "modules/a/b.tf"]);
        assert_eq!(tar, zip_to_tar(&zip, 1 << 20).unwrap(), "the same zip gives the same tar");
        let again = tar_to_zip(&tar, 1 << 20).unwrap();
        let mut archive = zip::ZipArchive::new(Cursor::new(again)).unwrap();
        let mut content = String::new();
        archive.by_name("main.tf").unwrap().read_to_string(&mut content).unwrap();
        assert_eq!(content, "resource");
    }

    #[test]
    fn bad_archives_are_refused() {
        assert!(matches!(zip_to_tar(b"not a zip", 10), Err(Error::Malformed(_))));
        assert!(matches!(zip_to_tar(&zip_of(&[("../x", b"")]), 10), Err(Error::Outside(_))));
        assert!(matches!(zip_to_tar(&zip_of(&[("/x", b"")]), 10), Ok(_) | Err(Error::Outside(_))));
        assert!(matches!(zip_to_tar(&zip_of(&[("x", &[1; 11])]), 10), Err(Error::TooLarge(10))));
        let zeros = vec![0; 8 << 20];
        assert!(matches!(zip_to_tar(&zip_of(&[("x", &zeros)]), 100 << 20), Err(Error::Bomb)));
        let many: Vec<_> = (0..=MAX_ENTRIES).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
        assert!(matches!(zip_to_tar(&zip_of(&many), 10), Err(Error::TooManyEntries)));
    }

    #[test]
    fn an_absolute_entry_stays_inside() {
        if let Ok(tar) = zip_to_tar(&zip_of(&[("/etc/passwd", b"x")]), 10) {
            assert_eq!(names(&tar), ["etc/passwd"]);
        }
    }
}
