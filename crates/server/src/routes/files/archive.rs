//! Converts between zip and tar, with bounds for the expanded size.

use std::io::{self, Read, Seek, SeekFrom, Write};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Entries an archive may hold.
const MAX_ENTRIES: usize = 10_000;
/// Largest expansion of an archive.
const MAX_RATIO: u64 = 200;
/// Archives below this size may expand by any ratio, because empty files compress well.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// Header and content of a tar are in blocks.
const BLOCK_BYTES: u64 = 512;
/// Longest name or extended header of a tar; paths have at most 4096 bytes.
const MAX_HEADER_BYTES: u64 = 16 << 10;
/// The record of an extended header that overrides an entry's length.
const SIZE_RECORD: &[u8] = b" size=";
/// Longest list of the entries of a zip.
const MAX_LIST_BYTES: u32 = 8 << 20;
/// The last record of a zip without its comment, and the longest with one.
const END_BYTES: usize = 22;
const MAX_END: u64 = 22 + 65_535;

/// Why an archive was not converted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Not a valid archive.
    #[error("the archive cannot be read: {0}")]
    Malformed(String),
    /// More entries than allowed.
    #[error("the archive holds more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    /// Oversized headers.
    #[error("the archive's names or headers are too long")]
    LongHeader,
    /// Content above the limit.
    #[error("the archive's content is larger than {0} bytes")]
    TooLarge(usize),
    /// Content far above the archive's own size.
    #[error("the archive expands more than {MAX_RATIO} times, which no template source does")]
    Bomb,
    /// An entry outside of the target directory.
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

/// Concurrent conversions. Their lists of entries are in memory.
static WORKING: Semaphore = Semaphore::const_new(2);

/// Waits until another conversion may start.
pub(super) async fn place() -> Option<SemaphorePermit<'static>> {
    // The semaphore is never closed.
    WORKING.acquire().await.ok()
}

/// Refuses a tar whose headers would take much memory: readers load long names and extended headers whole. Daemons report other
/// errors.
pub(super) fn check_tar(tar: &mut (impl Read + Seek)) -> Result<(), Error> {
    let end = tar.seek(SeekFrom::End(0))?;
    let mut at = 0;
    let mut header = tar::Header::new_old();
    while at + BLOCK_BYTES <= end {
        tar.seek(SeekFrom::Start(at))?;
        tar.read_exact(header.as_mut_bytes())?;
        let Ok(size) = header.entry_size() else { return Ok(()) };
        at += BLOCK_BYTES;
        let kind = header.entry_type();
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || is_extended(kind) {
            if size > MAX_HEADER_BYTES {
                return Err(Error::LongHeader);
            }
            let mut content = vec![0; usize::try_from(size).unwrap_or_default()];
            if tar.read_exact(&mut content).is_err() {
                return Ok(());
            }
            // Two readers with different opinions about a length would see different entries.
            if is_extended(kind) && content.windows(SIZE_RECORD.len()).any(|text| text == SIZE_RECORD) {
                return Err(Error::LongHeader);
            }
        }
        at = at.saturating_add(size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES));
    }
    Ok(())
}

fn is_extended(kind: tar::EntryType) -> bool {
    kind.is_pax_local_extensions() || kind.is_pax_global_extensions()
}

/// Refuses a zip whose list of entries would take much memory, before a reader loads the list.
fn check_zip(zip: &mut (impl Read + Seek), size: u64) -> Result<(), Error> {
    let tail = size.min(MAX_END);
    zip.seek(SeekFrom::Start(size - tail))?;
    let mut bytes = vec![0; usize::try_from(tail).unwrap_or_default()];
    zip.read_exact(&mut bytes)?;
    // The reader may use any of these as the end of the archive.
    for at in ends(&bytes) {
        let record = &bytes[at..];
        let Some(fixed) = record.get(..END_BYTES) else { continue };
        let entries = u16::from_le_bytes([fixed[10], fixed[11]]);
        let length = u32::from_le_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]);
        if usize::from(entries) > MAX_ENTRIES {
            return Err(Error::TooManyEntries);
        }
        if length > MAX_LIST_BYTES {
            return Err(Error::LongHeader);
        }
    }
    Ok(())
}

/// Where records of the end of a zip may begin.
fn ends(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(4).enumerate().filter(|(_, text)| *text == b"PK\x05\x06").map(|(at, _)| at)
}

/// Writes a zip's content as a tar of at most `limit` bytes. The same zip always gives the same tar.
pub(super) fn zip_to_tar(
    zip: &mut (impl Read + Seek),
    size: u64,
    limit: usize,
    tar: &mut impl Write,
) -> Result<(), Error> {
    check_zip(zip, size)?;
    let mut archive = zip::ZipArchive::new(zip)?;
    if archive.len() > MAX_ENTRIES {
        return Err(Error::TooManyEntries);
    }
    let mut budget = Budget::new(size, limit);
    let mut tar = tar::Builder::new(tar);
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
        let declared = if directory { 0 } else { entry.size() };
        budget.spend(declared)?;
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(if directory { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(mode);
        header.set_size(declared);
        header.set_mtime(modified.map_or(0, |at| unix_seconds(&at)));
        if directory {
            tar.append_data(&mut header, path, io::empty())?;
            continue;
        }
        let mut content = Exactly { content: entry, left: declared };
        tar.append_data(&mut header, path, &mut content)?;
        if content.left > 0 || content.content.read(&mut [0])? > 0 {
            return Err(Error::Malformed("an entry does not have its declared length".to_owned()));
        }
    }
    tar.finish()?;
    Ok(())
}

/// What an entry declares to be its content, and how much of that is still to come.
struct Exactly<R> {
    content: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let count = self.content.read(&mut into[..most])?;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Writes a stored tar's content as a zip.
pub(super) fn tar_to_zip(
    tar: impl Read,
    size: u64,
    limit: usize,
    zip: &mut (impl Write + Seek),
) -> Result<(), Error> {
    let mut archive = tar::Archive::new(tar);
    let mut zip = zip::ZipWriter::new(zip);
    let mut budget = Budget::new(size, limit);
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
                zip.start_file(name, options)?;
                // One byte above the limit shows that the content is too long.
                let mut content = entry.take(budget.left() + 1);
                budget.spend(io::copy(&mut content, &mut zip)?)?;
            }
            // Templates have no links and devices. The daemon refuses them with the entry's name.
            _ => {}
        }
    }
    zip.finish()?;
    Ok(())
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
    use std::io::Cursor;

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

    fn to_tar(zip: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
        let mut tar = Vec::new();
        zip_to_tar(&mut Cursor::new(zip), zip.len() as u64, limit, &mut tar).map(|()| tar)
    }

    fn to_zip(tar: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
        let mut zip = Cursor::new(Vec::new());
        tar_to_zip(tar, tar.len() as u64, limit, &mut zip).map(|()| zip.into_inner())
    }

    /// A tar of one header of a kind with so much content.
    fn header(kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, content).unwrap();
        tar.into_inner().unwrap()
    }

    #[test]
    fn headers_that_take_much_memory_are_refused() {
        let check = |tar: Vec<u8>| check_tar(&mut Cursor::new(tar));
        let long = vec![b'x'; 20 << 10];
        for kind in [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader] {
            assert!(matches!(check(header(kind, &long)), Err(Error::LongHeader)), "{kind:?}");
            check(header(kind, b"short")).unwrap();
        }
        let lie = check(header(tar::EntryType::XHeader, b"12 size=1024\n"));
        assert!(matches!(lie, Err(Error::LongHeader)));
        check(header(tar::EntryType::Regular, &long)).unwrap();
        check(b"no tar at all".repeat(100)).unwrap();

        let mut list = zip_of(&[("x", b"")]);
        let end = list.len() - END_BYTES;
        list[end + 15] = 1;
        assert!(matches!(to_tar(&list, 10), Err(Error::LongHeader)));
        list[end + 15] = 0;
        list[end + 10..end + 12].copy_from_slice(&[0xff, 0xff]);
        assert!(matches!(to_tar(&list, 10), Err(Error::TooManyEntries)));
    }

    #[test]
    fn zip_to_tar_and_back_keeps_the_content() {
        let zip = zip_of(&[("main.tf", b"resource"), ("modules/a/b.tf", b"x")]);
        let tar = to_tar(&zip, 1 << 20).unwrap();
        assert_eq!(names(&tar), ["main.tf", "modules/a/b.tf"]);
        assert_eq!(tar, to_tar(&zip, 1 << 20).unwrap(), "the same zip gives the same tar");
        let again = to_zip(&tar, 1 << 20).unwrap();
        let mut archive = zip::ZipArchive::new(Cursor::new(again)).unwrap();
        let mut content = String::new();
        archive.by_name("main.tf").unwrap().read_to_string(&mut content).unwrap();
        assert_eq!(content, "resource");
    }

    #[test]
    fn bad_archives_are_refused() {
        assert!(matches!(to_tar(b"not a zip", 10), Err(Error::Malformed(_))));
        assert!(matches!(to_tar(&zip_of(&[("../x", b"")]), 10), Err(Error::Outside(_))));
        assert!(matches!(to_tar(&zip_of(&[("/x", b"")]), 10), Ok(_) | Err(Error::Outside(_))));
        assert!(matches!(to_tar(&zip_of(&[("x", &[1; 11])]), 10), Err(Error::TooLarge(10))));
        let zeros = vec![0; 8 << 20];
        assert!(matches!(to_tar(&zip_of(&[("x", &zeros)]), 100 << 20), Err(Error::Bomb)));
        let many: Vec<_> = (0..=MAX_ENTRIES).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
        assert!(matches!(to_tar(&zip_of(&many), 10), Err(Error::TooManyEntries)));
    }

    #[test]
    fn an_absolute_entry_stays_inside() {
        if let Ok(tar) = to_tar(&zip_of(&[("/etc/passwd", b"x")]), 10) {
            assert_eq!(names(&tar), ["etc/passwd"]);
        }
    }
}
