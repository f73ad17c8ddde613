//! The accounts that users have connected at external authentication providers, and their tokens. The tokens are
//! encrypted at rest, like Terraform's states.

use coder_domain::ids::UserId;
use coder_domain::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::encryption::keys::Owner;
use crate::engine::{Row, Tx, sql, statements, values};
use crate::{Error, Result};

/// The OAuth tokens that a provider issued for a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthTokens {
    /// The token that builds get.
    pub access: Secret,
    /// Empty when the provider issued none.
    pub refresh: Secret,
    /// Absent when the access token does not expire.
    pub expires_at: Option<Timestamp>,
}

/// A user's connected account at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAuthLink {
    pub user_id: UserId,
    /// The provider's id.
    pub provider_id: String,
    pub tokens: OAuthTokens,
    /// Why the access token cannot be refreshed any more; empty otherwise.
    pub refresh_failure: String,
    /// Grows with each new set of tokens.
    pub generation: i64,
    /// When it was first connected.
    pub created_at: Timestamp,
    /// When the tokens were last replaced.
    pub updated_at: Timestamp,
}

/// The document is stored encrypted.
#[derive(Serialize, Deserialize)]
struct StoredTokens {
    access: String,
    refresh: String,
}

statements! { "external_auth_links";
    FIND = sql("select user_id, provider_id, tokens, expires_us, refresh_failure, generation, created_us, updated_us
        from external_auth_links where user_id = $1 and provider_id = $2");
    LIST = sql("select provider_id from external_auth_links where user_id = $1 order by provider_id");
    PUT = sql("insert into external_auth_links
        (user_id, provider_id, tokens, expires_us, refresh_failure, generation, created_us, updated_us)
        values ($1, $2, $3, $4, '', 1, $5, $5) on conflict (user_id, provider_id) do update set
        tokens = excluded.tokens, expires_us = excluded.expires_us, refresh_failure = '',
        generation = external_auth_links.generation + 1, updated_us = excluded.updated_us");
    REFRESH = sql("update external_auth_links set tokens = $4, expires_us = $5, refresh_failure = '',
        generation = generation + 1, updated_us = $6 where user_id = $1 and provider_id = $2 and generation = $3");
    FAIL = sql("update external_auth_links set refresh_failure = $4
        where user_id = $1 and provider_id = $2 and generation = $3");
    DELETE = sql("delete from external_auth_links where user_id = $1 and provider_id = $2");
    DELETE_ALL = sql("delete from external_auth_links where user_id = $1");
}

/// The account of a user at a provider, if it is connected.
///
/// # Errors
/// [`Error::Corrupt`], and [`Error::RowKeyMissing`] when it is encrypted with a key that is not configured.
pub async fn find(tx: &mut Tx, user: UserId, provider: &str) -> Result<Option<ExternalAuthLink>> {
    let row = tx.fetch_opt(&FIND, values![user, provider.to_owned()]).await?;
    row.map(|row| read(tx, &row)).transpose()
}

/// The providers at which a user has a connected account.
pub async fn list_providers(tx: &mut Tx, user: UserId) -> Result<Vec<String>> {
    tx.fetch(&LIST, values![user]).await?.iter().map(|row| row.get("provider_id")).collect()
}

/// Stores a connected account; replaces the user's earlier account at this provider.
///
/// # Errors
/// [`Error::Reference`] when there is no such user.
pub async fn put(
    tx: &mut Tx,
    user: UserId,
    provider: &str,
    tokens: &OAuthTokens,
    now: Timestamp,
) -> Result<()> {
    let sealed = seal(tx, user, provider, tokens);
    let row = values![user, provider.to_owned(), sealed, tokens.expires_at, now];
    tx.execute(&PUT, row).await.map(|_| ())
}

/// Stores the refreshed tokens of `link`. Returns false, and stores nothing, when the row has changed since `link` was
/// read.
pub async fn update_refreshed(
    tx: &mut Tx,
    link: &ExternalAuthLink,
    tokens: &OAuthTokens,
    now: Timestamp,
) -> Result<bool> {
    let sealed = seal(tx, link.user_id, &link.provider_id, tokens);
    let row =
        values![link.user_id, link.provider_id.clone(), link.generation, sealed, tokens.expires_at, now];
    Ok(tx.execute(&REFRESH, row).await? > 0)
}

/// Records that the provider refused to refresh `link`. Returns false, and stores nothing, when the row has changed
/// since `link` was read.
pub async fn update_failed(tx: &mut Tx, link: &ExternalAuthLink, why: &str) -> Result<bool> {
    let row = values![link.user_id, link.provider_id.clone(), link.generation, why.to_owned()];
    Ok(tx.execute(&FAIL, row).await? > 0)
}

/// Deletes a connected account. Returns whether there was one.
pub async fn delete(tx: &mut Tx, user: UserId, provider: &str) -> Result<bool> {
    Ok(tx.execute(&DELETE, values![user, provider.to_owned()]).await? > 0)
}

/// Deletes all connected accounts of a user.
pub(crate) async fn delete_all(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.execute(&DELETE_ALL, values![user]).await.map(|_| ())
}

fn seal(tx: &Tx, user: UserId, provider: &str, tokens: &OAuthTokens) -> Vec<u8> {
    let kept = StoredTokens {
        access: tokens.access.expose().to_owned(),
        refresh: tokens.refresh.expose().to_owned(),
    };
    let text = serde_json::to_vec(&kept).expect("two texts are JSON");
    tx.state_keys().seal(Owner::Link(user, provider), text)
}

fn read(tx: &Tx, row: &Row) -> Result<ExternalAuthLink> {
    let (user_id, provider_id): (UserId, String) = (row.get("user_id")?, row.get("provider_id")?);
    let opened = tx.state_keys().open(Owner::Link(user_id, &provider_id), row.get("tokens")?)?;
    let kept: StoredTokens = serde_json::from_slice(&opened).map_err(|_| Error::Corrupt {
        table: "external_auth_links",
        column: "tokens",
        id: format!("{user_id} {provider_id}"),
        detail: "not the expected document".to_owned(),
    })?;
    let tokens = OAuthTokens {
        access: Secret::new(kept.access),
        refresh: Secret::new(kept.refresh),
        expires_at: row.get("expires_us")?,
    };
    Ok(ExternalAuthLink {
        user_id,
        provider_id,
        tokens,
        refresh_failure: row.get("refresh_failure")?,
        generation: row.get("generation")?,
        created_at: row.get("created_us")?,
        updated_at: row.get("updated_us")?,
    })
}
