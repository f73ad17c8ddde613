//! Reports the result of a job to the server until the server has acknowledged it (wire-protocol 5.6–5.9).

use std::time::Duration;

use coder_wire::messages::provisionerd as pb;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::outcome::{JobFailure, JobResult, failed_build};
use crate::cancel::{Shutdown, Stop};
use crate::connection::{CallError, JobClient};

/// Larger messages can never be sent (wire-protocol 3.3).
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Time limit of the final report once the daemon must end (wire-protocol 5.7).
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Fails a job that was not started.
pub(super) async fn fail_now(client: &JobClient, shutdown: &Shutdown, reason: &str) {
    // Nothing was started, so the result may be lost.
    let _ = report(client, shutdown, Err(JobFailure::from_message(reason.to_owned()))).await;
}

/// Reports until the server has answered or the daemon has to end. Returns false when the server may not know
/// the result.
pub(super) async fn report(
    client: &JobClient,
    shutdown: &Shutdown,
    result: Result<JobResult, JobFailure>,
) -> bool {
    let job_id = client.job_id();
    let deadline = async {
        shutdown.reached(Stop::Force).await;
        tokio::select! {
            () = tokio::time::sleep(FINAL_REPORT_TIMEOUT) => {}
            () = shutdown.reached(Stop::Kill) => {}
        }
    };
    tokio::select! {
        biased;
        () = deadline => {
            tracing::warn!(%job_id, "the daemon ends before the server knows the job's result");
            false
        }
        reported = send_result(client, job_id, result) => reported,
    }
}

async fn send_result(client: &JobClient, job_id: &str, result: Result<JobResult, JobFailure>) -> bool {
    let failure = match result {
        Ok(finished) => match complete(client, job_id, finished).await {
            Ok(()) => return true,
            Err(_) if client.hold().end_reason().is_some() => return true,
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    let mut request = failure.into_request(job_id);
    let fits = request.encoded_len() <= MAX_MESSAGE_BYTES;
    if !fits {
        // The server keeps its latest state, possibly from the journal; this one stays on disk.
        tracing::error!(%job_id, "the state of a failed build is too large to be sent with the failure");
        request.r#type = None;
    }
    let result = client.fail_job(&request).await;
    let reported = fits && matches!(result, Ok(()) | Err(CallError::JobEnded(_)));
    match result {
        Ok(()) | Err(CallError::JobEnded(_)) => {}
        // "Already completed" after a lost connection looks the same; both end here.
        Err(error) => tracing::warn!(%job_id, %error, "the server rejects the job's failure"),
    }
    reported
}

async fn complete(client: &JobClient, job_id: &str, finished: JobResult) -> Result<(), JobFailure> {
    let failed_build = failed_build(&finished);
    let mut request = pb::CompletedJob { job_id: job_id.to_owned(), r#type: Some(finished) };
    if request.encoded_len() > MAX_MESSAGE_BYTES {
        upload_modules(client, &mut request).await?;
    }
    let size = request.encoded_len();
    if size > MAX_MESSAGE_BYTES {
        let message = format!(
            "the job's result is {size} bytes long, and the limit is {MAX_MESSAGE_BYTES} bytes: make the template smaller"
        );
        return Err(JobFailure::new(message, failed_build));
    }
    client.complete_job(&request).await.map_err(|error| {
        let message = match error {
            CallError::Refused(text) => format!("internal provisionerserver error: {text}"),
            other => other.to_string(),
        };
        JobFailure::new(message, failed_build)
    })
}

/// Uploads the modules of an import separately when the result would be too large with them (wire-protocol
/// 5.9).
async fn upload_modules(client: &JobClient, request: &mut pb::CompletedJob) -> Result<(), JobFailure> {
    let Some(JobResult::TemplateImport(import)) = &mut request.r#type else { return Ok(()) };
    let files = std::mem::take(&mut import.module_files);
    if files.is_empty() {
        return Ok(());
    }
    client
        .upload_modules(&files)
        .await
        .map_err(|error| JobFailure::from_message(format!("upload the template's modules: {error}")))?;
    import.module_files_hash = Sha256::digest(&files).to_vec();
    Ok(())
}
