//! `coder provisioner undrain`

use anyhow::Context as _;

use crate::context::Context;
use crate::{args, remote};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the daemon, or its id; all daemons of that name take jobs again.
    daemon: String,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let name = &args.daemon;
    let undrained = remote::found(client.undrain(organization.id, name).await)?.with_context(|| {
        format!("there is no daemon {name:?}: see `coder provisioner list --show-offline`")
    })?;
    let what = match undrained.told {
        0 => {
            format!("Daemon {name:?} is not drained when it comes back; one that was told to leave does so.")
        }
        1 => format!("Daemon {name:?} takes jobs again."),
        many => format!("{many} daemons of the name {name:?} take jobs again."),
    };
    ctx.printer.note(&what);
    Ok(())
}
