//! `coder publickey`: the public half of the key pair that workspaces use for Git.

use coder_api::paths;

use crate::context::Context;
use crate::remote;
use crate::terminal::output::Style;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make another key pair. Git hosts must be given the new public key.
    #[arg(long)]
    reset: bool,
    /// Reset without asking.
    #[arg(short = 'y', long)]
    yes: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    if args.reset && !args.yes {
        let question = "Make another key pair? Git hosts that know the present one will refuse your workspaces until you \
                        give them the new public key.";
        prompt::confirm(&ctx.printer, question, "--yes")?;
    }
    let key = if args.reset {
        client.regenerate_git_ssh_key(paths::ME).await?
    } else {
        client.git_ssh_key(paths::ME).await?
    };
    ctx.printer.note(
        "Your workspaces use this public key for Git over SSH. Add it to your account at the Git host:",
    );
    ctx.printer.note("");
    ctx.printer.data(&ctx.printer.paint(Style::Bold, key.public_key.trim()));
    Ok(())
}
