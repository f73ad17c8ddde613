//! API keys: sessions and tokens. Only the hash of the secret half is stored. A key that was created with another key
//! has that key as its parent: it is deleted with the parent and never outlives it.

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
        pub user_id: UserId,
        /// SHA-256 of the secret half.
        pub hashed_secret: Sha256Digest,
        /// How the user signed in; `Token` for API tokens.
        pub login_type: LoginType,
        /// Unique among the user's tokens, or empty.
        pub token_name: String,
        /// For example `coder:all`.
        pub scopes: Vec<String>,
        /// For example `*:*`.
        pub allow_list: Vec<String>,
        /// The lifetime after each use, in seconds.
        pub lifetime_seconds: i64,
        /// The address that used it last.
        pub ip_address: String,
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
        /// Written at most once an hour.
        pub last_used_at: Timestamp = "last_used_us",
        /// When it ends.
        pub expires_at: Timestamp = "expires_us",
        /// The key with which this key was created; none when a signed-in person created it.
        pub parent_id: Option<String>,
        /// The expiry cannot be extended beyond this; none without a parent.
        pub not_after: Option<Timestamp> = "not_after_us",
    }
}

impl ApiKey {
    /// Whether this is the session of a person who signed in: it has no parent and belongs to no workspace. Keys that
    /// are created with it do not depend on it, so that signing out of a browser ends neither the command line nor CI.
    #[must_use]
    pub fn is_sign_in(&self) -> bool {
        self.parent_id.is_none() && self.login_type != LoginType::Token && self.token_name.is_empty()
    }

    /// Whether it is the session token of a workspace. A session has no name otherwise.
    #[must_use]
    pub fn belongs_to_workspace(&self) -> bool {
        self.login_type != LoginType::Token && !self.token_name.is_empty()
    }

    /// The expiry after a use at `now`; never later than [`Self::not_after`].
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
    /// A conflict is always with a token of the same user and name.
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

/// Replaces the user's key of this name, or adds the key. The replaced key is invalid at once.
///
/// # Errors
/// [`crate::Error::Reference`] when the replaced key is the parent of other keys: delete it first.
pub async fn replace(tx: &mut Tx, key: &ApiKey) -> Result<()> {
    tx.execute(&REPLACE, key.values()).await.map(|_| ())
}

/// Finds a key by the public half of the token.
pub async fn find(tx: &mut Tx, id: &str) -> Result<Option<ApiKey>> {
    tx.fetch_opt(&FIND, values![id.to_owned()]).await?.as_ref().map(ApiKey::from_row).transpose()
}

/// Finds one by its exact name.
pub async fn find_by_name(tx: &mut Tx, user: UserId, name: &str) -> Result<Option<ApiKey>> {
    let row = tx.fetch_opt(&FIND_BY_NAME, values![user, name.to_owned()]).await?;
    row.as_ref().map(ApiKey::from_row).transpose()
}

/// The API tokens (not sessions) of one user or of all users, oldest first.
pub async fn list_tokens(tx: &mut Tx, user: Option<UserId>) -> Result<Vec<ApiKey>> {
    tx.fetch(&LIST_TOKENS, values![user]).await?.iter().map(ApiKey::from_row).collect()
}

/// The given tokens that are deleted or expired.
pub async fn list_ended(tx: &mut Tx, ids: &[String], now: Timestamp) -> Result<Vec<String>> {
    let mut parameters = vec![crate::engine::list(ids.iter().cloned())];
    parameters.extend(values![now]);
    tx.fetch(&LIST_ENDED, parameters).await?.iter().map(|row| row.get("value")).collect()
}

/// Records a use and extends the expiry.
///
/// # Errors
/// [`crate::Error::Stale`] when the key does not exist any more.
pub async fn update_used(
    tx: &mut Tx,
    id: &str,
    now: Timestamp,
    expires_at: Timestamp,
    ip: &str,
) -> Result<()> {
    tx.change_one(&TOUCH, values![id.to_owned(), now, expires_at, ip.to_owned()]).await
}

/// Deletes a key and its children. [`list_affected_users`] lists the users whose keys are deleted.
///
/// # Errors
/// [`crate::Error::Stale`] when it does not exist any more.
pub async fn delete(tx: &mut Tx, id: &str) -> Result<()> {
    tx.change_one(&DELETE, values![id.to_owned()]).await
}

/// Deletes the key of this name. Returns whether there was one.
pub async fn delete_by_name(tx: &mut Tx, user: UserId, name: &str) -> Result<bool> {
    Ok(tx.execute(&DELETE_BY_NAME, values![user, name.to_owned()]).await? > 0)
}

/// Like [`delete_by_name`], but keeps a key that has children. Returns whether it was deleted.
pub async fn delete_unless_parent(tx: &mut Tx, user: UserId, name: &str) -> Result<bool> {
    Ok(tx.execute(&DELETE_CHILDLESS, values![user, name.to_owned()]).await? > 0)
}

/// The users whose keys are deleted together with one key, or with all keys, of a user: this user and the owners of
/// child keys.
pub async fn list_affected_users(tx: &mut Tx, user: UserId, id: Option<&str>) -> Result<Vec<UserId>> {
    let rows = tx.fetch(&USERS_BELOW, values![user, id.map(str::to_owned)]).await?;
    rows.iter().map(|row| row.get("user_id")).collect()
}

/// Deletes the children of a user's keys that belong to other users.
pub async fn delete_for_others(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.execute(&DELETE_FOR_OTHERS, values![user]).await
}

/// Deletes all keys of a user and their children.
pub async fn delete_of_user(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.execute(&DELETE_OF_USER, values![user]).await
}

/// Removes at most `limit` keys that expired before `before`.
pub async fn purge(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    tx.execute(&PURGE, values![before, limit]).await
}
