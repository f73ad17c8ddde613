//! Provisioner keys. Only the hash of a secret is stored. A deleted key and its daemons keep their rows until
//! [`purge`].

use coder_domain::ids::{KeyId, OrganizationId};
use coder_domain::key::{AllowList, KeyValidity, SecretVersion, Sha256Digest};
use coder_domain::tags::TagSet;
use jiff::{SignedDuration, Timestamp};

use crate::Result;
use crate::engine::{Tx, json_column, record, sql, statements, values};

json_column!(AllowList);

record! {
    /// A provisioner key, without its secret.
    pub struct Key {
        /// Three ids are reserved ([`KeyId::BUILT_IN`] and the constants beside it).
        pub id: KeyId,
        /// Daemons with this key join this organization only.
        pub organization_id: OrganizationId,
        /// Lower case. Unique in the organization, regardless of case, among the keys that are not deleted.
        pub name: String,
        /// The tags of every daemon that joins with this key. They never change.
        pub tags: TagSet,
        pub created_at: Timestamp = "created_us",
        /// The first instant at which the key is no longer valid.
        pub expires_at: Option<Timestamp> = "expires_us",
        /// When it was deleted.
        pub revoked_at: Option<Timestamp> = "revoked_us",
        /// The first instant at which the secret from before the last rotation is no longer valid.
        pub previous_until: Option<Timestamp> = "previous_until_us",
        /// The addresses from which the key may be used.
        pub networks: AllowList,
        /// When a daemon last joined or was connected with this key. Written at most once a minute.
        pub last_used_at: Option<Timestamp> = "last_used_us",
        /// The address of that daemon, or empty.
        pub last_used_address: String,
    }
}

/// The use of a key is recorded again after this time, or when the address differs.
pub const USE_RECORD_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

impl Key {
    /// A key as the official server makes them: valid from every address until it is deleted.
    #[must_use]
    pub fn new(
        id: KeyId,
        organization_id: OrganizationId,
        name: String,
        tags: TagSet,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            organization_id,
            name,
            tags,
            created_at: now,
            expires_at: None,
            revoked_at: None,
            previous_until: None,
            networks: AllowList::default(),
            last_used_at: None,
            last_used_address: String::new(),
        }
    }

    /// When and from which addresses the key may be used.
    #[must_use]
    pub fn validity(&self) -> KeyValidity {
        KeyValidity {
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            previous_until: self.previous_until,
            networks: self.networks.clone(),
        }
    }

    /// Whether a use from `address` at `now` should be recorded with [`update_used`].
    #[must_use]
    pub fn should_record_use(&self, address: &str, now: Timestamp) -> bool {
        let noted = |at| now.duration_since(at).abs() < USE_RECORD_INTERVAL;
        !self.last_used_at.is_some_and(noted) || self.last_used_address != address
    }
}

/// A key that was found by a secret.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchedKey {
    /// May be expired or deleted: check its [`Key::validity`].
    pub key: Key,
    pub generation: SecretVersion,
    pub hashed_secret: Sha256Digest,
}

macro_rules! columns {
    () => {
        "id, organization_id, name, tags, created_us, expires_us, revoked_us, previous_until_us, networks, last_used_us, \
         last_used_address"
    };
}

statements! { "provisioner_keys";
    INSERT = sql(concat!("insert into provisioner_keys (", columns!(), ", name_lower, hashed_secret)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"));
    FIND = sql(concat!("select ", columns!(), " from provisioner_keys where id = $1"));
    FIND_SHOWN = sql(concat!("select ", columns!(), ", hashed_secret as secret, true as is_current
        from provisioner_keys where hashed_secret = $1
        union all select ", columns!(), ", previous_secret as secret, false as is_current
        from provisioner_keys where previous_secret = $1"));
    FIND_BY_NAME = sql(concat!("select ", columns!(), " from provisioner_keys
        where organization_id = $1 and name_lower = $2 and revoked_us is null"));
    LIST = sql(concat!("select ", columns!(), " from provisioner_keys
        where organization_id = $1 and revoked_us is null order by created_us, id"));
    LIST_ENDED = sql("select id from provisioner_keys where id in (select value from json_each($1))
        and (revoked_us is not null or expires_us <= $2)").purpose(crate::engine::Purpose::Heartbeat);
    LIST_EXPIRED_IN_USE = sql("select id from provisioner_keys where revoked_us is null and expires_us <= $1
        and exists (select 1 from provisioner_daemons as daemon
            join provisioner_jobs as job on job.worker_id = daemon.id and job.completed_us is null
            where daemon.key_id = provisioner_keys.id)");
    ROTATE = sql("update provisioner_keys set previous_secret = hashed_secret, previous_until_us = $4, hashed_secret = $3
        where id = $1 and hashed_secret = $2 and revoked_us is null");
    SET_EXPIRY = sql("update provisioner_keys set expires_us = $2
        where id = $1 and revoked_us is null and length(hashed_secret) > 0");
    SET_NETWORKS = sql("update provisioner_keys set networks = $2
        where id = $1 and revoked_us is null and length(hashed_secret) > 0");
    FIND_SECRET = sql("select hashed_secret from provisioner_keys where id = $1 and revoked_us is null");
    NOTE_USE = sql("update provisioner_keys set last_used_us = $2, last_used_address = $3 where id = $1
        and (last_used_us is null or last_used_us <= $4 or last_used_us > $2 or last_used_address <> $3)");
    REVOKE = sql("update provisioner_keys set revoked_us = $3 where organization_id = $1 and name_lower = $2
        and revoked_us is null and length(hashed_secret) > 0 returning id");
    PURGE = sql("delete from provisioner_keys where revoked_us < $1 and not exists (
        select 1 from provisioner_daemons as daemon
        join provisioner_jobs as job on job.worker_id = daemon.id and job.completed_us is null
        where daemon.key_id = provisioner_keys.id)");
}

/// Adds a key; the name should be lower case already.
///
/// # Errors
/// A conflict on `name_lower`.
pub async fn insert(tx: &mut Tx, key: &Key, hashed_secret: Sha256Digest) -> Result<()> {
    let mut row = key.values();
    row.extend(values![key.name.to_lowercase(), hashed_secret]);
    tx.execute(&INSERT, row).await.map(|_| ())
}

/// Finds a key by id, including reserved and deleted keys.
pub async fn find(tx: &mut Tx, id: KeyId) -> Result<Option<Key>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Key::from_row).transpose()
}

/// Finds a key by the hash of a secret, including expired and deleted keys. The stored hash is compared again in
/// constant time. Call [`KeyValidity::check`] before the daemon is accepted.
pub async fn find_by_secret(tx: &mut Tx, hashed_secret: Sha256Digest) -> Result<Option<MatchedKey>> {
    for row in tx.fetch(&FIND_SHOWN, values![hashed_secret]).await? {
        let stored: Sha256Digest = row.get("secret")?;
        if stored.verify(&hashed_secret) {
            let current: bool = row.get("is_current")?;
            let generation = if current { SecretVersion::Current } else { SecretVersion::Previous };
            return Ok(Some(MatchedKey { key: Key::from_row(&row)?, generation, hashed_secret }));
        }
    }
    Ok(None)
}

/// Finds a key that is not deleted by the hash of its newest secret. [`find_by_secret`] also checks when and where it
/// may be used.
pub async fn find_by_hash(tx: &mut Tx, hashed_secret: Sha256Digest) -> Result<Option<Key>> {
    let shown = find_by_secret(tx, hashed_secret).await?;
    let valid =
        |shown: &MatchedKey| shown.generation == SecretVersion::Current && shown.key.revoked_at.is_none();
    Ok(shown.filter(valid).map(|shown| shown.key))
}

/// Finds a key by name, regardless of case. Includes reserved keys and excludes deleted ones.
pub async fn find_by_name(tx: &mut Tx, organization: OrganizationId, name: &str) -> Result<Option<Key>> {
    let row = tx.fetch_opt(&FIND_BY_NAME, values![organization, name.to_lowercase()]).await?;
    row.as_ref().map(Key::from_row).transpose()
}

/// The keys of an organization, oldest first. Includes reserved keys (they belong to the default organization) and
/// excludes deleted ones.
pub async fn list(tx: &mut Tx, organization: OrganizationId) -> Result<Vec<Key>> {
    tx.fetch(&LIST, values![organization]).await?.iter().map(Key::from_row).collect()
}

/// Expired keys whose daemons still hold jobs. Those jobs must end.
pub async fn list_expired_in_use(tx: &mut Tx, now: Timestamp) -> Result<Vec<KeyId>> {
    tx.fetch(&LIST_EXPIRED_IN_USE, values![now]).await?.iter().map(|row| row.get("id")).collect()
}

/// The given keys that are deleted or expired.
pub async fn list_ended(tx: &mut Tx, ids: &[KeyId], now: Timestamp) -> Result<Vec<KeyId>> {
    let mut parameters = vec![crate::engine::list(ids.iter().copied())];
    parameters.extend(values![now]);
    tx.fetch(&LIST_ENDED, parameters).await?.iter().map(|row| row.get("id")).collect()
}

/// Gives a key a new secret. The present secret stays valid until `previous_until`; an older one ends at once.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it was deleted, is reserved, or was rotated at the same time.
pub async fn rotate(
    tx: &mut Tx,
    id: KeyId,
    new_secret: Sha256Digest,
    previous_until: Timestamp,
) -> Result<()> {
    let stale = crate::Error::Stale { table: "provisioner_keys" };
    let row = tx.fetch_opt(&FIND_SECRET, values![id]).await?;
    let Some(row) = row else { return Err(stale) };
    let current: Vec<u8> = row.get("hashed_secret")?;
    if current.is_empty() {
        return Err(stale);
    }
    tx.change_one(&ROTATE, values![id, current, new_secret, previous_until]).await
}

/// Sets or removes the expiry of a key.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it was deleted or is reserved.
pub async fn update_expiry(tx: &mut Tx, id: KeyId, expires_at: Option<Timestamp>) -> Result<()> {
    tx.change_one(&SET_EXPIRY, values![id, expires_at]).await
}

/// Replaces the allow list.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it was deleted or is reserved.
pub async fn update_networks(tx: &mut Tx, id: KeyId, networks: &AllowList) -> Result<()> {
    tx.change_one(&SET_NETWORKS, values![id, *networks]).await
}

/// Records the use of a key, at most once in [`USE_RECORD_INTERVAL`] for one address. Returns whether it wrote. Call
/// [`Key::should_record_use`] first, which needs no statement.
pub async fn update_used(tx: &mut Tx, id: KeyId, address: &str, now: Timestamp) -> Result<bool> {
    let noted = now.checked_sub(USE_RECORD_INTERVAL).unwrap_or(Timestamp::MIN);
    Ok(tx.execute(&NOTE_USE, values![id, now, address.to_owned(), noted]).await? > 0)
}

/// Deletes a key, so that its name can be used again. Returns its id, or none when the key does not exist or is
/// reserved. The rows of its daemons stay until [`purge`]: no other daemon takes over their jobs, and the explanation
/// of a waiting job can name them. Lists of daemons omit them once their jobs have ended. End their jobs
/// ([`jobs::list_of_key`](crate::jobs::list_of_key)) in the same transaction.
pub async fn revoke(
    tx: &mut Tx,
    organization: OrganizationId,
    name: &str,
    now: Timestamp,
) -> Result<Option<KeyId>> {
    let row = tx.fetch_opt(&REVOKE, values![organization, name.to_lowercase(), now]).await?;
    row.map(|row| row.get("id")).transpose()
}

/// Removes keys that were deleted before `before`, with the rows of their daemons. A key stays while one of its daemons
/// holds an open job.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
