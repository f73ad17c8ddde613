//! The tokens of connected accounts. They are refreshed before they expire, and validated before they are used.

use coder_domain::Timestamp;
use coder_domain::external_auth::Provider;
use coder_domain::ids::UserId;
use coder_store::external_auth_links::{self as links, ExternalAuthLink, OAuthTokens};
use jiff::SignedDuration;

use super::oauth_client::{Error, ProviderTokens};
use crate::context::App;

/// A token that expires sooner is refreshed, because a build takes some time.
const REFRESH_MARGIN: SignedDuration = SignedDuration::from_mins(5);
/// Longest lifetime of a token in seconds; longer ones are cut.
const MAX_LIFETIME_SECONDS: i64 = 10 * 366 * 24 * 3600;

/// Stores the tokens of a user.
pub async fn connect(
    app: &App,
    user: UserId,
    provider: &Provider,
    grant: ProviderTokens,
) -> Result<(), coder_store::Error> {
    let now = app.now();
    links::put(&mut app.store.single().await?, user, &provider.id, &tokens(grant, now), now).await?;
    app.events.external_auth_connected(user);
    Ok(())
}

/// The stored account of a user. One that cannot be decrypted counts as not connected, so that the user can connect it again.
pub async fn known(
    app: &App,
    user: UserId,
    provider: &str,
) -> Result<Option<ExternalAuthLink>, coder_store::Error> {
    match links::find(&mut app.store.reader().await?, user, provider).await {
        Err(error @ (coder_store::Error::RowKeyMissing { .. } | coder_store::Error::Corrupt { .. })) => {
            tracing::warn!(user_id = %user, provider, %error, "cannot decrypt a connected external authentication account");
            Ok(None)
        }
        other => other,
    }
}

/// Whether a user has an account with a valid token.
pub async fn is_connected(app: &App, user: UserId, provider: &Provider) -> Result<bool, coder_store::Error> {
    Ok(token(app, user, provider).await?.is_ok_and(|link| link.is_some()))
}

/// The account of a user with a valid token; `None` without an account, or when its token has expired or was revoked.
///
/// # Errors
/// The outer one when the database fails. The inner one when the token must be refreshed and the provider is unavailable.
pub async fn token(
    app: &App,
    user: UserId,
    provider: &Provider,
) -> Result<Result<Option<ExternalAuthLink>, Error>, coder_store::Error> {
    let Some(mut link) = known(app, user, &provider.id).await? else { return Ok(Ok(None)) };
    let Some((_, oauth_client)) = app.external_auth.find(&provider.id) else { return Ok(Ok(None)) };
    if ends_before(&link, app.now(), REFRESH_MARGIN) && can_refresh(&link, provider) {
        let lock = app.external_auth.refresh_lock(user, &provider.id);
        let _guard = lock.lock().await;
        // Another task may have refreshed it.
        let Some(newest) = known(app, user, &provider.id).await? else { return Ok(Ok(None)) };
        link = newest;
        if ends_before(&link, app.now(), REFRESH_MARGIN) && can_refresh(&link, provider) {
            match oauth_client.refresh(provider, &link.tokens.refresh).await {
                Ok(grant) => link = refreshed(app, link, grant).await?,
                Err(Error::Refused(why)) => {
                    tracing::info!(user_id = %user, provider = provider.id, reason = why, "the provider revoked a connected external authentication account");
                    links::update_failed(&mut app.store.single().await?, &link, &why).await?;
                    // Another server may have refreshed it.
                    let Some(newest) = known(app, user, &provider.id).await? else { return Ok(Ok(None)) };
                    link = newest;
                }
                Err(unavailable) if ends_before(&link, app.now(), SignedDuration::ZERO) => {
                    return Ok(Err(unavailable));
                }
                Err(Error::Unavailable(_)) => {}
            }
        }
    }
    let works = !ends_before(&link, app.now(), SignedDuration::ZERO)
        && oauth_client.is_valid(provider, &link.tokens.access).await;
    Ok(Ok(works.then_some(link)))
}

async fn refreshed(
    app: &App,
    link: ExternalAuthLink,
    grant: ProviderTokens,
) -> Result<ExternalAuthLink, coder_store::Error> {
    let now = app.now();
    let tokens = tokens(grant, now);
    if links::update_refreshed(&mut app.store.single().await?, &link, &tokens, now).await? {
        return Ok(ExternalAuthLink { tokens, ..link });
    }
    // The user connected it again, or another server refreshed it.
    Ok(known(app, link.user_id, &link.provider_id).await?.unwrap_or(link))
}

fn tokens(grant: ProviderTokens, now: Timestamp) -> OAuthTokens {
    let ends =
        |seconds: i64| now.checked_add(SignedDuration::from_secs(seconds.min(MAX_LIFETIME_SECONDS))).ok();
    OAuthTokens { access: grant.access, refresh: grant.refresh, expires_at: grant.lifetime.and_then(ends) }
}

fn ends_before(link: &ExternalAuthLink, now: Timestamp, margin: SignedDuration) -> bool {
    link.tokens.expires_at.is_some_and(|end| end.duration_since(now) <= margin)
}

fn can_refresh(link: &ExternalAuthLink, provider: &Provider) -> bool {
    !provider.no_refresh && link.refresh_failure.is_empty() && !link.tokens.refresh.expose().is_empty()
}
