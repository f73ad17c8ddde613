//! API keys: sessions and tokens. Only the hash of the secret half is stored. A key that another key minted names it as
//! its parent: it is deleted with the parent, and never lives longer.

use coder_domain::ids::UserId;
use coder_domain::key::Sha256Digest;
use jiff::{SignedDuration, Timestamp};

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};
use crate::users::LoginType;

record! {
    /// A session or token.
    pub struct ApiKey {
        /// The public half of the token, ten characters.
        pub id: String,
        /// Whose it is.
        pub user_id: UserId,
        /// SHA-256 of the secret half.
        pub hashed_secret: Sha256Digest,
        /// How it came to be; `Token` for API tokens.
        pub login_type: LoginType,
        /// Unique among the user's tokens, or empty.
        pub token_name: String,
        /// For example `coder:all`.
        pub scopes: Vec<String>,
        /// For example `*:*`.
        pub allow_list: Vec<String>,
        /// How long it lives from each extension, in seconds.
        pub lifetime_seconds: i64,
        /// Who used it last.
        pub ip_address: String,
        /// When it was made.
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
        /// When it was last used (written at most hourly).
        pub last_used_at: Timestamp = "last_used_us",
        /// When it ends.
        pub expires_at: Timestamp = "expires_us",
        /// The key that minted it; none for one that a signed-in person made.
        pub parent_id: Option<String>,
        /// The latest end that use can extend it to; none without a parent.
        pub not_after: Option<Timestamp> = "not_after_us",
    }
}

impl ApiKey {
    /// Whether a person who signed in holds it: a session that no other key minted and that belongs to no workspace.
    /// What it mints is independent of it, so that signing out of a browser ends neither the command line nor CI.
    #[must_use]
    pub fn is_sign_in(&self) -> bool {
        self.parent_id.is_none() && self.login_type != LoginType::Token && self.token_name.is_empty()
    }

    /// The end that use at `now` extends it to; never later than [`Self::not_after`].
    #[must_use]
    pub fn extended(&self, now: Timestamp) -> Timestamp {
        let end =
            now.checked_add(SignedDuration::from_secs(self.lifetime_seconds)).unwrap_or(self.expires_at);
        self.not_after.map_or(end, |latest| end.min(latest))
    }
}

macro_rules! columns {
    () => {
        "id, user_id, hashed_secret, login_type, token_name, scopes, allow_list, lifetime_seconds, ip_address, \
         created_us, updated_us, last_used_us, expires_us, parent_id, not_after_us"
    };
}

statements! { "api_keys";
    INSERT = sql(concat!("insert into api_keys (", columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"));
    /// The conflict is always with a token of the same user and name.
    REPLACE = sql(concat!("insert into api_keys (", columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        on conflict (user_id, token_name) where token_name <> '' do update set id = excluded.id,
        hashed_secret = excluded.hashed_secret, login_type = excluded.login_type, scopes = excluded.scopes,
        allow_list = excluded.allow_list, lifetime_seconds = excluded.lifetime_seconds,
        ip_address = excluded.ip_address, created_us = excluded.created_us, updated_us = excluded.updated_us,
        last_used_us = excluded.last_used_us, expires_us = excluded.expires_us,
        parent_id = excluded.parent_id, not_after_us = excluded.not_after_us"));
    FIND = sql(concat!("select ", columns!(), " from api_keys where id = $1"));
    FIND_BY_NAME = sql(concat!("select ", columns!(), " from api_keys where user_id = $1 and token_name = $2"));
    LIST_TOKENS = sql(concat!("select ", columns!(), " from api_keys
        where login_type = 'token' and (cast($1 as text) is null or user_id = $1) order by created_us, id"));
    TOUCH = sql("update api_keys set last_used_us = $2, expires_us = $3, ip_address = $4, updated_us = $2 where id = $1");
    DELETE = sql("delete from api_keys where id = $1");
    DELETE_BY_NAME = sql("delete from api_keys where user_id = $1 and token_name = $2");
    DELETE_CHILDLESS = sql("delete from api_keys where user_id = $1 and token_name = $2
        and not exists (select 1 from api_keys as child where child.parent_id = api_keys.id)");
    DELETE_OF_USER = sql("delete from api_keys where user_id = $1");
    DELETE_FOR_OTHERS = sql("delete from api_keys where user_id <> $1
        and parent_id in (select id from api_keys where user_id = $1)");
    USERS_BELOW = sql("with recursive minted (id, user_id) as (
            select id, user_id from api_keys where user_id = $1 and (cast($2 as text) is null or id = $2)
            union select child.id, child.user_id from api_keys as child join minted on child.parent_id = minted.id)
        select distinct user_id from minted");
    LIST_ENDED = sql("select wanted.value from json_each($1) as wanted where not exists (
        select 1 from api_keys where api_keys.id = wanted.value and api_keys.expires_us > $2)")
        .purpose(crate::engine::Purpose::Heartbeat);
    PURGE = sql("delete from api_keys where id in
        (select id from api_keys where expires_us < $1 order by expires_us limit $2)");
}

/// Adds a key.
///
/// # Errors
/// A conflict on `token_name` when the user has a token of this name.
pub async fn insert(tx: &mut Tx, key: &ApiKey) -> Result<()> {
    tx.execute(&INSERT, key.values()).await.map(|_| ())
}

/// Puts a key in the place of the user's one of this name, or adds it; the old one is gone at once.
///
/// # Errors
/// [`crate::Error::Reference`] when the old one has minted others: delete it first.
pub async fn replace(tx: &mut Tx, key: &ApiKey) -> Result<()> {
    tx.execute(&REPLACE, key.values()).await.map(|_| ())
}

/// By the public half of the token.
///
/// # Errors
/// Only when the database fails.
pub async fn find(tx: &mut Tx, id: &str) -> Result<Option<ApiKey>> {
    tx.fetch_opt(&FIND, values![id.to_owned()]).await?.as_ref().map(ApiKey::from_row).transpose()
}

/// By exact name.
///
/// # Errors
/// Only when the database fails.
pub async fn find_by_name(tx: &mut Tx, user: UserId, name: &str) -> Result<Option<ApiKey>> {
    let row = tx.fetch_opt(&FIND_BY_NAME, values![user, name.to_owned()]).await?;
    row.as_ref().map(ApiKey::from_row).transpose()
}

/// The API tokens (not sessions) of a user, or of everybody, oldest first.
///
/// # Errors
/// Only when the database fails.
pub async fn list_tokens(tx: &mut Tx, user: Option<UserId>) -> Result<Vec<ApiKey>> {
    tx.fetch(&LIST_TOKENS, values![user]).await?.iter().map(ApiKey::from_row).collect()
}

/// Those of these tokens that are gone or have expired.
///
/// # Errors
/// Only when the database fails.
pub async fn list_ended(tx: &mut Tx, ids: &[String], now: Timestamp) -> Result<Vec<String>> {
    let mut parameters = vec![crate::engine::list(ids.iter().cloned())];
    parameters.extend(values![now]);
    tx.fetch(&LIST_ENDED, parameters).await?.iter().map(|row| row.get("value")).collect()
}

/// Notes use, and moves the end of life.
///
/// # Errors
/// [`crate::Error::Stale`] when the key is gone.
pub async fn update_used(
    tx: &mut Tx,
    id: &str,
    now: Timestamp,
    expires_at: Timestamp,
    ip: &str,
) -> Result<()> {
    tx.change_one(&TOUCH, values![id.to_owned(), now, expires_at, ip.to_owned()]).await
}

/// Removes a key, and with it all that it minted; [`list_affected_users`] says whose.
///
/// # Errors
/// [`crate::Error::Stale`] when it is gone.
pub async fn delete(tx: &mut Tx, id: &str) -> Result<()> {
    tx.change_one(&DELETE, values![id.to_owned()]).await
}

/// Removes the key of this name, if there is one; says whether there was.
///
/// # Errors
/// Only when the database fails.
pub async fn delete_by_name(tx: &mut Tx, user: UserId, name: &str) -> Result<bool> {
    Ok(tx.execute(&DELETE_BY_NAME, values![user, name.to_owned()]).await? > 0)
}

/// As [`delete_by_name`], unless the key has minted others; says whether it was removed.
///
/// # Errors
/// Only when the database fails.
pub async fn delete_unless_parent(tx: &mut Tx, user: UserId, name: &str) -> Result<bool> {
    Ok(tx.execute(&DELETE_CHILDLESS, values![user, name.to_owned()]).await? > 0)
}

/// Whose keys end with all keys of a user, or with the one named: the user's, and those of others for whom they minted.
///
/// # Errors
/// Only when the database fails.
pub async fn list_affected_users(tx: &mut Tx, user: UserId, id: Option<&str>) -> Result<Vec<UserId>> {
    let rows = tx.fetch(&USERS_BELOW, values![user, id.map(str::to_owned)]).await?;
    rows.iter().map(|row| row.get("user_id")).collect()
}

/// Removes the keys that a user's keys minted for other people.
///
/// # Errors
/// Only when the database fails.
pub async fn delete_for_others(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.execute(&DELETE_FOR_OTHERS, values![user]).await
}

/// Removes all keys of a user, and with them all that they minted.
///
/// # Errors
/// Only when the database fails.
pub async fn delete_of_user(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.execute(&DELETE_OF_USER, values![user]).await
}

/// Removes at most `limit` keys that expired before `before`.
///
/// # Errors
/// Only when the database fails.
pub async fn purge(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    tx.execute(&PURGE, values![before, limit]).await
}
