//! The progress of many jobs in one statement, for the followers of their logs and the daemons that hold them.

use coder_domain::ids::JobId;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Purpose, Tx, list as list_value, record, sql, statements};

record! {
    /// The fields of a job whose change its followers and its holder must notice.
    #[derive(Eq)]
    pub struct Progress {
        /// The id of the last log line; 0 when there is none.
        pub logs_last_id: i64,
        /// When a daemon acquired it.
        pub started_at: Option<Timestamp> = "started_us",
        /// When it was canceled.
        pub canceled_at: Option<Timestamp> = "canceled_us",
        /// When it ended.
        pub completed_at: Option<Timestamp> = "completed_us",
    }
}

impl Progress {
    /// Whether the holder must stop the job.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.canceled_at.is_some() || self.completed_at.is_some()
    }
}

statements! { "provisioner_jobs";
    LIST = sql("select id, logs_last_id, started_us, canceled_us, completed_us from provisioner_jobs
        where id in (select value from json_each($1))").purpose(Purpose::Heartbeat);
}

/// The existing jobs of `ids`.
pub async fn list(tx: &mut Tx, ids: &[JobId]) -> Result<Vec<(JobId, Progress)>> {
    let rows = tx.fetch(&LIST, vec![list_value(ids.iter().copied())]).await?;
    rows.iter().map(|row| Ok((row.get("id")?, Progress::from_row(row)?))).collect()
}
