//! Uploaded files. One content of one uploader is stored once.

use coder_domain::ids::{FileId, OrganizationId, UserId};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::Result;
use crate::engine::{Row, Tx, record, sql, statements, values};
use crate::state_keys::Owner;

record! {
    /// What is known of a file, without its content.
    pub struct Info {
        /// Id.
        pub id: FileId,
        /// SHA-256 of the content in hexadecimal digits.
        pub hash: String,
        /// Who uploaded it.
        pub created_by: UserId,
        /// `application/x-tar` for everything that templates use.
        pub mimetype: String,
        /// Size of the content.
        pub size_bytes: i64,
        /// When it was uploaded.
        pub created_at: Timestamp = "created_us",
    }
}

statements! { "files";
    INSERT = sql("insert into files (id, hash, created_by, mimetype, size_bytes, created_us, data)
        values ($1, $2, $3, $4, $5, $6, $7) on conflict (hash, created_by) do nothing");
    FIND_BY_HASH = sql("select id, hash, created_by, mimetype, size_bytes, created_us from files
        where hash = $1 and created_by = $2");
    FIND = sql("select id, hash, created_by, mimetype, size_bytes, created_us from files where id = $1");
    FIND_WITH_DATA = sql("select id, hash, created_by, mimetype, size_bytes, created_us, data from files where id = $1");
    DATA = sql("select id, data from files where id = $1");
    ORGANIZATIONS = sql("select distinct organization_id from provisioner_jobs where file_id = $1");
}

/// The identity of a content.
#[must_use]
pub fn hash(data: &[u8]) -> String {
    hex::encode(Sha256::digest(data))
}

/// Stores a content unless this user uploaded the same before; returns the row that is there now and whether it is
/// new. `hash` is [`hash`] of `data`, computed by the caller outside of the transaction.
///
/// # Errors
/// Only when the database fails.
pub async fn insert(
    tx: &mut Tx,
    hash: &str,
    created_by: UserId,
    mimetype: &str,
    data: Vec<u8>,
    now: Timestamp,
) -> Result<(Info, bool)> {
    let size = i64::try_from(data.len()).expect("memory is smaller than 2^63 bytes");
    let id = FileId::random();
    let row = values![id, hash.to_owned(), created_by, mimetype.to_owned(), size, now];
    let data = tx.sealed("files", "data", &id.to_string(), crate::engine::Value::Bytes(data));
    let row = row.into_iter().chain([data]).collect();
    let inserted = tx.execute(&INSERT, row).await? > 0;
    let row = tx.fetch_one(&FIND_BY_HASH, values![hash.to_owned(), created_by]).await?;
    Ok((Info::from_row(&row)?, inserted))
}

/// An earlier upload of the same content by the same user.
///
/// # Errors
/// Only when the database fails.
pub async fn find_by_hash(tx: &mut Tx, hash: &str, created_by: UserId) -> Result<Option<Info>> {
    let row = tx.fetch_opt(&FIND_BY_HASH, values![hash.to_owned(), created_by]).await?;
    row.as_ref().map(Info::from_row).transpose()
}

/// By id, without the content.
///
/// # Errors
/// Only when the database fails.
pub async fn find(tx: &mut Tx, id: FileId) -> Result<Option<Info>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Info::from_row).transpose()
}

/// By id, with the content.
///
/// # Errors
/// Only when the database fails.
pub async fn find_with_data(tx: &mut Tx, id: FileId) -> Result<Option<(Info, Vec<u8>)>> {
    let row = tx.fetch_opt(&FIND_WITH_DATA, values![id]).await?;
    row.map(|row| Ok((Info::from_row(&row)?, read_data(&row)?))).transpose()
}

/// The content.
///
/// # Errors
/// [`crate::Error::NotFound`].
pub async fn get_data(tx: &mut Tx, id: FileId) -> Result<Vec<u8>> {
    read_data(&tx.fetch_one(&DATA, values![id]).await?)
}

fn read_data(row: &Row) -> Result<Vec<u8>> {
    row.open_bytes("data")?.ok_or_else(|| row.corrupt("data", "null"))
}

/// A content as it was before it was stored.
pub(crate) fn open(tx: &Tx, id: FileId, stored: Vec<u8>) -> Result<Vec<u8>> {
    tx.state_keys().open(Owner::Cell { table: "files", column: "data", id: &id.to_string() }, stored)
}

/// The organizations whose jobs use a file.
///
/// # Errors
/// Only when the database fails.
pub async fn list_organizations(tx: &mut Tx, id: FileId) -> Result<Vec<OrganizationId>> {
    tx.fetch(&ORGANIZATIONS, values![id]).await?.iter().map(|row| row.get("organization_id")).collect()
}
