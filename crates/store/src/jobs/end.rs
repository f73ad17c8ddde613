//! Ends jobs: canceled, reported by the daemon that holds them, or ended by the server.

use coder_domain::ids::{DaemonId, JobId};
use coder_domain::job::lifecycle::Guard;
use jiff::Timestamp;

use super::hold::{Holder, held_by};
use super::job::{STALE, sealed_input};
use super::queue_tables::{self, QueueEntry, standing_columns};
use crate::Result;
use crate::engine::{Document, Row, Tx, sql, statements, values};

/// The error text with the name of the job's daemon, so that its reader knows which machine to examine.
macro_rules! of_daemon {
    ($error:literal) => {
        concat!(
            "case when ",
            $error,
            " = '' then '' else ",
            $error,
            " || coalesce((select ' (daemon ' || daemon.name || ')' from provisioner_daemons as daemon
            where daemon.id = provisioner_jobs.worker_id), '') end"
        )
    };
}

statements! { "provisioner_jobs";
    CANCEL = sql(concat!("update provisioner_jobs set canceled_us = $2,
        completed_us = case when worker_id is null then $2 else completed_us end
        where id = $1 and completed_us is null and canceled_us is null
        and (cast($3 as boolean) is null or ($3 and started_us is null) or (not $3 and started_us is not null))
        returning worker_id, completed_us, ", standing_columns!()));
    FINISH = sql(concat!("update provisioner_jobs set completed_us = $4, updated_us = $4, lost_us = null,
        error = ", of_daemon!("$5"), ",
        error_code = $6 where ", held_by!()));
    FINISH_WITH_INPUT = sql(concat!("update provisioner_jobs set completed_us = $4, updated_us = $4, lost_us = null,
        input = $5, error = ", of_daemon!("$6"), " where ", held_by!()));
    FINISH_UNCLAIMED = sql(concat!("update provisioner_jobs set started_us = $2, completed_us = $2, updated_us = $2, error = $3
        where id = $1 and worker_id is null and completed_us is null and canceled_us is null
        returning worker_id, ", standing_columns!()));
    /// All guards that are not null must hold.
    GIVE_UP = sql(concat!("update provisioner_jobs set completed_us = $2, updated_us = $2, lost_us = null,
        started_us = coalesce(started_us, $2), error = ", of_daemon!("$3"), ", error_code = ''
        where id = $1 and completed_us is null and (cast($4 as bigint) is null or updated_us = $4)
        and (cast($5 as bigint) is null or lost_us = $5) and (cast($6 as text) is null or worker_id = $6)
        and (not $7 or worker_id is null)
        returning worker_id, ", standing_columns!()));
}

/// The state that a cancel requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedStatus {
    /// No daemon has acquired it.
    Pending,
    /// A daemon holds it.
    Running,
}

/// Cancels a job. A waiting job ends at once; a held job ends when its daemon has stopped it. Returns whether the job
/// has ended.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it has ended, was canceled before, or is not in the expected state.
pub async fn cancel(
    tx: &mut Tx,
    id: JobId,
    expected: Option<ExpectedStatus>,
    now: Timestamp,
) -> Result<bool> {
    let pending = expected.map(|expected| expected == ExpectedStatus::Pending);
    let entered = tx.enter().await?;
    let outcome = match tx.fetch_opt(&CANCEL, values![id, now, pending]).await {
        Ok(Some(row)) => leave(tx, &row).await,
        Ok(None) => Err(STALE),
        Err(error) => Err(error),
    };
    Ok(tx.exit(entered, outcome).await?)
}

/// Removes a job without an owner from the queue. Returns whether it had none.
async fn leave(tx: &mut Tx, row: &Row) -> Result<bool> {
    let worker: Option<DaemonId> = row.get("worker_id")?;
    if worker.is_none() {
        queue_tables::dequeue(tx, &QueueEntry::from_row(row)?);
    }
    Ok(worker.is_none())
}

/// Ends a job with success. Write its results in the same transaction.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the sender does not hold the job or the job has ended.
pub async fn complete(tx: &mut Tx, id: JobId, holder: impl Into<Holder>, now: Timestamp) -> Result<()> {
    fail(tx, id, holder, "", "", now).await
}

/// Ends a job whose result is stored, and replaces its private input. The input then identifies the accepted result, so
/// that a repeated message is recognized. The job succeeds when `error` is empty: a result may be complete and still
/// unusable. On Postgres this is pipelined, so an error may come at the commit.
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the sender does not hold the job or the job has ended.
pub async fn complete_with_input(
    tx: &mut Tx,
    id: JobId,
    holder: impl Into<Holder>,
    input: &Document,
    error: &str,
    now: Timestamp,
) -> Result<()> {
    let Holder { daemon, epoch } = holder.into();
    let mut row = values![id, daemon, epoch, now];
    row.push(sealed_input(tx, id, input));
    row.extend(values![error.to_owned()]);
    tx.execute_pipelined(&FINISH_WITH_INPUT, row, true).await
}

/// Ends a job with an error. An empty text counts as success, as on the wire (wire-protocol 5.6).
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when the sender does not hold the job or the job has ended.
pub async fn fail(
    tx: &mut Tx,
    id: JobId,
    holder: impl Into<Holder>,
    error: &str,
    error_code: &str,
    now: Timestamp,
) -> Result<()> {
    let Holder { daemon, epoch } = holder.into();
    let row = values![id, daemon, epoch, now, error.to_owned(), error_code.to_owned()];
    tx.change_one(&FINISH, row).await
}

/// Ends a waiting job without a daemon (orphan delete, scheduling-and-auth BLD-3).
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when a daemon holds it or it has ended.
pub async fn finish_unclaimed(tx: &mut Tx, id: JobId, error: &str, now: Timestamp) -> Result<()> {
    execute_give_up(tx, &FINISH_UNCLAIMED, values![id, now, error.to_owned()]).await
}

/// Ends a job by decision of the server (`coder_domain::job::lifecycle`). A job that no daemon acquired also gets a
/// start time (scheduling-and-auth REAP-4).
///
/// # Errors
/// [`Error::Stale`](crate::Error::Stale) when it has ended or the guard no longer holds.
pub async fn give_up(tx: &mut Tx, id: JobId, guard: Guard, error: &str, now: Timestamp) -> Result<()> {
    let (mut silent, mut lost, mut daemon) = (None, None, None);
    match guard {
        Guard::SilentSince(at) => silent = Some(at),
        Guard::LostSince(at) => lost = Some(at),
        Guard::HeldBy(holder) => daemon = Some(holder),
        Guard::Open | Guard::Pending => {}
    }
    let waiting = guard == Guard::Pending;
    execute_give_up(tx, &GIVE_UP, values![id, now, error.to_owned(), silent, lost, daemon, waiting]).await
}

async fn execute_give_up(
    tx: &mut Tx,
    statement: &crate::Statement,
    parameters: Vec<crate::engine::Value>,
) -> Result<()> {
    let entered = tx.enter().await?;
    let outcome = match tx.fetch_opt(statement, parameters).await {
        Ok(Some(row)) => leave(tx, &row).await,
        Ok(None) => Err(STALE),
        Err(error) => Err(error),
    };
    tx.exit(entered, outcome).await?;
    Ok(())
}
