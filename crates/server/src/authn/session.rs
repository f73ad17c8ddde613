//! Sessions and tokens: finding one in a request, and finding its user. One indexed read per request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coder_api::headers::{SESSION_COOKIE, SESSION_TOKEN};
use coder_domain::Timestamp;
use coder_domain::ids::OrganizationId;
use coder_domain::key::ApiToken;
use coder_domain::rbac::{OrgRole, Scopes, Subject};
use coder_domain::secret::Secret;
use coder_store::sessions::{self, UserSession};
use coder_store::users::{self, LoginType, UserStatus};
use coder_store::workspaces::schedules;
use coder_store::{Tx, tokens, transaction};
use http::{HeaderMap, Uri, header};
use jiff::SignedDuration;

use crate::context::App;
use crate::http::caller::Caller;
use crate::http::error::Error;
use crate::http::origin::Origin;
use crate::routes::announce;

/// How a request carries its token (scheduling-and-auth TOK-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// The cookie `coder_session_token`, which browsers add to every request.
    Cookie,
    /// Anything a client adds on purpose.
    Explicit,
}

/// A token as presented.
#[derive(Debug, Clone)]
pub struct Presented {
    /// The text.
    pub token: Secret,
    /// Where it was found first.
    pub carrier: Carrier,
    /// Whether a header repeats it. A page of another origin cannot set that header.
    pub repeated: bool,
}

/// Finds the token of a request; the first carrier that is not empty wins.
#[must_use]
pub fn presented(headers: &HeaderMap, uri: &Uri) -> Option<Presented> {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let bearer = || {
        let (scheme, token) = text(header::AUTHORIZATION.as_str())?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
    };
    let explicit =
        |token: &str| Presented { token: Secret::new(token), carrier: Carrier::Explicit, repeated: true };
    if let Some(token) = cookie(headers, SESSION_COOKIE) {
        let repeated = text(SESSION_TOKEN).is_some() || bearer().is_some();
        return Some(Presented { token: Secret::new(token), carrier: Carrier::Cookie, repeated });
    }
    if let Some(token) = query(uri, SESSION_COOKIE) {
        return Some(explicit(&token));
    }
    text(SESSION_TOKEN)
        .or_else(bearer)
        .map(explicit)
        .or_else(|| query(uri, "access_token").map(|token| explicit(&token)))
}

/// The token of the cookie alone, for pages.
#[must_use]
pub fn presented_by_cookie(headers: &HeaderMap) -> Option<Presented> {
    let token = Secret::new(cookie(headers, SESSION_COOKIE)?);
    Some(Presented { token, carrier: Carrier::Cookie, repeated: false })
}

/// The value of a cookie, `None` when empty.
#[must_use]
pub fn cookie<'a>(headers: &'a HeaderMap, name: &'a str) -> Option<&'a str> {
    cookies(headers, name).next()
}

/// The values of all cookies with this name, without empty ones.
pub fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(move |(key, value)| *key == name && !value.is_empty())
        .map(|(_, value)| value)
}

fn query(uri: &Uri, name: &str) -> Option<String> {
    let pairs = url::form_urlencoded::parse(uri.query()?.as_bytes());
    pairs
        .into_iter()
        .find(|(key, value)| key == name && !value.is_empty())
        .map(|(_, value)| value.into_owned())
}

/// As [`authenticate_from`], without the origin of the request.
pub async fn authenticate(app: &App, presented: &Presented) -> Result<Caller, Error> {
    authenticate_from(app, presented, Origin::default()).await
}

/// Finds the user of a token. There is no cache, so a revoked token is refused everywhere at once.
pub async fn authenticate_from(app: &App, presented: &Presented, origin: Origin) -> Result<Caller, Error> {
    let token = ApiToken::parse(presented.token.expose())
        .ok_or_else(|| signed_out("The token has an invalid format, it must be <id>-<secret>."))?;
    let found = sessions::find(&mut app.store.reader().await?, &token.id).await?;
    let Some(session) = found.filter(|found| found.key.hashed_secret.verify(&token.hashed())) else {
        return Err(signed_out("The token is unknown or has been revoked."));
    };
    let now = app.now();
    if session.key.expires_at <= now {
        return Err(signed_out(&format!("The token expired at {}.", session.key.expires_at)));
    }
    if session.user.status == UserStatus::Suspended || session.user.is_system {
        return Err(Error::unauthorized(
            "User is not active (status = \"suspended\"). Contact an admin to reactivate your account.",
        ));
    }
    let session = note_use(app, session, &origin, now).await?;
    let subject = subject(&session);
    Ok(Caller {
        user: Arc::new(session.user),
        key: Arc::new(session.key),
        subject: Arc::new(subject),
        origin: Arc::new(origin),
    })
}

/// The roles of memberships, as a subject holds them.
pub fn held_roles<'a>(
    memberships: impl Iterator<Item = (OrganizationId, &'a [String])>,
) -> BTreeMap<OrganizationId, BTreeSet<OrgRole>> {
    let known = |roles: &[String]| roles.iter().filter_map(|role| role.parse().ok()).collect();
    memberships.map(|(organization, roles)| (organization, known(roles))).collect()
}

/// Who a token speaks for. Unknown roles, such as those of a newer release, grant nothing.
fn subject(session: &UserSession) -> Subject {
    let memberships =
        session.memberships.iter().map(|(organization, roles)| (*organization, roles.as_slice()));
    let organizations = held_roles(memberships);
    let site = session.user.site_roles.iter().filter_map(|role| role.parse().ok()).collect();
    let scopes = Scopes::from_stored(&session.key.scopes, &session.key.allow_list);
    Subject { user: session.user.id, site, organizations, scopes }
}

/// Who a token that was accepted before speaks for now; none when it has ended or its user may not use it any more.
pub async fn find_subject(
    tx: &mut Tx,
    token: &str,
    now: Timestamp,
) -> Result<Option<Subject>, coder_store::Error> {
    let session = sessions::find(tx, token).await?;
    let is_valid = |session: &UserSession| {
        session.key.expires_at > now
            && session.user.status != UserStatus::Suspended
            && !session.user.is_system
    };
    Ok(session.filter(is_valid).as_ref().map(subject))
}

/// Stores that the token was used and extends its expiry, at most hourly (scheduling-and-auth TOK-5, TOK-7).
async fn note_use(
    app: &App,
    mut session: UserSession,
    origin: &Origin,
    now: Timestamp,
) -> Result<UserSession, Error> {
    let hour = SignedDuration::from_hours(1);
    let key = &mut session.key;
    let stale = now.duration_since(key.last_used_at) >= hour;
    let slides = app.config.sessions.refresh_expiry && key.login_type != LoginType::Token;
    let extended = key.extended(now);
    let extend = slides && extended.duration_since(key.expires_at) >= hour;
    let dormant = session.user.status == UserStatus::Dormant;
    if !(stale || extend || dormant) {
        return Ok(session);
    }
    key.last_used_at = now;
    if origin.address.is_some() {
        key.ip_address = origin.ip();
    }
    if extend {
        key.expires_at = extended;
    }
    let (key, user) = (&session.key, session.user.id);
    transaction!(app.store, coder_store::Error, |tx| {
        // A token that is deleted at this moment is not an error here: the next request will be refused.
        for outcome in [
            tokens::update_used(tx, &key.id, now, key.expires_at, &key.ip_address).await,
            users::update_seen(tx, user, now).await,
        ] {
            match outcome {
                Ok(()) | Err(coder_store::Error::Stale { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if dormant {
            schedules::owner_changed(tx, user, now).await?;
        }
        Ok(())
    })?;
    if dormant {
        announce::schedules_changed(app);
        session.user.status = UserStatus::Active;
    }
    session.user.last_seen_at = Some(now);
    Ok(session)
}

/// 401.
#[must_use]
pub fn signed_out(detail: &str) -> Error {
    Error::unauthorized("You are signed out or your session has expired. Please sign in again to continue.")
        .detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(headers: &[(&str, &str)], uri: &str) -> Option<(String, Carrier, bool)> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let found = presented(&map, &uri.parse().unwrap())?;
        Some((found.token.expose().to_owned(), found.carrier, found.repeated))
    }

    #[test]
    fn tok_2_first_carrier_that_is_not_empty_wins() {
        let all = [
            ("cookie", "a=b; coder_session_token=c"),
            ("coder-session-token", "h"),
            ("authorization", "Bearer z"),
        ];
        let uri = "/x?access_token=t&coder_session_token=q";
        let explicit = |text: &str| Some((text.to_owned(), Carrier::Explicit, true));
        assert_eq!(find(&all, uri), Some(("c".to_owned(), Carrier::Cookie, true)));
        assert_eq!(find(&all[..1], "/"), Some(("c".to_owned(), Carrier::Cookie, false)));
        assert_eq!(find(&all[1..], uri), explicit("q"));
        assert_eq!(find(&all[1..], "/"), explicit("h"));
        assert_eq!(find(&all[2..], "/"), explicit("z"));
        assert_eq!(find(&[], "/?access_token=t"), explicit("t"));
        assert_eq!(find(&[("coder-session-token", ""), ("authorization", "bearer z")], "/"), explicit("z"));
        assert_eq!(find(&[("coder-session-token", ""), ("cookie", "coder_session_token=")], "/"), None);
        assert_eq!(find(&[("authorization", "Basic z")], "/"), None);
        assert_eq!(find(&[("authorization", "Bearer  ")], "/"), None);
        assert_eq!(find(&[("authorization", "Bearer")], "/"), None);
        assert_eq!(find(&[], "/?coder_session_token=&x=y&coder_session_token=q"), explicit("q"));
        // A header repeats the cookie, or a bearer token does.
        let cookie = ("cookie", "x; =y; coder_session_token=c");
        for (more, repeated) in [
            (("coder-session-token", "h"), true),
            (("authorization", "Bearer z"), true),
            (("authorization", "Basic z"), false),
            (("coder-session-token", ""), false),
        ] {
            assert_eq!(find(&[cookie, more], "/"), Some(("c".to_owned(), Carrier::Cookie, repeated)));
        }
    }
}
