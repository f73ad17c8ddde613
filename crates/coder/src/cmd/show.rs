//! `coder show`

use crate::context::Context;
use crate::resources::Persistent;
use crate::table::Format;
use crate::{remote, resources};

/// Arguments.
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
        ctx.printer.data(&serde_json::to_string_pretty(&workspace)?);
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
    if build.resources.is_empty() {
        ctx.printer.note("It has no resources now.");
    }
    // What an import found may be gone; then nothing is said about what stays.
    let found = client.version_resources(build.template_version_id).await.ok();
    let persistent = found.as_deref().map(Persistent::of);
    for line in resources::lines(&ctx.printer, &build.resources, persistent.as_ref(), true) {
        ctx.printer.data(&line);
    }
    Ok(())
}
