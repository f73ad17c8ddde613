//! `coder templates create`: push for a template that must not exist, with its settings.

use anyhow::bail;
use coder_api::templates::CreateTemplateRequest;

use super::push;
use super::schedule_flags::ScheduleFlags;
use crate::context::Context;
use crate::remote;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    push: push::Args,
    #[command(flatten)]
    schedules: ScheduleFlags,
    /// Only administrators of templates may use the template.
    #[arg(long)]
    private: bool,
    /// Workspaces always start with the active version.
    #[arg(long)]
    require_active_version: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    ctx.printer.warn("`coder templates create` is the older name of `coder templates push`");
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.push.organization()).await?;
    let name = args.push.name()?;
    // Only a success means that the name is taken (http-api 1.6).
    if client.template_by_name(organization.id, &name).await.is_ok() {
        bail!("there is a template {name:?} already: push a new version with `coder templates push {name}`");
    }
    let mut settings = CreateTemplateRequest {
        name,
        disable_everyone_group_access: args.private,
        require_active_version: args.require_active_version,
        ..CreateTemplateRequest::default()
    };
    args.schedules.create(&mut settings)?;
    push::into(ctx, &client, &organization, settings, args.push).await
}
