//! `coder templates create`: push for a template that must not exist, with its settings.

use anyhow::bail;

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
    push::into(ctx, &client, &organization, &name, args.push, &args.schedules).await
}
