//! The result of a job as messages of the protocol.

use std::borrow::Cow;

use bytes::Bytes;
use coder_wire::messages::provisionerd as pb;

use crate::output::mask::Masker;
use crate::terraform::command::start_failure;
use crate::terraform::steps::StepError;

/// The result of a successful job.
pub(crate) type JobResult = pb::completed_job::Type;

/// The result of a failed job.
#[derive(Debug, Default)]
pub(crate) struct JobFailure {
    message: String,
    details: Option<pb::failed_job::Type>,
}

impl JobFailure {
    /// A failure, with the part of it that depends on the kind of job.
    pub(super) const fn new(message: String, details: Option<pb::failed_job::Type>) -> Self {
        Self { message, details }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

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

    pub(super) fn into_request(self, job_id: &str) -> pb::FailedJob {
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
    const DISK_FULL: &str = "no space left on device";
    if error.to_ascii_lowercase().contains(DISK_FULL) {
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

pub(super) fn state_of(result: &Result<JobResult, JobFailure>) -> Bytes {
    match result {
        Ok(JobResult::WorkspaceBuild(build)) => build.state.clone(),
        Err(JobFailure { details: Some(pb::failed_job::Type::WorkspaceBuild(build)), .. }) => {
            build.state.clone()
        }
        _ => Bytes::new(),
    }
}

/// What the server must store of a build even when it rejects the result: the current state.
pub(super) fn failed_build(finished: &JobResult) -> Option<pb::failed_job::Type> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_text_and_an_error_is_never_empty() {
        let message = |text: &str| JobFailure::from_message(text.to_owned()).into_request("j");
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
