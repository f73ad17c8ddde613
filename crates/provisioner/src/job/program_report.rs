//! Reports which Terraform runs a job, in parallel with the job (docs/extensions.md, ReportProgram).

use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::connection::{CallError, JobClient};
use crate::terraform::binary::Binary;

/// A job that ends waits this long for its report.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The report of one job; dropping it aborts the call.
pub(crate) struct ProgramReport {
    job: JobClient,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ProgramReport {
    pub(crate) fn new(job: JobClient) -> Self {
        Self { job, task: Mutex::default() }
    }

    /// Starts the report. The job continues meanwhile, and does not depend on the result.
    pub(crate) fn start(&self, binary: &Binary) {
        let (job, product, version) =
            (self.job.clone(), binary.product().word(), binary.version().to_string());
        let reporting = tokio::spawn(async move {
            match job.report_program(product, &version).await {
                Ok(_) | Err(CallError::JobEnded(_)) => {}
                Err(error) => {
                    tracing::debug!(job_id = job.job_id(), %error, "the server rejects the report of the program");
                }
            }
        });
        let earlier = self.task.lock().replace(reporting);
        if let Some(earlier) = earlier {
            earlier.abort();
        }
    }

    /// Waits for the report for a limited time: the server rejects it after the job's end.
    pub(crate) async fn finish(&self) {
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && tokio::time::timeout(FINISH_TIMEOUT, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

impl Drop for ProgramReport {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut() {
            task.abort();
        }
    }
}
