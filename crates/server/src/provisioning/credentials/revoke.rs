//! Ends the sessions of daemons and fails their jobs, as soon as their key, token, user or organization does not admit them
//! any more.

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
use crate::network;
use crate::provisioning::rescue::end_job::end_job;
use crate::provisioning::session::connected_daemons::{DaemonIdentity, OpenConnections};

/// Longest time for telling a daemon why its connection ends.
pub(crate) const NOTIFY_TIMEOUT: Duration = Duration::from_millis(300);

/// Why a key is not valid any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Somebody deleted it.
    Deleted,
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

/// Which daemons are disconnected.
#[derive(Clone, Copy, Debug)]
enum RevokeScope<'a> {
    Key(KeyId),
    Token(&'a str),
    /// By user, organization, and whether the daemon takes only that user's jobs.
    Joined(UserId, OrganizationId, bool),
    Organization(OrganizationId),
}

impl RevokeScope<'_> {
    fn is(self, identity: &DaemonIdentity) -> bool {
        match self {
            Self::Key(key) => identity.key == key,
            Self::Token(token) => identity.token.as_deref() == Some(token),
            Self::Joined(user, organization, is_personal) => {
                identity.user == Some(user)
                    && identity.organization == organization
                    && identity.is_personal == is_personal
            }
            Self::Organization(organization) => identity.organization == organization,
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
/// daemons are notified and disconnected, and other servers on the same database get a hint. Returns how many sessions
/// ended here.
///
/// # Errors
/// When the database fails. Sessions end nevertheless, and their jobs at the end of their grace period.
pub async fn key(app: &App, key: KeyId, reason: Reason) -> Result<usize, Error> {
    app.events.notify(Hint::Key(key));
    key_here(app, key, reason).await
}

/// As [`key`], without a hint to other servers.
pub(crate) async fn key_here(app: &App, key: KeyId, reason: Reason) -> Result<usize, Error> {
    let sessions = end(app, RevokeScope::Key(key), reason.cause()).await?;
    tracing::info!(key_id = %key, ?reason, sessions, "ended the sessions of a provisioner key");
    Ok(sessions)
}

/// Call it after the commit that suspended or deleted a user, or removed roles or a membership. Daemons that joined with a
/// token of the user are disconnected where the user may not run them any more, as with a deleted key.
pub async fn user(app: &App, user: UserId) {
    app.events.notify(Hint::User(user));
    // The change is committed. The reaper finds jobs that could not be ended.
    if let Err(error) = users_here(app, &[user]).await {
        tracing::error!(user_id = %user, %error, "cannot disconnect the daemons of a user");
    }
}

/// Call it after the commit that deleted a token of a user, or when one has expired. Daemons that joined with it are
/// disconnected, as with a deleted key.
pub async fn token(app: &App, user: UserId) {
    app.events.notify(Hint::Tokens(user));
    let ended = async {
        network::revoke::ended_tokens(app).await?;
        let mut all = app.scheduler.connected().tokens(&[user]);
        all.extend(daemons::list_tokens_in_use(&mut app.store.reader().await?, user).await?);
        end_tokens(app, all).await
    };
    if let Err(error) = ended.await {
        tracing::error!(user_id = %user, %error, "cannot disconnect the daemons of a token");
    }
}

/// As [`token`], for several users: tokens that a token created for other users are deleted with it.
pub async fn tokens(app: &App, users: &[UserId]) {
    for user in users {
        token(app, *user).await;
    }
}

/// As [`token`], in the background. It reads the database only when a daemon here joined with a token of this user. A daemon
/// that is not connected is refused when it reconnects.
pub fn tokens_in_use(app: &App, user: UserId) {
    app.events.notify(Hint::Tokens(user));
    if app.scheduler.connected().tokens(&[user]).is_empty() && !app.network.users.has_user(user) {
        return;
    }
    let Some(due) = app.ended_tokens.add(user) else { return };
    let context = app.clone();
    app.lifecycle.spawn("ended tokens", async move {
        tokio::time::sleep_until(due).await;
        let users = context.ended_tokens.take();
        if let Err(error) = tokens_here(&context, &users).await {
            tracing::error!(?users, %error, "cannot disconnect the daemons of ended tokens");
        }
    });
}

/// Stores for other servers that tokens of these users were deleted. Call it last in the transaction.
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

/// Ends the sessions that joined with a deleted or expired token of these users.
pub(crate) async fn tokens_here(app: &App, users: &[UserId]) -> Result<(), Error> {
    network::revoke::ended_tokens(app).await?;
    end_tokens(app, app.scheduler.connected().tokens(users)).await
}

async fn end_tokens(app: &App, all: BTreeSet<String>) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    let all: Vec<_> = all.into_iter().collect();
    let ended = rows::list_ended(&mut app.store.reader().await?, &all, app.now()).await?;
    for token in ended {
        let sessions = end(app, RevokeScope::Token(&token), Cause::TokenEnded).await?;
        tracing::info!(token_id = token, sessions, "disconnected the daemons of a token");
    }
    Ok(())
}

/// Call it after the commit that removed an organization. Its daemons are disconnected.
pub async fn organization(app: &App, organization: OrganizationId) {
    app.events.notify(Hint::Organization(organization));
    if let Err(error) = organizations_here(app, &[organization]).await {
        tracing::error!(organization_id = %organization, %error, "cannot disconnect the daemons of an organization");
    }
}

/// Ends the daemons that these users may not run any more.
pub(crate) async fn users_here(app: &App, users: &[UserId]) -> Result<(), Error> {
    network::revoke::users(app, users).await?;
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
            let scope = RevokeScope::Joined(user, organization, is_personal);
            let sessions = end(app, scope, Cause::UserNotAllowed).await?;
            tracing::info!(user_id = %user, organization_id = %organization, sessions, "disconnected the daemons of a user");
        }
    }
    Ok(())
}

/// Ends the daemons of those of these organizations that were removed.
pub(crate) async fn organizations_here(app: &App, all: &[OrganizationId]) -> Result<(), Error> {
    if !all.is_empty() {
        network::revoke::everybody(app).await?;
    }
    for id in all {
        if organizations::find(&mut app.store.reader().await?, *id).await?.is_none() {
            let sessions = end(app, RevokeScope::Organization(*id), Cause::OrganizationRemoved).await?;
            tracing::info!(organization_id = %id, sessions, "disconnected the daemons of an organization");
        }
    }
    Ok(())
}

/// Whether a user may run daemons in an organization, personal ones or shared ones.
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

async fn end(app: &App, scope: RevokeScope<'_>, cause: Cause) -> Result<usize, Error> {
    let sessions: OpenConnections = app.scheduler.connected().matching(|identity| scope.is(identity));
    // From here on none of them gets another job.
    for (_, held_jobs) in &sessions {
        held_jobs.retire();
    }
    let ending = Ending { guard: Guard::Open, cause };
    let ended = end_jobs(app, scope, &ending).await;
    let notified = join_all(sessions.iter().map(|(_, held_jobs)| held_jobs.until_sent()));
    // Do not wait longer for a daemon that does not read.
    let _ = tokio::time::timeout(NOTIFY_TIMEOUT, notified).await;
    for (close, _) in &sessions {
        close.cancel();
    }
    // A claim that was in progress at the first query is stored by now, or fails with its connection.
    ended.and(end_jobs(app, scope, &ending).await)?;
    Ok(sessions.len())
}

async fn end_jobs(app: &App, scope: RevokeScope<'_>, ending: &Ending) -> Result<(), Error> {
    let jobs = scope.jobs(&mut app.store.reader().await?).await?;
    for job in jobs {
        end_job(app, job, ending).await?;
    }
    Ok(())
}

/// Call it after the commit that changed the expiry, the secret or the networks of a key. Its sessions check it again.
pub fn changed(app: &App, key: KeyId) {
    app.events.notify(Hint::Key(key));
    app.scheduler.connected().recheck_key(key);
}

/// Ends the sessions and jobs of keys that expired while no server ran.
pub async fn expired_while_stopped(app: &App) -> Result<(), Error> {
    let expired = keys::list_expired_in_use(&mut app.store.reader().await?, app.now()).await?;
    for id in expired {
        key_here(app, id, Reason::Expired).await?;
    }
    Ok(())
}
