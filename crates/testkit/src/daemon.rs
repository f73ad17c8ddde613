//! A scripted daemon: it joins over a real WebSocket with the real protocol, and runs no Terraform.

use anyhow::{Context, Result};
use coder_api::client::{Client as Api, Credential, ServeProvisionerDaemonRequest};
use coder_wire::daemon::Client;
use coder_wire::messages::provisioner::{LogLevel, Resource, RichParameter, TemplateVariable};
use coder_wire::messages::provisionerd::{
    AcquiredJob, CompletedJob, FailedJob, Log, LogSource, UpdateJobRequest, completed_job,
};
use coder_wire::mux::{Config, Session};
use coder_wire::ws::Socket;

/// The version that a fake daemon reports.
pub const BUILD_VERSION: &str = "v2.30.0+0000000";

/// A connected daemon. It disconnects when the last clone of its session is dropped.
#[derive(Clone, Debug)]
pub struct FakeDaemon {
    pub calls: Client,
}

impl FakeDaemon {
    /// Joins.
    ///
    /// # Errors
    /// The server's refusal, or how the connection failed.
    pub async fn join(
        api: &Api,
        serve: &ServeProvisionerDaemonRequest,
    ) -> Result<Self, coder_api::client::Error> {
        let upgraded = api.serve(serve).await?;
        Ok(Self::over(Socket::client(upgraded.stream)))
    }

    /// Joins the default organization with the client's session and no tags.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub async fn join_with_session(api: &Api, name: &str) -> Result<Self, coder_api::client::Error> {
        Self::join(api, &ServeProvisionerDaemonRequest::new(Credential::Session, name, BUILD_VERSION)).await
    }

    /// A daemon over a stream that has joined already.
    pub fn over(io: impl coder_wire::bytes::ByteStream) -> Self {
        Self { calls: Client::new(Session::client(io, Config::default())) }
    }

    /// Waits for a job without a limit.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn acquire(&self) -> Result<AcquiredJob> {
        let job = self.calls.acquire(std::future::pending()).await?;
        job.context("the wait was canceled without a request")
    }

    /// Waits for a job, reports on it as an import does, and completes it.
    ///
    /// # Errors
    /// How a call ended.
    pub async fn run_import(&self) -> Result<AcquiredJob> {
        let job = self.acquire().await?;
        self.calls.update_job(&import_update(&job.job_id, 25, 3)).await?;
        self.calls.complete_job(&import_result(&job.job_id)).await?;
        Ok(job)
    }

    /// Closes the session normally.
    pub async fn leave(&self) {
        self.calls.session().close().await;
    }
}

/// An UpdateJob with this many log lines and variables.
#[must_use]
pub fn import_update(job: &str, lines: usize, variables: usize) -> UpdateJobRequest {
    let line = |number: usize| Log {
        source: LogSource::Provisioner as i32,
        level: LogLevel::Info as i32,
        created_at: 1_780_000_000_000 + i64::try_from(number).unwrap_or_default(),
        stage: "Detecting persistent resources".to_owned(),
        output: format!("terraform_data.example: line {number} of the plan"),
    };
    let variable = |number: usize| TemplateVariable {
        name: format!("variable_{number}"),
        r#type: "string".to_owned(),
        default_value: "default".to_owned(),
        ..TemplateVariable::default()
    };
    UpdateJobRequest {
        job_id: job.to_owned(),
        logs: (0..lines).map(line).collect(),
        template_variables: (0..variables).map(variable).collect(),
        ..UpdateJobRequest::default()
    }
}

/// A CompleteJob of an import with one resource for start, one for stop, and one parameter.
#[must_use]
pub fn import_result(job: &str) -> CompletedJob {
    let resource = || Resource {
        name: "example".to_owned(),
        r#type: "terraform_data".to_owned(),
        ..Resource::default()
    };
    let parameter = RichParameter {
        name: "region".to_owned(),
        r#type: "string".to_owned(),
        default_value: "here".to_owned(),
        mutable: true,
        ..RichParameter::default()
    };
    CompletedJob {
        job_id: job.to_owned(),
        r#type: Some(completed_job::Type::TemplateImport(completed_job::TemplateImport {
            start_resources: vec![resource()],
            stop_resources: vec![resource()],
            rich_parameters: vec![parameter],
            plan: b"{}".as_slice().into(),
            ..completed_job::TemplateImport::default()
        })),
    }
}

/// A CompleteJob of a build with this state.
#[must_use]
pub fn build_result(job: &str, state: &'static [u8], resources: Vec<Resource>) -> CompletedJob {
    CompletedJob {
        job_id: job.to_owned(),
        r#type: Some(completed_job::Type::WorkspaceBuild(completed_job::WorkspaceBuild {
            state: state.into(),
            resources,
            ..completed_job::WorkspaceBuild::default()
        })),
    }
}

/// A FailJob without a type.
#[must_use]
pub fn failure(job: &str, error: &str) -> FailedJob {
    FailedJob { job_id: job.to_owned(), error: error.to_owned(), ..FailedJob::default() }
}
