//! Deletes the session at the server and on this machine: `coder logout`.

use crate::context::Context;
use crate::remote;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    if !args.yes {
        prompt::confirm(&ctx.printer, "Log out?", "pass --yes")?;
    }
    // The files are removed even when the server cannot be reached.
    let ended = client.logout().await;
    ctx.directory.forget()?;
    // An ended session needs no logout.
    let ended =
        ended.or_else(
            |error| {
                if error.status().is_some_and(|status| status == 401) { Ok(()) } else { Err(error) }
            },
        );
    if let Err(error) = ended {
        ctx.printer.warn(&format!("the server did not end the session: {error}"));
        anyhow::bail!("the saved session is removed, but it may still be valid until it expires");
    }
    ctx.printer.note("You are logged out. To log in again: coder login");
    Ok(())
}
