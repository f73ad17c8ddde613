//! Shows the resources and agents of a workspace: `coder show`.

use coder_api::jobs::Status;

use crate::context::Context;
use crate::job::follow;
use crate::remote;
use crate::terminal::output::strip_control;
use crate::terminal::resource_tree;
use crate::terminal::resource_tree::Persistent;
use crate::terminal::table::Format;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    if args.output == Format::Json {
        ctx.printer.json(&workspace)?;
        return Ok(());
    }
    let build = &workspace.latest_build;
    ctx.printer.data(&format!(
        "{}/{}: {} (build {}, {} of template {}, version {})",
        workspace.owner_name,
        workspace.name,
        build.status.as_str(),
        build.build_number,
        build.transition.as_str(),
        workspace.template_name,
        build.template_version_name
    ));
    if let Some(program) = &build.job.program {
        ctx.printer.data(&format!("Built with {program}"));
    }
    if build.job.status == Status::Failed && !build.job.error.is_empty() {
        ctx.printer.data(&format!("Failed: {}", strip_control(follow::cause(&build.job.error))));
    }
    if build.resources.is_empty() {
        ctx.printer.note(&without_resources(build.job.status, &workspace.name));
    }
    // The resources of the import may have been removed. Then the output does not show which resources are persistent.
    let found = client.version_resources(build.template_version_id).await.ok();
    let persistent = found.as_deref().map(Persistent::of);
    for line in resource_tree::lines(&ctx.printer, &build.resources, persistent.as_ref(), true) {
        ctx.printer.data(&line);
    }
    Ok(())
}

/// Only a successful build has resources.
fn without_resources(status: Status, workspace: &str) -> String {
    match status {
        Status::Succeeded => "It has no resources now.".to_owned(),
        Status::Failed | Status::Canceled => format!(
            "What such a build leaves behind is in its state only (coder state pull {workspace}): start, stop or delete the \
             workspace to go on."
        ),
        _ => format!("Its resources are known when the build has ended: coder logs {workspace} -f"),
    }
}
