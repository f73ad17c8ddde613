//! Creates, edits and deletes organizations: `coder organizations create|edit|delete`.

use anyhow::{bail, ensure};
use coder_api::organizations::{CreateOrganizationRequest, UpdateOrganizationRequest};

use crate::context::Context;
use crate::remote;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Name of the organization.
    name: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EditArgs {
    /// Name or id of the organization.
    organization: String,
    /// New name of the organization.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// New name for people.
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// New description.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// New icon: a URL or a path on the server.
    #[arg(long, value_name = "URL")]
    icon: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Name or id of the organization.
    organization: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn create(ctx: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    if remote::found(client.organization(&args.name).await)?.is_some() {
        bail!("there is an organization {:?} already", args.name);
    }
    if !args.yes {
        let question = format!("Make the organization {:?}? You will belong to it.", args.name);
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    let request = CreateOrganizationRequest { name: args.name, ..CreateOrganizationRequest::default() };
    let made = client.create_organization(&request).await?;
    ctx.printer.note(&format!("The organization {} ({}) is made.", made.name, made.id));
    Ok(())
}

pub(super) async fn edit(ctx: &Context, args: EditArgs) -> anyhow::Result<()> {
    let request = UpdateOrganizationRequest {
        name: args.name.unwrap_or_default(),
        display_name: args.display_name.unwrap_or_default(),
        description: args.description,
        icon: args.icon,
    };
    ensure!(
        request != UpdateOrganizationRequest::default(),
        "nothing to change: pass --name, --display-name, --description or --icon"
    );
    let client = remote::connect(ctx)?;
    let found = remote::any_organization(&client, &args.organization).await?;
    let changed = client.update_organization(found.id, &request).await?;
    ctx.printer.note(&format!("The organization {} is changed.", changed.name));
    Ok(())
}

pub(super) async fn delete(ctx: &Context, args: DeleteArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let found = remote::any_organization(&client, &args.organization).await?;
    if !args.yes {
        let question = format!("Delete the organization {:?}?", found.name);
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    client.delete_organization(found.id).await?;
    ctx.printer.note(&format!("The organization {} is deleted.", found.name));
    Ok(())
}
