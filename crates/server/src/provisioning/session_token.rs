//! The token of a workspace's owner that Terraform gets: made anew at each start, gone at stop and delete (TOK-10).

use coder_domain::Timestamp;
use coder_domain::ids::{UserId, WorkspaceId};
use coder_domain::secret::Secret;
use coder_store::tokens::{self, ApiKey};
use coder_store::users::LoginType;
use coder_store::{Error, Store};
use jiff::SignedDuration;
use std::time::Duration;

use crate::authn::token;

/// The name under which a workspace's token is kept.
fn name(owner: UserId, workspace: WorkspaceId) -> String {
    format!("{owner}_{workspace}_session_token")
}

/// Replaces the token; the old one stops working at once.
pub async fn renew(
    store: &Store,
    owner: (UserId, LoginType),
    workspace: WorkspaceId,
    lifetime: Duration,
    now: Timestamp,
) -> Result<Secret, Error> {
    let fresh = token::generate();
    let (owner, login_type) = owner;
    let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
    let key = ApiKey {
        id: fresh.id.clone(),
        user_id: owner,
        hashed_secret: fresh.hashed(),
        // Not `Token`: it belongs to the workspace and does not show among the owner's own tokens.
        login_type,
        token_name: name(owner, workspace),
        scopes: vec!["coder:all".to_owned()],
        allow_list: vec!["*:*".to_owned()],
        lifetime_seconds: lifetime.as_secs(),
        ip_address: String::new(),
        created_at: now,
        updated_at: now,
        last_used_at: now,
        expires_at: now.saturating_add(lifetime).unwrap_or(Timestamp::MAX),
    };
    tokens::replace(&mut store.single().await?, &key).await?;
    Ok(fresh.reveal())
}

/// Removes the token, if there is one.
pub async fn revoke(store: &Store, owner: UserId, workspace: WorkspaceId) -> Result<(), Error> {
    tokens::delete_by_name(&mut store.single().await?, owner, &name(owner, workspace)).await.map(|_| ())
}
