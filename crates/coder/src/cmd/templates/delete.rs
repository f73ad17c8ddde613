//! Deletes templates: `coder templates delete`.

use crate::context::Context;
use crate::terminal::prompt;
use crate::{args, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of the templates.
    #[arg(required = true)]
    templates: Vec<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let found = remote::templates(&client, &organization, &args.templates).await?;
    if !args.yes {
        prompt::confirm(&ctx.printer, &format!("Delete {}?", args.templates.join(", ")), "pass --yes")?;
    }
    for template in found {
        client.delete_template(template.id).await?;
        ctx.printer.note(&format!("Template {:?} is deleted.", template.name));
    }
    Ok(())
}
