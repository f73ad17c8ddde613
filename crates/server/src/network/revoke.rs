//! Disconnects users from agents that they may not reach any more. Their agents forget them at once, which ends every
//! connection inside the tunnel.

use std::collections::BTreeSet;

use coder_domain::ids::UserId;
use coder_store::{Error, tokens};

use super::access::{find_place, may_connect};
use super::user_connections::UserConnection;
use crate::authn::session;
use crate::context::App;

/// Checks the connections of these users again, after their roles, memberships or status changed.
///
/// # Errors
/// Only when the database fails. Expired and deleted tokens are found later by [`ended_tokens`].
pub async fn users(app: &App, users: &[UserId]) -> Result<(), Error> {
    for connection in app.network.users.matching(|connection| users.contains(&connection.user)) {
        // One that reaches several agents connects again, and each of its tunnels is authorized anew.
        if connection.agent.is_none() || !is_allowed(app, &connection).await? {
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
///
/// # Errors
/// Only when the database fails.
pub async fn ended_tokens(app: &App) -> Result<(), Error> {
    let known = app.network.users.tokens();
    if known.is_empty() {
        return Ok(());
    }
    let ended: BTreeSet<_> =
        tokens::list_ended(&mut app.store.reader().await?, &known, app.now()).await?.into_iter().collect();
    for connection in app.network.users.matching(|connection| ended.contains(&*connection.token)) {
        revoke(&connection);
    }
    Ok(())
}

/// Whether a connection may go on.
///
/// # Errors
/// Only when the database fails.
pub async fn is_allowed(app: &App, connection: &UserConnection) -> Result<bool, Error> {
    let mut tx = app.store.reader().await?;
    let Some(subject) = session::find_subject(&mut tx, &connection.token, app.now()).await? else {
        return Ok(false);
    };
    let Some(agent) = connection.agent else { return Ok(true) };
    let found = find_place(&mut tx, agent).await?;
    Ok(found.is_some_and(|(_, workspace)| may_connect(&subject, &workspace)))
}

fn revoke(connection: &UserConnection) {
    tracing::info!(user_id = %connection.user, agent_id = ?connection.agent, "ended a user's connection to an agent");
    connection.revoked.cancel();
}
