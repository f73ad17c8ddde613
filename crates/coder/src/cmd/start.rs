//! Starts a workspace: `coder start`. `coder restart` uses parts of it.

use coder_api::builds::{
    BuildReason, CreateWorkspaceBuildRequest, Transition, WorkspaceBuild, WorkspaceStatus,
};
use coder_api::client::Client;
use coder_api::json::NameValue;
use coder_api::workspaces::{AutomaticUpdates, Workspace};
use coder_domain::ids::TemplateVersionId;

use super::build;
use crate::context::Context;
use crate::job::follow;
use crate::parameters::{self, PromptMode};
use crate::terminal::prompt;
use crate::{env, external_auth, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// Return as soon as the build is requested.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    values: Values,
    #[command(flatten)]
    build: build::BuildFlags,
}

/// Flags about parameters, also of `restart`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Values {
    /// Ask for all parameters again.
    #[arg(long, env = env::ALWAYS_PROMPT)]
    always_prompt: bool,
    /// Older name of --ephemeral-parameter.
    #[arg(long = "build-option", env = env::BUILD_OPTION, hide = true, value_name = "NAME=VALUE")]
    build_options: Vec<String>,
    /// Ask for values of ephemeral parameters.
    #[arg(long, alias = "build-options", env = env::PROMPT_EPHEMERAL_PARAMETERS)]
    prompt_ephemeral_parameters: bool,
    #[command(flatten)]
    flags: parameters::ParameterFlags,
}

impl Values {
    /// Whether all parameters are asked for again.
    pub(crate) const fn asks_for_all(&self) -> bool {
        self.always_prompt
    }
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    match workspace.latest_build.status {
        WorkspaceStatus::Running => {
            ctx.printer.note(&format!("Workspace {:?} is running already.", workspace.name));
            return Ok(());
        }
        WorkspaceStatus::Starting if args.no_wait => return Ok(()),
        WorkspaceStatus::Starting => {
            ctx.printer.note(&format!("Workspace {:?} is starting already.", workspace.name));
            return build::finish(ctx, &client, &workspace.latest_build).await;
        }
        _ => {}
    }
    let request = prepare(ctx, &client, &workspace, &args.values, args.yes).await?;
    let request = CreateWorkspaceBuildRequest { log_level: args.build.log_level(), ..request };
    let build = request_start(ctx, &client, &workspace, request).await?;
    if args.no_wait {
        follow::warn_unmatched(&ctx.printer, &build.job, &build.matched_provisioners);
        ctx.printer.note(&format!("Workspace {:?} is starting in the background.", workspace.name));
        return Ok(());
    }
    build::finish(ctx, &client, &build).await?;
    ctx.printer.note(&format!("Workspace {:?} is running.", workspace.name));
    Ok(())
}

/// Chooses the version and the parameter values. Asks for missing ones.
pub(crate) async fn prepare(
    ctx: &Context,
    client: &Client,
    workspace: &Workspace,
    values: &Values,
    yes: bool,
) -> anyhow::Result<CreateWorkspaceBuildRequest> {
    let follows =
        workspace.automatic_updates == AutomaticUpdates::Always || workspace.template_require_active_version;
    let latest = workspace.latest_build.template_version_id;
    let version = if follows { workspace.template_active_version_id } else { latest };
    prepare_with(ctx, client, workspace, version, values, yes).await
}

/// As [`prepare`], for a chosen version.
pub(crate) async fn prepare_with(
    ctx: &Context,
    client: &Client,
    workspace: &Workspace,
    version: TemplateVersionId,
    values: &Values,
    yes: bool,
) -> anyhow::Result<CreateWorkspaceBuildRequest> {
    let parameters = chosen(ctx, client, &workspace.latest_build, version, values, yes).await?;
    let mut request = CreateWorkspaceBuildRequest::new(Transition::Start);
    request.template_version_id = Some(version);
    request.rich_parameter_values = parameters;
    request.reason = Some(BuildReason::Cli);
    Ok(request)
}

async fn chosen(
    ctx: &Context,
    client: &Client,
    latest: &WorkspaceBuild,
    version: TemplateVersionId,
    values: &Values,
    yes: bool,
) -> anyhow::Result<Vec<NameValue>> {
    let earlier = client.build_parameters(latest.id).await?;
    let version = client.version(version).await?;
    let parameters = client.rich_parameters(version.id).await?;
    external_auth::connect(ctx, client, version.id).await?;
    let mode = if values.always_prompt { PromptMode::All } else { PromptMode::Missing };
    let mut flags = values.flags.clone();
    flags.ephemeral.extend(values.build_options.iter().cloned());
    flags.asks_for_ephemeral = values.prompt_ephemeral_parameters;
    parameters::resolve(&ctx.printer, &flags, &parameters, &earlier, mode, prompt::is_interactive() && !yes)
}

/// Requests the build. A template that requires its active version gets it (http-api 1.6).
pub(crate) async fn request_start(
    ctx: &Context,
    client: &Client,
    workspace: &Workspace,
    request: CreateWorkspaceBuildRequest,
) -> anyhow::Result<WorkspaceBuild> {
    let active = workspace.template_active_version_id;
    match build::request(client, workspace.id, &request).await {
        Err(error)
            if error.status().is_some_and(|status| status == 403)
                && request.template_version_id != Some(active) =>
        {
            ctx.printer.note("The template requires its active version, so the workspace is updated.");
            let request = CreateWorkspaceBuildRequest { template_version_id: Some(active), ..request };
            Ok(build::request(client, workspace.id, &request).await?)
        }
        other => Ok(other?),
    }
}
