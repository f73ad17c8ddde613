//! Takes daemons out of work and puts them back: `coder provisioner drain|undrain`.

use anyhow::Context as _;

use crate::context::Context;
use crate::{args, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the daemon, or its id; a name selects all daemons of that name.
    daemon: String,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn drain(ctx: &Context, args: Args) -> anyhow::Result<()> {
    set(ctx, args, true).await
}

pub(crate) async fn undrain(ctx: &Context, args: Args) -> anyhow::Result<()> {
    set(ctx, args, false).await
}

async fn set(ctx: &Context, args: Args, draining: bool) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let name = &args.daemon;
    let answer = if draining {
        client.drain(organization.id, name).await
    } else {
        client.undrain(organization.id, name).await
    };
    let answer = remote::found(answer)?.with_context(|| {
        if draining {
            format!("no daemon {name:?} was seen lately: see `coder provisioner list`")
        } else {
            format!("there is no daemon {name:?}: see `coder provisioner list --show-offline`")
        }
    })?;
    let many = if draining { answer.daemons.len() as u64 } else { answer.notified };
    let what = match (draining, many) {
        (true, 1) => {
            format!("Daemon {name:?} takes no more jobs; it leaves when it has finished what it has.")
        }
        (true, _) => format!(
            "{many} daemons of the name {name:?} take no more jobs; each leaves when it has finished."
        ),
        (false, 0) => {
            format!(
                "Daemon {name:?} is not drained when it connects again; one that is leaving still leaves."
            )
        }
        (false, 1) => format!("Daemon {name:?} takes jobs again."),
        (false, _) => format!("{many} daemons of the name {name:?} take jobs again."),
    };
    ctx.printer.note(&what);
    Ok(())
}
