//! Provisioner keys. Only the hash of the secret is stored; deleting a key deletes its daemons.

use coder_domain::ids::{KeyId, OrganizationId};
use coder_domain::key::Hashed;
use coder_domain::tags::TagSet;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};

record! {
    /// A provisioner key, without its secret.
    pub struct Key {
        /// Id; three are reserved ([`KeyId::BUILT_IN`] and its siblings).
        pub id: KeyId,
        /// The one organization it admits daemons to.
        pub organization_id: OrganizationId,
        /// Lower case; unique in the organization without regard to case.
        pub name: String,
        /// The tags of every daemon that joins with it; fixed.
        pub tags: TagSet,
        /// When it was made.
        pub created_at: Timestamp = "created_us",
    }
}

statements! { "provisioner_keys";
    INSERT = sql("insert into provisioner_keys
        (id, organization_id, name, tags, created_us, name_lower, hashed_secret)
        values ($1, $2, $3, $4, $5, $6, $7)");
    FIND = sql("select id, organization_id, name, tags, created_us from provisioner_keys where id = $1");
    FIND_BY_HASH = sql("select id, organization_id, name, tags, created_us, hashed_secret
        from provisioner_keys where hashed_secret = $1");
    FIND_BY_NAME = sql("select id, organization_id, name, tags, created_us from provisioner_keys
        where organization_id = $1 and name_lower = $2");
    LIST = sql("select id, organization_id, name, tags, created_us from provisioner_keys
        where organization_id = $1 order by created_us, id");
    DELETE = sql("delete from provisioner_keys where organization_id = $1 and name_lower = $2
        and length(hashed_secret) > 0 returning id");
}

/// Adds a key; the name should be lower case already.
///
/// # Errors
/// A conflict on `name_lower`.
pub async fn insert(tx: &mut Tx, key: &Key, hashed_secret: Hashed) -> Result<()> {
    let mut row = key.values();
    row.extend(values![key.name.to_lowercase(), hashed_secret]);
    tx.execute(&INSERT, row).await.map(|_| ())
}

/// By id, reserved ones included.
///
/// # Errors
/// Only when the database fails.
pub async fn find(tx: &mut Tx, id: KeyId) -> Result<Option<Key>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Key::from_row).transpose()
}

/// By the hash of the secret; the stored hash is compared again in constant time.
///
/// # Errors
/// Only when the database fails.
pub async fn find_by_hash(tx: &mut Tx, hashed_secret: Hashed) -> Result<Option<Key>> {
    let Some(row) = tx.fetch_opt(&FIND_BY_HASH, values![hashed_secret]).await? else { return Ok(None) };
    let stored: Hashed = row.get("hashed_secret")?;
    if stored.verify(&hashed_secret) { Key::from_row(&row).map(Some) } else { Ok(None) }
}

/// By name, without regard to case, reserved ones included.
///
/// # Errors
/// Only when the database fails.
pub async fn find_by_name(tx: &mut Tx, organization: OrganizationId, name: &str) -> Result<Option<Key>> {
    let row = tx.fetch_opt(&FIND_BY_NAME, values![organization, name.to_lowercase()]).await?;
    row.as_ref().map(Key::from_row).transpose()
}

/// The keys of an organization by age, reserved ones included (they belong to the default organization).
///
/// # Errors
/// Only when the database fails.
pub async fn list(tx: &mut Tx, organization: OrganizationId) -> Result<Vec<Key>> {
    tx.fetch(&LIST, values![organization]).await?.iter().map(Key::from_row).collect()
}

/// Removes a key and its daemons' rows; returns its id, or none when there is no such key or it is reserved.
///
/// # Errors
/// Only when the database fails.
pub async fn delete(tx: &mut Tx, organization: OrganizationId, name: &str) -> Result<Option<KeyId>> {
    let row = tx.fetch_opt(&DELETE, values![organization, name.to_lowercase()]).await?;
    row.map(|row| row.get("id")).transpose()
}
