//! `coder templates create`: the older name of push; it refuses a template that exists.

use anyhow::bail;

use super::push;
use crate::context::Context;
use crate::remote;

pub(crate) async fn run(ctx: &Context, args: push::Args) -> anyhow::Result<()> {
    ctx.printer.warn("`coder templates create` is the older name of `coder templates push`");
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization()).await?;
    let name = args.name()?;
    // Only a success means that the name is taken (http-api 1.6).
    if client.template_by_name(organization.id, &name).await.is_ok() {
        bail!("there is a template {name:?} already: push a new version with `coder templates push {name}`");
    }
    push::into(ctx, &client, &organization, &name, args).await
}
