//! Rows of daemons that are there more than once: when one connection ends, another one goes on for the row.

use std::sync::Arc;

use coder_domain::ids::DaemonId;
use coder_store::{Error, daemons};

use crate::context::App;

/// Notes that a connection of a daemon goes on that is called `row`, where the row names `ended`, or without that where the
/// row says that the daemon has left.
///
/// # Errors
/// When the database fails; the next heartbeat then says that the daemon is there.
pub async fn go_on(
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
            // It has ended meanwhile, when the row did not name it yet.
            Some(another) => ended = Some(std::mem::replace(&mut row, another)),
            None => return daemons::update_left(&mut tx, daemon, &row, app.now()).await,
        }
    }
}

/// Other servers noted that connections of these daemons have ended: those that are connected here are there all the same.
///
/// # Errors
/// When the database fails.
pub async fn elsewhere_left(app: &App, daemons: &[DaemonId]) -> Result<(), Error> {
    if daemons.is_empty() {
        return Ok(());
    }
    let left = daemons::list_left(&mut app.store.reader().await?, daemons).await?;
    for daemon in left {
        if let Some(row) = app.scheduler.connected().row(daemon) {
            go_on(app, daemon, None, row).await?;
        }
    }
    Ok(())
}
