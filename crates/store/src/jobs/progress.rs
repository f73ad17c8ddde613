//! How far jobs have come, as far as followers and holders care: one statement for many jobs.

use coder_domain::ids::JobId;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Purpose, Tx, list as list_value, record, sql, statements};

record! {
    /// What a follower or the holder of a job would want to look at when it changes.
    #[derive(Eq)]
    pub struct Progress {
        /// Id of the last log line, 0 when there is none.
        pub logs_last_id: i64,
        /// When a daemon took it.
        pub started_at: Option<Timestamp> = "started_us",
        /// When a cancel was asked for.
        pub canceled_at: Option<Timestamp> = "canceled_us",
        /// When it ended.
        pub completed_at: Option<Timestamp> = "completed_us",
    }
}

impl Progress {
    /// Whether the holder is to stop.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.canceled_at.is_some() || self.completed_at.is_some()
    }
}

statements! { "provisioner_jobs";
    LIST = sql("select id, logs_last_id, started_us, canceled_us, completed_us from provisioner_jobs
        where id in (select value from json_each($1))").purpose(Purpose::Heartbeat);
}

/// Those of `ids` that exist.
///
/// # Errors
/// Only when the database fails.
pub async fn list(tx: &mut Tx, ids: &[JobId]) -> Result<Vec<(JobId, Progress)>> {
    let rows = tx.fetch(&LIST, vec![list_value(ids.iter().copied())]).await?;
    rows.iter().map(|row| Ok((row.get("id")?, Progress::from_row(row)?))).collect()
}
