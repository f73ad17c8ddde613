//! Disconnects users from agents and apps that they may not reach any more. Agents forget them at once, which ends every
//! connection inside the tunnel.

use std::collections::BTreeSet;

use coder_domain::ids::UserId;
use coder_store::{Error, tokens};

use super::access::{find_place, may_connect};
use super::user_connections::{Target, UserConnection};
use crate::apps::may_still_open;
use crate::authn::session;
use crate::context::App;

/// Checks the connections of these users again, after their roles, memberships or status changed.
///
/// # Errors
/// Only when the database fails. Expired and deleted tokens are found later by [`ended_tokens`].
pub async fn users(app: &App, users: &[UserId]) -> Result<(), Error> {
    for connection in app.network.users.matching(|connection| users.contains(&connection.user)) {
        // Their clients connect again and are then authorized anew.
        let reconnects = matches!(connection.target, Target::OwnAgents | Target::Reading);
        if reconnects || !is_allowed(app, &connection).await? {
            revoke(&connection);
        }
    }
    Ok(())
}

/// Checks every connection again: an organization was removed, or hints may have been lost.
///
/// # Errors
/// As [`users`].
pub async fn everybody(app: &App) -> Result<(), Error> {
    for connection in app.network.users.matching(|_| true) {
        if !is_allowed(app, &connection).await? {
            revoke(&connection);
        }
    }
    Ok(())
}

/// Disconnects those whose token was deleted or has expired: one statement for all of them.
pub async fn ended_tokens(app: &App) -> Result<(), Error> {
    let known = app.network.users.tokens();
    if known.is_empty() {
        return Ok(());
    }
    let ended: BTreeSet<_> =
        tokens::list_ended(&mut app.store.reader().await?, &known, app.now()).await?.into_iter().collect();
    for connection in app.network.users.matching(|connection| is_one_of(connection, &ended)) {
        revoke(&connection);
    }
    Ok(())
}

fn is_one_of(connection: &UserConnection, ended: &BTreeSet<String>) -> bool {
    connection.token.as_ref().is_some_and(|token| ended.contains(&**token))
}

/// Whether a connection may go on.
pub async fn is_allowed(app: &App, connection: &UserConnection) -> Result<bool, Error> {
    let mut tx = app.store.reader().await?;
    let subject = match &connection.token {
        Some(token) => session::find_subject(&mut tx, token, app.now()).await?,
        None => None,
    };
    if subject.is_none() && connection.token.is_some() {
        return Ok(false);
    }
    match &connection.target {
        Target::OwnAgents | Target::Reading => Ok(subject.is_some()),
        Target::Agent(agent) => {
            let found = find_place(&mut tx, *agent).await?;
            Ok(found.zip(subject).is_some_and(|((_, workspace), subject)| may_connect(&subject, &workspace)))
        }
        Target::App(request) => may_still_open(app, &mut tx, request, subject.as_ref()).await,
    }
}

fn revoke(connection: &UserConnection) {
    tracing::info!(user_id = %connection.user, reaches = ?connection.target, "ended a user's connection");
    connection.revoked.cancel();
}
