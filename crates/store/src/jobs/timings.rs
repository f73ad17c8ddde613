//! The durations of a job's steps, as its daemon measured them.

use coder_domain::ids::JobId;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, batch, record, sql, statements, values};

record! {
    /// One step.
    pub struct Timing {
        /// `init`, `plan`, `graph` or `apply`.
        pub stage: String,
        /// The provider.
        pub source: String,
        /// The action.
        pub action: String,
        /// The resource's address.
        pub resource: String,
        pub started_at: Timestamp = "started_us",
        pub ended_at: Timestamp = "ended_us",
    }
}

statements! { "provisioner_job_timings";
    INSERT = sql("insert into provisioner_job_timings
        (job_id, position, stage, source, action, resource, started_us, ended_us)
        select $1, cast(item.key as bigint), json_extract(item.value, '$.stage'), json_extract(item.value, '$.source'),
        json_extract(item.value, '$.action'), json_extract(item.value, '$.resource'),
        cast(json_extract(item.value, '$.started_us') as bigint), cast(json_extract(item.value, '$.ended_us') as bigint)
        from json_each($2) as item");
    LIST = sql("select stage, source, action, resource, started_us, ended_us from provisioner_job_timings
        where job_id = $1 order by position");
}

/// Stores the steps of a job. Can be called once per job.
///
/// # Errors
/// A conflict when the job has steps already.
pub async fn insert(tx: &mut Tx, job: JobId, timings: &[Timing]) -> Result<()> {
    if timings.is_empty() {
        return Ok(());
    }
    let mut parameters = values![job];
    parameters.push(batch(Timing::COLUMNS, timings.iter().map(Timing::values)));
    tx.execute_pipelined(&INSERT, parameters, false).await
}

/// The steps of a job in the order they were reported.
pub async fn list(tx: &mut Tx, job: JobId) -> Result<Vec<Timing>> {
    tx.fetch(&LIST, values![job]).await?.iter().map(Timing::from_row).collect()
}
