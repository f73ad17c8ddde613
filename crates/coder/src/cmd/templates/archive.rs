//! `coder templates archive`: archives unused versions.

use crate::context::Context;
use crate::terminal::prompt;
use crate::{args, plural, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of the templates; default all of the organization.
    templates: Vec<String>,
    /// Archive every version that no workspace uses, not only failed ones.
    #[arg(long)]
    all: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let mut templates = remote::templates(&client, &organization, &args.templates).await?;
    if args.templates.is_empty() {
        templates = client.templates("").await?;
        templates.retain(|template| template.organization_id == organization.id);
    }
    let names: Vec<_> = templates.iter().map(|template| template.name.as_str()).collect();
    if names.is_empty() {
        ctx.printer.note("There are no templates.");
        return Ok(());
    }
    if !args.yes {
        let which = if args.all { "unused" } else { "failed" };
        let question = format!("Archive the {which} versions of {}?", names.join(", "));
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    for template in &templates {
        let archived = client.archive_versions(template.id, args.all).await?.archived_ids.len();
        let versions = plural::count(archived, "version", "versions");
        ctx.printer.note(&format!("Archived {versions} of template {}.", template.name));
    }
    Ok(())
}
