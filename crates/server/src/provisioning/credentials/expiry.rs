//! Ends a connection when the key or the token that it joined with ends. One timer per connection, no polling.

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
use crate::provisioning::session::authenticate::PresentedKey;
use crate::retry::retry_while;

/// Longest sleep, so that a jump of the clock is noticed.
const MAX_SLEEP: Duration = Duration::from_secs(600);

/// How long a drained daemon without jobs has to disconnect itself.
const DISCONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// Whether a key is valid.
enum KeyStatus {
    /// Valid, with the time until it expires.
    Valid(Option<Duration>),
    Ended(Refusal),
}

impl Session {
    /// Whether its key, or its user and token, still admit it.
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
            Some(presented) => Ok(matches!(self.key_status(tx, presented).await?, KeyStatus::Valid(_))),
            None => Ok(true),
        }
    }

    async fn key_status(&self, tx: &mut Tx, presented: &PresentedKey) -> Result<KeyStatus, Error> {
        let now = self.app.now();
        let Some(key) = keys::find(tx, presented.key).await? else {
            return Ok(KeyStatus::Ended(Refusal::Revoked(now)));
        };
        let terms = key.validity();
        let found =
            keys::find_by_secret(tx, presented.secret).await?.filter(|found| found.key.id == presented.key);
        let Some(generation) = found.map(|found| found.generation) else {
            // The secret was rotated twice, or the key was deleted meanwhile.
            let ended = terms.check(SecretVersion::Current, now, Some(presented.address));
            return Ok(KeyStatus::Ended(ended.err().unwrap_or(Refusal::Superseded(now))));
        };
        match terms.check(generation, now, Some(presented.address)) {
            Ok(()) => {
                let left = terms.ends_at(generation).map(|at| at.duration_since(now));
                Ok(KeyStatus::Valid(left.map(|left| Duration::try_from(left).unwrap_or_default())))
            }
            Err(refusal) => Ok(KeyStatus::Ended(refusal)),
        }
    }
}

/// Resolves when the connection must end: its key has ended, or its secret or address is not accepted any more and it holds
/// no jobs. Jobs fail only with the key itself. After a rotation of the secret, or a change of the allowed addresses, running
/// jobs may finish.
pub(crate) async fn reached_end(session: &Session) {
    tokio::select! {
        () = of_key(session) => {}
        () = of_token(session) => {}
        () = retired(session) => {}
    }
}

async fn of_key(session: &Session) {
    let Some(presented) = &session.presented_key else { return std::future::pending().await };
    loop {
        let read = || async { session.key_status(&mut session.app.store.reader().await?, presented).await };
        let is_worth_it = |error: &Error| {
            tracing::warn!(key_id = %presented.key, %error, "cannot check whether a key is valid, trying again");
            true
        };
        // Boxed, because it runs seldom and would enlarge the future of every connection.
        let Ok(status) = Box::pin(retry_while(read, is_worth_it)).await else { continue };
        let left = match status {
            KeyStatus::Valid(left) => left,
            KeyStatus::Ended(Refusal::Expired(_)) => {
                end(session, presented.key, revoke::Reason::Expired);
                // The task closes the connection after the daemon was notified.
                return std::future::pending().await;
            }
            KeyStatus::Ended(Refusal::Revoked(_)) => {
                end(session, presented.key, revoke::Reason::Deleted);
                // The task closes the connection after the daemon was notified.
                return std::future::pending().await;
            }
            KeyStatus::Ended(Refusal::Superseded(_) | Refusal::Address(_)) => {
                session
                    .held_jobs
                    .drain("the provisioner key was changed: start the daemon with its new secret");
                session.held_jobs.retire();
                None
            }
        };
        let timer = async {
            match left {
                Some(left) => wait(session, left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = timer => {}
            () = session.registration.key_changed() => {}
        }
    }
}

/// Ends a connection whose token expires. A connection counts as use: as with requests, it extends a session, but not a token
/// (scheduling-and-auth TOK-7).
async fn of_token(session: &Session) {
    let (Some(token), Some(user)) = (&session.token, session.user) else {
        return std::future::pending().await;
    };
    loop {
        let is_worth_it = |error: &Error| {
            tracing::warn!(daemon_id = %session.daemon, %error, "cannot check whether a token is valid, trying again");
            true
        };
        let read = || token_left(session, token);
        let Ok(left) = Box::pin(retry_while(read, is_worth_it)).await else { continue };
        let Some(left) = left else {
            let app = session.app.clone();
            session.held_jobs.retire();
            session.app.lifecycle.spawn("ended token", async move { revoke::token(&app, user).await });
            // The task closes the connection after the daemon was notified.
            return std::future::pending().await;
        };
        wait(session, left).await;
    }
}

/// Waits by the server's clock, in steps, so that a jump of the clock is noticed. It does not read the database.
async fn wait(session: &Session, time: Duration) {
    let until = session.app.now().saturating_add(time).unwrap_or(Timestamp::MAX);
    while let Ok(left) = Duration::try_from(until.duration_since(session.app.now()))
        && !left.is_zero()
    {
        sleep(left.min(MAX_SLEEP)).await;
    }
}

/// Time until a token must be checked again; `None` when it was deleted or has expired.
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

/// Ends the sessions and jobs of a key. Several connections may do so at once; repeating it is harmless.
fn end(session: &Session, key: KeyId, reason: revoke::Reason) {
    let app = session.app.clone();
    session.held_jobs.retire();
    session.app.lifecycle.spawn("ended key", async move {
        if let Err(error) = revoke::key_here(&app, key, reason).await {
            tracing::warn!(key_id = %key, %error, "cannot end the jobs of a key, leaving them to the reaper");
        }
    });
}

async fn retired(session: &Session) {
    session.held_jobs.retired().await;
    // When the key has ended, its jobs are failed first.
    session.held_jobs.until_empty().await;
    // An official daemon gets no notifications.
    let _ = tokio::time::timeout(revoke::NOTIFY_TIMEOUT, session.held_jobs.until_sent()).await;
    // The answer to its last report must still reach it: it may not be admitted again to repeat the report.
    let disconnects_itself = session.granted.has(Extension::Drain);
    sleep(if disconnects_itself { DISCONNECTS_WITHIN } else { revoke::NOTIFY_TIMEOUT }).await;
}
