//! Which daemons are connected. The row of a daemon with several connections names one of them, and another one when that
//! ends.

use std::sync::Arc;

use coder_domain::Timestamp;
use coder_domain::ids::DaemonId;
use coder_store::daemons::{ConnectedDaemons, Liveness};
use coder_store::{Error, daemons};
use jiff::SignedDuration;

use crate::context::App;

/// A daemon without a known connection is offline when it was not seen for so long.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_secs(90);

/// The daemons that are known to be connected, without comparing clocks: those of this server, and those of other servers
/// that send heartbeats.
#[must_use]
pub fn connected(app: &App) -> ConnectedDaemons {
    let (server, servers) = (app.events.outbox().own(), app.events.outbox().running());
    ConnectedDaemons { server, daemons: app.scheduler.connected().daemons(), servers }
}

/// The condition for daemons that were seen within `age`.
#[must_use]
pub fn seen_within(app: &App, age: SignedDuration) -> Liveness {
    seen_within_of(app, app.now(), age)
}

/// As [`seen_within`], at another time.
#[must_use]
pub fn seen_within_of(app: &App, at: Timestamp, age: SignedDuration) -> Liveness {
    let since = at.checked_sub(age).unwrap_or(Timestamp::MIN);
    let until = at.checked_add(STALE_AFTER).unwrap_or(Timestamp::MAX);
    Liveness { since, until, connected: connected(app) }
}

/// Stores `row` as the connection of a daemon. The row of the daemon must name the connection `ended`; without `ended`,
/// it must say that the daemon has left.
///
/// # Errors
/// When the database fails. The next heartbeat then corrects the row.
pub async fn set_connection(
    app: &App,
    daemon: DaemonId,
    mut ended: Option<Arc<str>>,
    mut row: Arc<str>,
) -> Result<(), Error> {
    let mut tx = app.store.single().await?;
    loop {
        daemons::update_connection(&mut tx, daemon, ended.as_deref(), &row).await?;
        match app.scheduler.connected().row(daemon) {
            Some(there) if there == row => return Ok(()),
            // It ended before the row named it.
            Some(another) => ended = Some(std::mem::replace(&mut row, another)),
            None => return daemons::update_disconnected(&mut tx, daemon, &row, app.now()).await,
        }
    }
}

/// Other servers noted that connections of these daemons have ended: those that are connected here stay connected.
pub async fn left_on_other_servers(app: &App, daemons: &[DaemonId]) -> Result<(), Error> {
    if daemons.is_empty() {
        return Ok(());
    }
    let left = daemons::list_disconnected(&mut app.store.reader().await?, daemons).await?;
    for daemon in left {
        if let Some(row) = app.scheduler.connected().row(daemon) {
            set_connection(app, daemon, None, row).await?;
        }
    }
    Ok(())
}
