//! The result of a job as messages of the protocol.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use coder_wire::messages::provisionerd as pb;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::cancel::{Shutdown, Stop};
use crate::connection::{CallError, JobClient};
use crate::output::mask::Masker;
use crate::terraform::command::start_failure;
use crate::terraform::steps::StepError;

/// Larger messages can never be sent (wire-protocol 3.3).
pub(crate) const MESSAGE_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// Time limit of the final report once the daemon must end (wire-protocol 5.7).
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a successful job.
pub(crate) type JobResult = pb::completed_job::Type;

/// The result of a failed job.
#[derive(Debug, Default)]
pub(crate) struct JobFailure {
    message: String,
    details: Option<pb::failed_job::Type>,
}

impl JobFailure {
    pub(crate) fn from_message(message: String) -> Self {
        Self { message, details: None }
    }

    /// A failed step of an import or a dry run, which leave nothing behind.
    pub(crate) fn from_step(prefix: &str, error: StepError) -> Self {
        Self::from_message(format!("{prefix}{}", error.message))
    }

    pub(crate) fn of_build(message: String, build: pb::failed_job::WorkspaceBuild) -> Self {
        Self { message, details: Some(pb::failed_job::Type::WorkspaceBuild(build)) }
    }

    pub(super) fn because(mut self, reason: &str) -> Self {
        self.message =
            if self.message.is_empty() { reason.to_owned() } else { format!("{reason}: {}", self.message) };
        self
    }

    /// Masks secrets in the message.
    pub(super) fn masked(mut self, masker: &Masker) -> Self {
        if let Cow::Owned(message) = masker.mask(&self.message) {
            self.message = message;
        }
        self
    }

    fn into_message(self, job_id: &str) -> pb::FailedJob {
        let error_code = error_code(&self.message);
        // An empty text would count as success (wire-protocol 5.6).
        let error =
            if self.message.is_empty() { "the job failed without a reason".to_owned() } else { self.message };
        let error = with_next_step(error);
        pb::FailedJob {
            job_id: job_id.to_owned(),
            error: crate::output::log_rows::strip_nul(&error).into_owned(),
            error_code: error_code.to_owned(),
            r#type: self.details,
        }
    }
}

/// Adds what to do about a full disk or a machine that starts no further program: their messages do not say it,
/// whether they come from the daemon, Terraform or a provider.
fn with_next_step(mut error: String) -> String {
    const FULL: &str = "no space left on device";
    if error.to_ascii_lowercase().contains(FULL) {
        error.push_str(
            "; the disk of the provisioner daemon is full: make room where its cache directory is, or start it with another --cache-dir",
        );
    }
    let step = start_failure::next_step(&error);
    error.push_str(&step);
    error
}

/// wire-protocol 5.8
fn error_code(message: &str) -> &'static str {
    if message.contains("missing parameter") {
        "MISSING_TEMPLATE_PARAMETER"
    } else if message.contains("required template variables") {
        "REQUIRED_TEMPLATE_VARIABLES"
    } else {
        ""
    }
}

/// Fails a job that was not started.
pub(crate) async fn fail_now(link: &JobClient, shutdown: &Shutdown, reason: &str) {
    // Nothing was started, so the result may be lost.
    let _ = report(link, shutdown, Err(JobFailure::from_message(reason.to_owned()))).await;
}

/// The state in a result.
pub(super) fn state_of(result: &Result<JobResult, JobFailure>) -> Bytes {
    match result {
        Ok(JobResult::WorkspaceBuild(build)) => build.state.clone(),
        Err(JobFailure { details: Some(pb::failed_job::Type::WorkspaceBuild(build)), .. }) => {
            build.state.clone()
        }
        _ => Bytes::new(),
    }
}

/// Reports until the server has answered or the daemon has to end. Returns false when the server may not know
/// the result.
pub(crate) async fn report(
    link: &JobClient,
    shutdown: &Shutdown,
    result: Result<JobResult, JobFailure>,
) -> bool {
    let job_id = link.job_id();
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
        reported = send_result(link, job_id, result) => reported,
    }
}

async fn send_result(link: &JobClient, job_id: &str, result: Result<JobResult, JobFailure>) -> bool {
    let failure = match result {
        Ok(finished) => match complete(link, job_id, finished).await {
            Ok(()) => {
                tracing::debug!(%job_id, "job completed");
                return true;
            }
            Err(_) if link.held().over().is_some() => return true,
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    tracing::debug!(%job_id, error = %failure.message, "job failed");
    let mut request = failure.into_message(job_id);
    let fits = request.encoded_len() <= MESSAGE_LIMIT_BYTES;
    if !fits {
        // The server keeps its latest state, possibly from the journal; this one stays on disk.
        tracing::error!(%job_id, "the state of a failed build is too large to be sent with the failure");
        request.r#type = None;
    }
    let result = link.fail_job(&request).await;
    let reported = fits && matches!(result, Ok(()) | Err(CallError::JobEnded(_)));
    match result {
        Ok(()) | Err(CallError::JobEnded(_)) => {}
        // "Already completed" after a lost connection looks the same; both end here.
        Err(error) => tracing::warn!(%job_id, %error, "the server rejects the job's failure"),
    }
    reported
}

async fn complete(link: &JobClient, job_id: &str, finished: JobResult) -> Result<(), JobFailure> {
    let failed_build = failed_build(&finished);
    let mut request = pb::CompletedJob { job_id: job_id.to_owned(), r#type: Some(finished) };
    if request.encoded_len() > MESSAGE_LIMIT_BYTES {
        upload_modules(link, &mut request).await?;
    }
    let size = request.encoded_len();
    if size > MESSAGE_LIMIT_BYTES {
        return Err(JobFailure {
            message: format!(
                "the job's result is {size} bytes long, and the limit is {MESSAGE_LIMIT_BYTES} bytes: make the template smaller"
            ),
            details: failed_build,
        });
    }
    link.complete_job(&request).await.map_err(|error| {
        let message = match error {
            CallError::Refused(text) => format!("internal provisionerserver error: {text}"),
            other => other.to_string(),
        };
        JobFailure { message, details: failed_build }
    })
}

/// What the server must store of a build even when it rejects the result: the current state.
fn failed_build(finished: &JobResult) -> Option<pb::failed_job::Type> {
    match finished {
        JobResult::WorkspaceBuild(build) => {
            Some(pb::failed_job::Type::WorkspaceBuild(pb::failed_job::WorkspaceBuild {
                state: build.state.clone(),
                timings: build.timings.clone(),
            }))
        }
        _ => None,
    }
}

/// Uploads the modules of an import separately when the result would be too large with them (wire-protocol
/// 5.9).
async fn upload_modules(link: &JobClient, request: &mut pb::CompletedJob) -> Result<(), JobFailure> {
    let Some(JobResult::TemplateImport(import)) = &mut request.r#type else { return Ok(()) };
    let files = std::mem::take(&mut import.module_files);
    if files.is_empty() {
        return Ok(());
    }
    link.upload_modules(&files)
        .await
        .map_err(|error| JobFailure::from_message(format!("upload the template's modules: {error}")))?;
    import.module_files_hash = Sha256::digest(&files).to_vec();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_text_and_an_error_is_never_empty() {
        let message = |text: &str| JobFailure::from_message(text.to_owned()).into_message("j");
        assert_eq!(
            message("x: required template variables need values").error_code,
            "REQUIRED_TEMPLATE_VARIABLES"
        );
        assert_eq!(message("missing parameter").error_code, "MISSING_TEMPLATE_PARAMETER");
        assert_eq!(message("else\0").error, "else");
        assert!(!message("").error.is_empty());
        let full = message("write main.tf: No space left on device (os error 28)").error;
        assert!(full.starts_with("write main.tf") && full.contains("--cache-dir"), "{full}");
    }
}
