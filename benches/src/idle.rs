//! Memory of processes that have nothing to do.

use std::time::Duration;

use anyhow::Result;

use crate::Setup;
use crate::process::{Database, Deployment, resident_mib};
use crate::report::Row;

/// After this time the work of the start is over.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// A server with three built-in daemons, and one external daemon.
pub(crate) fn memory(setup: &Setup) -> Result<Vec<Row>> {
    let deployment = Deployment::start(setup, &Database::Sqlite, &["--provisioner-daemons=3"])?;
    let daemon = deployment.daemon("idle", &[], &[])?;
    std::thread::sleep(SETTLE_TIME);
    let server = resident_mib(deployment.server.0.id())?;
    let daemon = resident_mib(daemon.0.id())?;
    Ok(vec![
        Row::at_most("server idle, three built-in daemons, RSS", server, 30.0, "MiB"),
        Row::at_most("external daemon idle, RSS", daemon, 15.0, "MiB"),
    ])
}
