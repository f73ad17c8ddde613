//! The common part of the commands that build a workspace: request the build, warn, follow, report.

use coder_api::builds::{CreateWorkspaceBuildRequest, WorkspaceBuild};
use coder_api::client::{Client, Error, JobLogTarget};
use coder_api::jobs::Status;
use coder_domain::ids::WorkspaceId;

use crate::context::Context;
use crate::job::follow;

/// Flags of commands that build.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct BuildFlags {
    /// Show Terraform's debug output; owners only, and only when the server allows it.
    #[arg(long = "provisioner-log-debug", hide = true)]
    pub(crate) debug: bool,
}

impl BuildFlags {
    /// The requested log level.
    pub(crate) fn log_level(self) -> String {
        if self.debug { "debug".to_owned() } else { String::new() }
    }
}

/// Requests a build.
pub(crate) async fn request(
    client: &Client,
    workspace: WorkspaceId,
    request: &CreateWorkspaceBuildRequest,
) -> Result<WorkspaceBuild, Error> {
    client.create_build(workspace, request).await
}

/// Follows a build to its end. Ctrl-C ends only the following: the build continues.
pub(crate) async fn finish(ctx: &Context, client: &Client, build: &WorkspaceBuild) -> anyhow::Result<()> {
    let of = JobLogTarget::Build(build.id);
    let job = tokio::select! {
        job = follow::follow(client, &ctx.printer, of, Some(&build.matched_provisioners)) => job?,
        _ = tokio::signal::ctrl_c() => {
            ctx.printer.note(&format!("The build goes on. See it with: coder logs {} -f", build.workspace_name));
            return Err(crate::exit::Canceled::Interrupted.into());
        }
    };
    if job.status == Status::Failed && ctx.printer.is_live() {
        ctx.printer.hint(&format!("the whole log: coder logs {}", build.workspace_name));
    }
    follow::outcome(
        &job,
        &format!("the {} of workspace {:?}", build.transition.as_str(), build.workspace_name),
    )
}
