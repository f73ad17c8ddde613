//! The session token of a workspace's owner that Terraform gets. Each start creates a new one, stop and delete remove it
//! (TOK-10), together with all tokens that were created with it inside the workspace.

use coder_domain::Timestamp;
use coder_domain::ids::{UserId, WorkspaceId};
use coder_domain::secret::Secret;
use coder_store::tokens::{self, ApiKey};
use coder_store::users::LoginType;
use coder_store::{Error, transaction};
use jiff::SignedDuration;
use std::time::Duration;

use super::revoke as revocation;
use crate::authn::token;
use crate::context::App;

/// The name under which a workspace's token is kept.
fn name(owner: UserId, workspace: WorkspaceId) -> String {
    format!("{owner}_{workspace}_session_token")
}

/// Replaces the token; the old one stops working at once.
pub async fn renew(
    app: &App,
    owner: (UserId, LoginType),
    workspace: WorkspaceId,
    lifetime: Duration,
) -> Result<Secret, Error> {
    let now = app.now();
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
        parent_id: None,
        not_after: None,
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
    Ok(fresh.reveal())
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
