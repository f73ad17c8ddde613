//! Finding and ending jobs whose daemon fell silent, or that nobody took (scheduling-and-auth 3.6).

use coder_domain::ids::JobId;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, sql, statements, values};

statements! { "provisioner_jobs";
    /// In random order, so that one bad row cannot keep the others from being reached.
    CANDIDATES = sql("select id from provisioner_jobs where completed_us is null
        and ((started_us is not null and updated_us < $1) or (started_us is null and updated_us < $2))
        order by random() limit $3");
}

/// Open jobs that are running or being canceled and silent since before `running_before`, or waiting since before
/// `pending_before`.
///
/// # Errors
/// Only when the database fails.
pub async fn list_candidates(
    tx: &mut Tx,
    running_before: Timestamp,
    pending_before: Timestamp,
    limit: i64,
) -> Result<Vec<JobId>> {
    let rows = tx.fetch(&CANDIDATES, values![running_before, pending_before, limit]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// Ends a job that has shown no sign of life since `updated_at`; a job that nobody took also gets a start.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it has moved since.
pub async fn finish(
    tx: &mut Tx,
    id: JobId,
    updated_at: Timestamp,
    error: &str,
    now: Timestamp,
) -> Result<()> {
    super::give_up(tx, id, super::While::SilentSince(updated_at), error, now).await
}
