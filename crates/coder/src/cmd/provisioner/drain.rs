//! `coder provisioner drain`

use anyhow::Context as _;

use crate::context::Context;
use crate::{args, remote};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the daemon, or its id; all daemons of that name drain.
    daemon: String,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let drained = remote::found(client.drain(organization.id, &args.daemon).await)?.with_context(|| {
        format!("no daemon {:?} was seen lately: see `coder provisioner list`", args.daemon)
    })?;
    let what = match drained.daemons.len() {
        1 => format!(
            "Daemon {:?} takes no more jobs; it leaves when it has finished what it has.",
            args.daemon
        ),
        many => format!(
            "{many} daemons of the name {:?} take no more jobs; each leaves when it has finished.",
            args.daemon
        ),
    };
    ctx.printer.note(&what);
    Ok(())
}
