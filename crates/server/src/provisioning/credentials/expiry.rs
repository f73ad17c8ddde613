//! When a connection must end because of the key or the token it was made with: one timer per connection, no polling.

use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::KeyId;
use coder_domain::key::{Refusal, SecretVersion};
use coder_store::users::LoginType;
use coder_store::{Error, Tx, keys, tokens};
use coder_wire::extension::Extension;
use jiff::SignedDuration;
use tokio::time::sleep;

use super::revoke;
use crate::provisioning::session::Session;
use crate::provisioning::session::admit::PresentedKey;
use crate::retry::RETRY_AFTER;

/// Longest sleep, so that a clock that jumps is noticed.
const LONGEST: Duration = Duration::from_secs(600);

/// A daemon that was asked to drain and has finished ends the connection itself; one that does not is not waited for.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// How the key stands.
enum Standing {
    /// Valid, for so long if nothing changes.
    Valid(Option<Duration>),
    Ended(Refusal),
}

impl Session {
    /// Whether the key or the user with which it joined still admits it.
    ///
    /// # Errors
    /// Only when the database fails.
    pub async fn is_key_valid(&self, tx: &mut Tx) -> Result<bool, Error> {
        if let Some(user) = self.user
            && !revoke::may_run(tx, user, self.organization, self.is_personal()).await?
        {
            return Ok(false);
        }
        if let Some(token) = &self.token
            && !tokens::list_ended(tx, &[token.to_string()], self.app.now()).await?.is_empty()
        {
            return Ok(false);
        }
        match &self.presented_key {
            Some(presented) => Ok(matches!(self.standing(tx, presented).await?, Standing::Valid(_))),
            None => Ok(true),
        }
    }

    async fn standing(&self, tx: &mut Tx, presented: &PresentedKey) -> Result<Standing, Error> {
        let now = self.app.now();
        let Some(key) = keys::find(tx, presented.key).await? else {
            return Ok(Standing::Ended(Refusal::Revoked(now)));
        };
        let terms = key.validity();
        let found =
            keys::find_by_secret(tx, presented.secret).await?.filter(|found| found.key.id == presented.key);
        let Some(generation) = found.map(|found| found.generation) else {
            // Two rotations ago, or the key was deleted in between, of which no secret is left.
            let ended = terms.check(SecretVersion::Current, now, Some(presented.address));
            return Ok(Standing::Ended(ended.err().unwrap_or(Refusal::Superseded(now))));
        };
        match terms.check(generation, now, Some(presented.address)) {
            Ok(()) => {
                let left = terms.ends_at(generation).map(|at| at.duration_since(now));
                Ok(Standing::Valid(left.map(|left| Duration::try_from(left).unwrap_or_default())))
            }
            Err(refusal) => Ok(Standing::Ended(refusal)),
        }
    }
}

/// Resolves when the connection must end: its key is gone, or what it showed counts no more and it holds nothing.
/// Jobs fail only with the key itself: a secret that was rotated away, or an address that is not allowed any more,
/// lets what is under way finish.
pub(crate) async fn reached(session: &Session) {
    tokio::select! {
        () = of_key(session) => {}
        () = of_token(session) => {}
        () = retired(session) => {}
    }
}

async fn of_key(session: &Session) {
    let Some(presented) = &session.presented_key else { return std::future::pending().await };
    loop {
        let standing = async { session.standing(&mut session.app.store.reader().await?, presented).await };
        // Asked seldom; the connection shall not keep room for it.
        let left = match Box::pin(standing).await {
            Ok(Standing::Valid(left)) => left,
            Ok(Standing::Ended(Refusal::Expired(_))) => {
                end(session, presented.key, revoke::Reason::Expired);
                // That closes the connection, once the daemon has heard why.
                return std::future::pending().await;
            }
            Ok(Standing::Ended(Refusal::Revoked(_))) => {
                end(session, presented.key, revoke::Reason::Deleted);
                // That closes the connection, once the daemon has heard why.
                return std::future::pending().await;
            }
            Ok(Standing::Ended(Refusal::Superseded(_) | Refusal::Address(_))) => {
                session.hand.drain("the key's terms have changed: start the daemon with its new secret");
                session.hand.retire();
                None
            }
            Err(error) => {
                tracing::warn!(key = %presented.key, %error, "whether a key is valid cannot be seen now");
                sleep(RETRY_AFTER).await;
                continue;
            }
        };
        let timer = async {
            match left {
                Some(left) => pass(session, left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = timer => {}
            () = session.connection.key_changed() => {}
        }
    }
}

/// Ends a connection whose token expires. Being connected is using it: as with requests, a session's end moves on, a
/// token's does not (scheduling-and-auth TOK-7).
async fn of_token(session: &Session) {
    let (Some(token), Some(user)) = (&session.token, session.user) else {
        return std::future::pending().await;
    };
    loop {
        let left = match Box::pin(token_left(session, token)).await {
            Ok(Some(left)) => left,
            Ok(None) => {
                let app = session.app.clone();
                session.hand.retire();
                session.app.lifecycle.spawn("ended token", async move { revoke::token(&app, user).await });
                // That closes the connection, once the daemon has heard why.
                return std::future::pending().await;
            }
            Err(error) => {
                tracing::warn!(daemon = %session.daemon, %error, "whether a token is valid cannot be seen now");
                sleep(RETRY_AFTER).await;
                continue;
            }
        };
        pass(session, left).await;
    }
}

/// Waits for so long by the clock of the server: in steps, so that a clock that jumps is noticed. None of them asks the
/// database.
async fn pass(session: &Session, time: Duration) {
    let until = session.app.now().saturating_add(time).unwrap_or(Timestamp::MAX);
    while let Ok(left) = Duration::try_from(until.duration_since(session.app.now()))
        && !left.is_zero()
    {
        sleep(left.min(LONGEST)).await;
    }
}

/// How long a token is valid for sure, and then to be looked at again; none when it is gone.
async fn token_left(session: &Session, id: &str) -> Result<Option<Duration>, Error> {
    let app = &session.app;
    let now = app.now();
    let found = tokens::find(&mut app.store.reader().await?, id).await?;
    let Some(mut key) = found.filter(|key| key.expires_at > now) else { return Ok(None) };
    let is_at_its_latest = key.not_after.is_some_and(|latest| key.expires_at >= latest);
    let slides =
        app.config.sessions.refresh_expiry && key.login_type != LoginType::Token && !is_at_its_latest;
    let margin = (SignedDuration::from_secs(key.lifetime_seconds) / 4).min(SignedDuration::from_hours(1));
    if slides && key.expires_at.duration_since(now) <= margin {
        key.expires_at = key.extended(now);
        let mut tx = app.store.single().await?;
        match tokens::update_used(&mut tx, id, now, key.expires_at, &key.ip_address).await {
            Ok(()) => {}
            Err(Error::Stale { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let left = key.expires_at.duration_since(now);
    let left = if slides { left - margin.min(left / 2) } else { left };
    Ok(Some(Duration::try_from(left).unwrap_or_default()))
}

/// Ends everything of a key; many connections may find out at the same moment, and one does the work.
fn end(session: &Session, key: KeyId, reason: revoke::Reason) {
    let app = session.app.clone();
    session.hand.retire();
    session.app.lifecycle.spawn("ended key", async move {
        if let Err(error) = revoke::key_here(&app, key, reason).await {
            tracing::warn!(%key, %error, "the jobs of a key that has ended wait for the reaper");
        }
    });
}

async fn retired(session: &Session) {
    session.hand.retired().await;
    // A key that has ended takes the jobs away first.
    session.hand.emptied().await;
    // An official daemon hears nothing.
    let _ = tokio::time::timeout(revoke::FAREWELL, session.hand.all_told()).await;
    // What emptied the hand was its last result, whose answer must still reach it; it may not be let in again to ask.
    let leaves_by_itself = session.granted.has(Extension::Drain);
    sleep(if leaves_by_itself { LEAVES_WITHIN } else { revoke::FAREWELL }).await;
}
