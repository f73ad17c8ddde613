//! Uploaded files. Equal content of one user is stored once. Long content is stored in parts.

use std::io::Read;

use coder_domain::ids::{FileId, OrganizationId, UserId};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::Result;
use crate::encryption::keys::Owner;
use crate::engine::{Row, Tx, Value, record, sql, statements, values};

record! {
    /// A file without its content.
    pub struct FileInfo {
        pub id: FileId,
        /// SHA-256 of the content in hexadecimal.
        pub hash: String,
        /// Who uploaded it.
        pub created_by: UserId,
        /// `application/x-tar` for everything that templates use.
        pub mimetype: String,
        /// Length of the content.
        pub size_bytes: i64,
        /// When it was uploaded.
        pub created_at: Timestamp = "created_us",
        /// Whether the content is stored in `file_parts`.
        pub in_parts: bool,
    }
}

/// The maximum content of one row. A longer file has parts of this length in `file_parts`.
pub const PART_BYTES: usize = 256 << 10;

/// A file to be stored.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// [`hash`] of the content.
    pub hash: String,
    /// Length of the content.
    pub size: u64,
    /// Who uploads it.
    pub created_by: UserId,
    /// Its type.
    pub mimetype: &'static str,
}

/// The condition that no job and no template version uses a file.
macro_rules! is_unreferenced {
    () => {
        "not exists (select 1 from provisioner_jobs as job where job.file_id = file.id)
        and not exists (select 1 from template_version_plans as plan where plan.module_file_id = file.id)
        and not exists (select 1 from provisioner_job_uploads as upload where upload.file_id = file.id)"
    };
}

statements! { "files";
    /// An existing row of the same content gets a new upload time, so that it is not purged.
    INSERT = sql("insert into files (id, hash, created_by, mimetype, size_bytes, created_us, in_parts, data)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (hash, created_by) do update set uploaded_us = excluded.created_us
        returning id, hash, created_by, mimetype, size_bytes, created_us, in_parts");
    INSERT_PART = sql("insert into file_parts (id, file_id, position, data) values ($1, $2, $3, $4)");
    TOUCH = sql("update files set uploaded_us = $3 where hash = $1 and created_by = $2
        returning id, hash, created_by, mimetype, size_bytes, created_us, in_parts");
    FIND = sql("select id, hash, created_by, mimetype, size_bytes, created_us, in_parts from files where id = $1");
    DATA = sql("select id, data from files where id = $1");
    PART_DATA = sql("select id, data from file_parts where file_id = $1 and position = $2");
    ORGANIZATIONS = sql("select distinct organization_id from provisioner_jobs where file_id = $1");
    UNREFERENCED_BYTES = sql(concat!("select cast(coalesce(sum(file.size_bytes), 0) as bigint) as bytes from files as file
        where file.created_by = $1 and (file.created_us >= $2 or file.uploaded_us >= $2) and ", is_unreferenced!()));
    PURGEABLE = sql(concat!("select file.id, file.created_us < $3 and coalesce(file.uploaded_us, 0) < $3 and ",
        is_unreferenced!(), " as purgeable from files as file where file.id > $1 order by file.id limit $2"));
    PURGE = sql(concat!("delete from files where id in (select file.id from files as file
        where file.id = $1 and file.created_us < $2 and coalesce(file.uploaded_us, 0) < $2 and ", is_unreferenced!(), ")"));
}

/// The hash by which content is identified.
#[must_use]
pub fn hash(data: &[u8]) -> String {
    hex::encode(Sha256::digest(data))
}

/// Stores content, which is read from its beginning, unless this user uploaded the same before. Returns the row and
/// whether it is new.
///
/// # Errors
/// When the content cannot be read or does not have the announced length.
pub async fn insert(
    tx: &mut Tx,
    new: &NewFile,
    content: &mut (dyn Read + Send),
    now: Timestamp,
) -> Result<(FileInfo, bool)> {
    let size = i64::try_from(new.size).map_err(|_| unreadable("a file is too long", None))?;
    let is_long = new.size > PART_BYTES as u64;
    let data = if is_long { Vec::new() } else { read_part(content, new.size)? };
    let id = FileId::random();
    let row = values![id, new.hash, new.created_by, new.mimetype.to_owned(), size, now, is_long];
    let data = tx.sealed("files", "data", &id.to_string(), Value::Bytes(data));
    let row = row.into_iter().chain([data]).collect();
    let info = FileInfo::from_row(&tx.fetch_one(&INSERT, row).await?)?;
    let is_new = info.id == id;
    if is_new && is_long {
        let mut left = new.size;
        for position in 0_i64.. {
            if left == 0 {
                break;
            }
            let part = read_part(content, left.min(PART_BYTES as u64))?;
            left -= part.len() as u64;
            let part_id = format!("{id}/{position}");
            let part = tx.sealed("file_parts", "data", &part_id, Value::Bytes(part));
            let row = values![part_id, id, position].into_iter().chain([part]).collect();
            tx.execute(&INSERT_PART, row).await?;
        }
    }
    Ok((info, is_new))
}

fn read_part(content: &mut dyn Read, size: u64) -> Result<Vec<u8>> {
    let mut part = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(PART_BYTES)];
    content
        .read_exact(&mut part)
        .map_err(|error| unreadable("a file to be stored cannot be read", Some(error)))?;
    Ok(part)
}

fn unreadable(what: &'static str, error: Option<std::io::Error>) -> crate::Error {
    crate::Error::Unavailable { what, source: error.map(|error| error.into()) }
}

/// Finds an earlier upload of the same content by the same user, and counts it as uploaded now.
pub async fn touch(tx: &mut Tx, hash: &str, created_by: UserId, now: Timestamp) -> Result<Option<FileInfo>> {
    let row = tx.fetch_opt(&TOUCH, values![hash.to_owned(), created_by, now]).await?;
    row.as_ref().map(FileInfo::from_row).transpose()
}

/// By id, without the content.
pub async fn find(tx: &mut Tx, id: FileId) -> Result<Option<FileInfo>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(FileInfo::from_row).transpose()
}

/// The part of the content that begins at `position` times [`PART_BYTES`]. The last part is shorter.
///
/// # Errors
/// [`crate::Error::NotFound`], also after the last part.
pub async fn get_part(tx: &mut Tx, file: &FileInfo, position: i64) -> Result<Vec<u8>> {
    if file.in_parts {
        return read_data(&tx.fetch_one(&PART_DATA, values![file.id, position]).await?);
    }
    // Earlier releases stored long files in one row.
    let mut data = read_data(&tx.fetch_one(&DATA, values![file.id]).await?)?;
    let begin = usize::try_from(position).unwrap_or(usize::MAX).saturating_mul(PART_BYTES);
    // A negative position is beyond the end, too.
    if begin > 0 && begin >= data.len() {
        return Err(crate::Error::NotFound { table: "files" });
    }
    data.truncate(begin + PART_BYTES);
    Ok(data.split_off(begin))
}

fn read_data(row: &Row) -> Result<Vec<u8>> {
    row.open_bytes("data")?.ok_or_else(|| row.corrupt("data", "null"))
}

/// Decrypts stored content.
pub(crate) fn open(tx: &Tx, id: FileId, stored: Vec<u8>) -> Result<Vec<u8>> {
    tx.state_keys().open(Owner::Cell { table: "files", column: "data", id: &id.to_string() }, stored)
}

/// The whole content. For files that are known to be short.
///
/// # Errors
/// [`crate::Error::NotFound`].
pub async fn get_data(tx: &mut Tx, id: FileId) -> Result<Vec<u8>> {
    let file = find(tx, id).await?.ok_or(crate::Error::NotFound { table: "files" })?;
    let mut data = get_part(tx, &file, 0).await?;
    let mut position = 1;
    while (data.len() as i64) < file.size_bytes {
        data.append(&mut get_part(tx, &file, position).await?);
        position += 1;
    }
    Ok(data)
}

/// The organizations whose jobs use a file.
pub async fn list_organizations(tx: &mut Tx, id: FileId) -> Result<Vec<OrganizationId>> {
    tx.fetch(&ORGANIZATIONS, values![id]).await?.iter().map(|row| row.get("organization_id")).collect()
}

/// The total length of the files that a user uploaded since `since` and that no job or version uses.
pub async fn unreferenced_bytes(tx: &mut Tx, created_by: UserId, since: Timestamp) -> Result<i64> {
    tx.fetch_one(&UNREFERENCED_BYTES, values![created_by, since]).await?.get("bytes")
}

/// The result of one step of the purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeProgress {
    /// The number of removed files.
    pub removed: u64,
    /// Where the next step continues; none after the last file.
    pub next: Option<FileId>,
}

/// Examines the next `limit` files after `after`, and removes those that were uploaded before `before` and that no job
/// or version uses. Several servers may do so at once. A version that is created from such a file at the same moment
/// either keeps the file or fails because it does not exist.
pub async fn purge(
    tx: &mut Tx,
    after: Option<FileId>,
    limit: i64,
    before: Timestamp,
) -> Result<PurgeProgress> {
    let rows = tx.fetch(&PURGEABLE, values![after.unwrap_or(FileId::NIL), limit, before]).await?;
    let full = i64::try_from(rows.len()).unwrap_or(i64::MAX) >= limit;
    let (mut removed, mut last) = (0, None);
    for row in &rows {
        let id: FileId = row.get("id")?;
        last = Some(id);
        if row.get("purgeable")? {
            removed += match tx.execute(&PURGE, values![id, before]).await {
                Ok(removed) => removed,
                // A job or version has just been created from it.
                Err(crate::Error::Reference(_)) => 0,
                Err(error) => return Err(error),
            };
        }
    }
    Ok(PurgeProgress { removed, next: last.filter(|_| full) })
}
