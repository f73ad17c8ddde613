//! What happens at once when whatever a daemon joined with counts no more: a key that is deleted, expires or changes, a
//! user, an organization. Its sessions end and its jobs fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::{JobId, KeyId, OrganizationId, UserId};
use coder_domain::job::lifecycle::{Cause, Ending, Guard};
use coder_domain::rbac::{Action, Object, Resource, Scopes, Subject, decide};
use coder_store::jobs;
use coder_store::users::UserStatus;
use coder_store::{Error, Tx, daemons, keys, organizations, tokens as rows, users};
use futures_util::future::join_all;

use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::provisioning::rescue::end_job::give_up;
use crate::provisioning::session::connected_daemons::{Ends, Who};

/// Longest time that a daemon gets to hear why its connection ends.
pub(crate) const FAREWELL: Duration = Duration::from_millis(300);

/// Why a key is valid no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Somebody deleted it.
    Deleted,
    /// Its time is over.
    Expired,
}

impl Reason {
    /// Why its jobs end.
    const fn cause(self) -> Cause {
        match self {
            Self::Deleted => Cause::KeyDeleted,
            Self::Expired => Cause::KeyExpired,
        }
    }
}

/// Which daemons have to go.
#[derive(Clone, Copy, Debug)]
enum Whose<'a> {
    Key(KeyId),
    Token(&'a str),
    /// For the user alone, or for all.
    Joined(UserId, OrganizationId, bool),
    Organization(OrganizationId),
}

impl Whose<'_> {
    fn is(self, who: &Who) -> bool {
        match self {
            Self::Key(key) => who.key == key,
            Self::Token(token) => who.token.as_deref() == Some(token),
            Self::Joined(user, organization, is_personal) => {
                who.user == Some(user) && who.organization == organization && who.is_personal == is_personal
            }
            Self::Organization(organization) => who.organization == organization,
        }
    }

    async fn jobs(self, tx: &mut Tx) -> Result<Vec<JobId>, Error> {
        match self {
            Self::Key(key) => jobs::list_of_key(tx, key).await,
            Self::Token(token) => jobs::list_of_token(tx, token).await,
            Self::Joined(user, organization, is_personal) => {
                jobs::list_joined_by(tx, user, organization, is_personal).await
            }
            Self::Organization(organization) => jobs::list_in_organization(tx, organization).await,
        }
    }
}

/// Call it after the commit that deleted the key, or when it has expired. Its running jobs fail with the reason, its
/// daemons hear so and are disconnected, and other servers on the same database hear so. Returns how many sessions ended
/// here.
///
/// # Errors
/// When the database fails; sessions end all the same, and their jobs when their grace does.
pub async fn key(app: &App, key: KeyId, reason: Reason) -> Result<usize, Error> {
    app.events.tell(Hint::Key(key));
    key_here(app, key, reason).await
}

/// As [`key`], where other servers find out by themselves.
pub(crate) async fn key_here(app: &App, key: KeyId, reason: Reason) -> Result<usize, Error> {
    let sessions = end(app, Whose::Key(key), reason.cause()).await?;
    tracing::info!(%key, ?reason, sessions, "the sessions of a provisioner key were ended");
    Ok(sessions)
}

/// Call it after the commit that suspended or deleted a user, or took roles or a membership away: daemons that joined with
/// a token of the user go where the user may not run them any more, as with a deleted key.
pub async fn user(app: &App, user: UserId) {
    app.events.tell(Hint::User(user));
    // The change is made whatever comes now; jobs that could not be ended are found by their daemons' silence.
    if let Err(error) = users_here(app, &[user]).await {
        tracing::error!(%user, %error, "the daemons of a user could not be disconnected");
    }
}

/// Call it after the commit that removed a token of a user, or when one has expired: daemons that joined with it go, as
/// with a deleted key.
pub async fn token(app: &App, user: UserId) {
    app.events.tell(Hint::Tokens(user));
    let ended = async {
        let mut all = app.scheduler.connected().tokens(&[user]);
        all.extend(daemons::list_tokens_in_use(&mut app.store.reader().await?, user).await?);
        end_tokens(app, all).await
    };
    if let Err(error) = ended.await {
        tracing::error!(%user, %error, "the daemons of a token could not be disconnected");
    }
}

/// As [`token`], where tokens of several users are gone: what a token minted for other people ends with it.
pub async fn tokens(app: &App, users: &[UserId]) {
    for user in users {
        token(app, *user).await;
    }
}

/// As [`token`] in the background, for who cannot wait for daemons to leave. Asks nothing of the database unless a daemon
/// here joined with a token of this user; one that is away is refused when it comes back.
pub fn tokens_in_use(app: &App, user: UserId) {
    app.events.tell(Hint::Tokens(user));
    if app.scheduler.connected().tokens(&[user]).is_empty() {
        return;
    }
    let ended = app.clone();
    app.lifecycle.spawn("ended token", async move {
        if let Err(error) = tokens_here(&ended, &[user]).await {
            tracing::error!(%user, %error, "the daemons of a token could not be disconnected");
        }
    });
}

/// Writes down for other servers that tokens of these users are gone. Let it be the last of the transaction.
///
/// # Errors
/// Only when the database fails.
pub async fn write_down_tokens(
    app: &App,
    tx: &mut Tx,
    users: &[UserId],
    now: Timestamp,
) -> Result<(), Error> {
    for user in users {
        write_down(&app.store, tx, Hint::Tokens(*user), now).await?;
    }
    Ok(())
}

/// Ends the sessions of those that joined with a token of these users which is gone.
pub(crate) async fn tokens_here(app: &App, users: &[UserId]) -> Result<(), Error> {
    end_tokens(app, app.scheduler.connected().tokens(users)).await
}

async fn end_tokens(app: &App, all: BTreeSet<String>) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    let all: Vec<_> = all.into_iter().collect();
    let ended = rows::list_ended(&mut app.store.reader().await?, &all, app.now()).await?;
    for token in ended {
        let sessions = end(app, Whose::Token(&token), Cause::TokenEnded).await?;
        tracing::info!(token, sessions, "the daemons of a token were disconnected");
    }
    Ok(())
}

/// Call it after the commit that removed an organization: its daemons go.
pub async fn organization(app: &App, organization: OrganizationId) {
    app.events.tell(Hint::Organization(organization));
    if let Err(error) = organizations_here(app, &[organization]).await {
        tracing::error!(%organization, %error, "the daemons of an organization could not be disconnected");
    }
}

/// Ends what these users may not run any more, as the database says.
pub(crate) async fn users_here(app: &App, users: &[UserId]) -> Result<(), Error> {
    let mut joined: BTreeSet<_> = app.scheduler.connected().users();
    joined.retain(|(user, ..)| users.contains(user));
    let mut tx = app.store.reader().await?;
    for user in users {
        let away = daemons::list_joined_organizations(&mut tx, *user).await?;
        joined.extend(away.into_iter().map(|(organization, is_personal)| (*user, organization, is_personal)));
    }
    drop(tx);
    for (user, organization, is_personal) in joined {
        if !may_run(&mut app.store.reader().await?, user, organization, is_personal).await? {
            let whose = Whose::Joined(user, organization, is_personal);
            let sessions = end(app, whose, Cause::UserNotAllowed).await?;
            tracing::info!(%user, %organization, sessions, "the daemons of a user were disconnected");
        }
    }
    Ok(())
}

/// Ends what belongs to those of these organizations that are gone.
pub(crate) async fn organizations_here(app: &App, all: &[OrganizationId]) -> Result<(), Error> {
    for id in all {
        if organizations::find(&mut app.store.reader().await?, *id).await?.is_none() {
            let sessions = end(app, Whose::Organization(*id), Cause::OrganizationRemoved).await?;
            tracing::info!(organization = %id, sessions, "the daemons of an organization were disconnected");
        }
    }
    Ok(())
}

/// Whether a user may run daemons in an organization, for himself alone or for all.
pub(crate) async fn may_run(
    tx: &mut Tx,
    user: UserId,
    organization: OrganizationId,
    is_personal: bool,
) -> Result<bool, Error> {
    let Some(row) = users::find(tx, user).await?.filter(|row| row.status != UserStatus::Suspended) else {
        return Ok(false);
    };
    if organizations::find(tx, organization).await?.is_none() {
        return Ok(false);
    }
    let memberships = organizations::list_memberships(tx, &[user]).await?;
    let roles = |roles: &[String]| roles.iter().filter_map(|role| role.parse().ok()).collect();
    let organizations: BTreeMap<_, _> =
        memberships.iter().map(|member| (member.organization_id, roles(&member.roles))).collect();
    let site = row.site_roles.iter().filter_map(|role| role.parse().ok()).collect();
    let subject = Subject { user, site, organizations, scopes: Scopes::all() };
    let daemon = Object::in_organization(Resource::ProvisionerDaemon, organization);
    let daemon = if is_personal { daemon.owned_by(user) } else { daemon };
    let place = Object::in_organization(Resource::Organization, organization);
    Ok(decide(&subject, Action::Create, daemon) && decide(&subject, Action::Read, place))
}

async fn end(app: &App, whose: Whose<'_>, cause: Cause) -> Result<usize, Error> {
    let sessions: Ends = app.scheduler.connected().that(|who| whose.is(who));
    // Whoever holds nothing can end at once; nobody gets another job from here on.
    for (_, hand) in &sessions {
        hand.retire();
    }
    let ending = Ending { guard: Guard::Open, cause };
    let ended = end_jobs(app, whose, &ending).await;
    let farewells = join_all(sessions.iter().map(|(_, hand)| hand.all_told()));
    // A daemon that does not listen is not waited for.
    let _ = tokio::time::timeout(FAREWELL, farewells).await;
    for (close, _) in &sessions {
        close.cancel();
    }
    // A claim that was under way when the first look was taken has its result by now, or fails for its connection.
    ended.and(end_jobs(app, whose, &ending).await)?;
    Ok(sessions.len())
}

async fn end_jobs(app: &App, whose: Whose<'_>, ending: &Ending) -> Result<(), Error> {
    let jobs = whose.jobs(&mut app.store.reader().await?).await?;
    for job in jobs {
        give_up(app, job, ending).await?;
    }
    Ok(())
}

/// Call it after the commit that changed when a key ends, its secret or its networks: its sessions look at its terms
/// again.
pub fn changed(app: &App, key: KeyId) {
    app.events.tell(Hint::Key(key));
    app.scheduler.connected().recheck_key(key);
}

/// At the start: keys may have expired while no server ran.
///
/// # Errors
/// When the database fails.
pub async fn expired_meanwhile(app: &App) -> Result<(), Error> {
    let expired = keys::list_expired_in_use(&mut app.store.reader().await?, app.now()).await?;
    for id in expired {
        key_here(app, id, Reason::Expired).await?;
    }
    Ok(())
}
