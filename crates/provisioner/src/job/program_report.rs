//! Tells the server which program runs a job, beside the job's work (docs/extensions.md, ReportProgram).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::connection::{CallError, JobClient};
use crate::terraform::binary::Binary;

/// A job that ends waits this long for its report to arrive.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The report of one job; what is still on its way ends when it is dropped.
pub(crate) struct ProgramReport {
    job: JobClient,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ProgramReport {
    pub(crate) fn new(job: JobClient) -> Self {
        Self { job, task: Mutex::default() }
    }

    /// Begins to tell; the job goes on meanwhile, and is none the worse if nobody wants to know.
    pub(crate) fn start(&self, binary: &Binary) {
        let (job, product, version) =
            (self.job.clone(), binary.product().word(), binary.version().to_string());
        let reporting = tokio::spawn(async move {
            match job.report_program(product, &version).await {
                Ok(_) | Err(CallError::JobEnded(_)) => {}
                Err(error) => {
                    tracing::debug!(job_id = job.job_id(), %error, "the server does not take the report of the program");
                }
            }
        });
        let earlier = self.task.lock().unwrap_or_else(PoisonError::into_inner).replace(reporting);
        if let Some(earlier) = earlier {
            earlier.abort();
        }
    }

    /// Waits for the report to arrive, for a moment: after the job's end the server takes none.
    pub(crate) async fn finish(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && tokio::time::timeout(FINISH_TIMEOUT, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

impl Drop for ProgramReport {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}
