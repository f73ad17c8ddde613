//! The session token of a workspace's owner that Terraform gets. Each start creates a new one, stop and delete remove it
//! (TOK-10), together with all tokens that were created with it inside the workspace.

use coder_api::tokens::{ALLOW_ALL, SCOPE_ALL};
use coder_domain::Timestamp;
use coder_domain::ids::{UserId, WorkspaceId};
use coder_domain::secret::Secret;
use coder_store::tokens::{self, ApiKey};
use coder_store::users::LoginType;
use coder_store::{Error, transaction};
use jiff::SignedDuration;
use std::time::Duration;

use super::owner_credentials::TokenLimits;
use super::revoke as revocation;
use crate::authn::token;
use crate::context::App;

/// The name under which a workspace's token is kept.
fn name(owner: UserId, workspace: WorkspaceId) -> String {
    format!("{owner}_{workspace}_session_token")
}

/// Replaces the token; the old one stops working at once. `None` when the token that limits it has ended.
pub async fn renew(
    app: &App,
    owner: (UserId, LoginType),
    workspace: WorkspaceId,
    lifetime: Duration,
    limits: Option<TokenLimits>,
) -> Result<Option<Secret>, Error> {
    let now = app.now();
    if let Some(limits) = &limits
        && !may_be_issued(app, limits, now).await?
    {
        revoke(app, owner.0, workspace).await?;
        return Ok(None);
    }
    let fresh = token::generate();
    let (owner, login_type) = owner;
    let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
    let limits = limits.unwrap_or_else(|| TokenLimits {
        parent_id: None,
        not_after: None,
        scopes: vec![SCOPE_ALL.to_owned()],
        allow_list: vec![ALLOW_ALL.to_owned()],
    });
    let expires_at = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
    let key = ApiKey {
        id: fresh.id.clone(),
        user_id: owner,
        hashed_secret: fresh.hashed(),
        // Not `Token`: it belongs to the workspace and does not show among the owner's own tokens.
        login_type,
        token_name: name(owner, workspace),
        scopes: limits.scopes,
        allow_list: limits.allow_list,
        lifetime_seconds: lifetime.as_secs(),
        ip_address: String::new(),
        created_at: now,
        updated_at: now,
        last_used_at: now,
        expires_at: limits.not_after.map_or(expires_at, |latest| expires_at.min(latest)),
        parent_id: limits.parent_id,
        not_after: limits.not_after,
    };
    let replaced = tokens::replace(&mut app.store.single().await?, &key).await;
    match replaced {
        Ok(()) => {}
        // The old token has created others, which are deleted with it.
        Err(Error::Reference(_)) => {
            revoke(app, owner, workspace).await?;
            tokens::replace(&mut app.store.single().await?, &key).await?;
        }
        Err(error) => return Err(error),
    }
    revocation::tokens_in_use(app, owner);
    Ok(Some(fresh.reveal()))
}

/// Whether the token that limits a new one still exists.
async fn may_be_issued(app: &App, limits: &TokenLimits, now: Timestamp) -> Result<bool, Error> {
    if limits.not_after.is_some_and(|latest| latest <= now) {
        return Ok(false);
    }
    let Some(parent) = &limits.parent_id else { return Ok(true) };
    let parent = tokens::find(&mut app.store.reader().await?, parent).await?;
    Ok(parent.is_some_and(|parent| parent.expires_at > now))
}

/// Removes the token, if there is one.
pub async fn revoke(app: &App, owner: UserId, workspace: WorkspaceId) -> Result<(), Error> {
    let name = name(owner, workspace);
    // Usually it created no other tokens, and one statement is enough.
    if tokens::delete_unless_parent(&mut app.store.single().await?, owner, &name).await? {
        revocation::tokens_in_use(app, owner);
        return Ok(());
    }
    let Some(key) = tokens::find_by_name(&mut app.store.reader().await?, owner, &name).await? else {
        return Ok(());
    };
    let now = app.now();
    let users = transaction!(app.store, Error, |tx| {
        let users = tokens::list_affected_users(tx, owner, Some(&key.id)).await?;
        tokens::delete_by_name(tx, owner, &name).await?;
        revocation::write_down_tokens(app, tx, &users, now).await?;
        Ok(users)
    })?;
    for user in users {
        revocation::tokens_in_use(app, user);
    }
    Ok(())
}
