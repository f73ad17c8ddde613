//! The tokens of connected accounts: refreshed when they are about to end, and checked before they are used.

use coder_domain::Timestamp;
use coder_domain::external_auth::Provider;
use coder_domain::ids::UserId;
use coder_store::external_auth_links::{self as links, ExternalAuthLink, OAuthTokens};
use jiff::SignedDuration;

use super::oauth_client::{Error, Grant};
use crate::context::App;

/// A token that ends sooner is refreshed: a build takes some time.
const MARGIN: SignedDuration = SignedDuration::from_mins(5);
/// No token is believed to live longer.
const LONGEST: i64 = 10 * 366 * 24 * 3600;

/// Keeps what a provider gave for a user.
///
/// # Errors
/// Only when the database fails.
pub async fn connect(
    app: &App,
    user: UserId,
    provider: &Provider,
    grant: Grant,
) -> Result<(), coder_store::Error> {
    let now = app.now();
    links::put(&mut app.store.single().await?, user, &provider.id, &tokens(grant, now), now).await
}

/// The account of a user as it is kept. One that cannot be read counts as not connected: it can be connected anew.
///
/// # Errors
/// Only when the database fails.
pub async fn known(
    app: &App,
    user: UserId,
    provider: &str,
) -> Result<Option<ExternalAuthLink>, coder_store::Error> {
    match links::find(&mut app.store.reader().await?, user, provider).await {
        Err(error @ (coder_store::Error::RowKeyMissing { .. } | coder_store::Error::Corrupt { .. })) => {
            tracing::warn!(%user, provider, %error, "a connected account cannot be read");
            Ok(None)
        }
        other => other,
    }
}

/// Whether a user has an account with a token that works.
///
/// # Errors
/// Only when the database fails.
pub async fn is_connected(app: &App, user: UserId, provider: &Provider) -> Result<bool, coder_store::Error> {
    Ok(token(app, user, provider).await?.is_ok_and(|link| link.is_some()))
}

/// The account of a user with a token that works; none when there is no such account, or its token has ended.
///
/// # Errors
/// The outer one when the database fails, the inner one when the provider must be asked for a token and is away.
pub async fn token(
    app: &App,
    user: UserId,
    provider: &Provider,
) -> Result<Result<Option<ExternalAuthLink>, Error>, coder_store::Error> {
    let Some(mut link) = known(app, user, &provider.id).await? else { return Ok(Ok(None)) };
    let Some((_, talk)) = app.accounts.find(&provider.id) else { return Ok(Ok(None)) };
    if ends_before(&link, app.now(), MARGIN) && can_refresh(&link, provider) {
        let turn = app.accounts.turn(user, &provider.id);
        let _turn = turn.lock().await;
        // Somebody may have been faster.
        let Some(newest) = known(app, user, &provider.id).await? else { return Ok(Ok(None)) };
        link = newest;
        if ends_before(&link, app.now(), MARGIN) && can_refresh(&link, provider) {
            match talk.refresh(provider, &link.tokens.refresh).await {
                Ok(grant) => link = refreshed(app, link, grant).await?,
                Err(Error::Refused(why)) => {
                    tracing::info!(%user, provider = provider.id, why, "a connected account has ended");
                    links::update_failed(&mut app.store.single().await?, &link, &why).await?;
                    // Another server may have had the token that is good now.
                    let Some(newest) = known(app, user, &provider.id).await? else { return Ok(Ok(None)) };
                    link = newest;
                }
                Err(away) if ends_before(&link, app.now(), SignedDuration::ZERO) => return Ok(Err(away)),
                Err(Error::Away(_)) => {}
            }
        }
    }
    let works = !ends_before(&link, app.now(), SignedDuration::ZERO)
        && talk.is_valid(provider, &link.tokens.access).await;
    Ok(Ok(works.then_some(link)))
}

async fn refreshed(
    app: &App,
    link: ExternalAuthLink,
    grant: Grant,
) -> Result<ExternalAuthLink, coder_store::Error> {
    let now = app.now();
    let tokens = tokens(grant, now);
    if links::update_refreshed(&mut app.store.single().await?, &link, &tokens, now).await? {
        return Ok(ExternalAuthLink { tokens, ..link });
    }
    // It was connected anew meanwhile, or by another server.
    Ok(known(app, link.user_id, &link.provider_id).await?.unwrap_or(link))
}

fn tokens(grant: Grant, now: Timestamp) -> OAuthTokens {
    let ends = |seconds: i64| now.checked_add(SignedDuration::from_secs(seconds.min(LONGEST))).ok();
    OAuthTokens { access: grant.access, refresh: grant.refresh, expires_at: grant.lifetime.and_then(ends) }
}

fn ends_before(link: &ExternalAuthLink, now: Timestamp, margin: SignedDuration) -> bool {
    link.tokens.expires_at.is_some_and(|end| end.duration_since(now) <= margin)
}

fn can_refresh(link: &ExternalAuthLink, provider: &Provider) -> bool {
    !provider.no_refresh && link.refresh_failure.is_empty() && !link.tokens.refresh.expose().is_empty()
}
