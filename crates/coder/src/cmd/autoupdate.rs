//! `coder autoupdate`: whether each start takes the template's active version.

use coder_api::workspaces::AutomaticUpdates;

use crate::context::Context;
use crate::remote;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// always or never.
    #[arg(hide_possible_values = true)]
    policy: Policy,
    /// Accepted for compatibility: nothing is asked.
    #[arg(short, long, hide = true)]
    yes: bool,
}

/// When a start takes the active version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Policy {
    Always,
    Never,
}

impl Policy {
    /// As the server knows it.
    pub(crate) const fn wire(self) -> AutomaticUpdates {
        match self {
            Self::Always => AutomaticUpdates::Always,
            Self::Never => AutomaticUpdates::Never,
        }
    }
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    client.set_automatic_updates(workspace.id, args.policy.wire()).await?;
    let version = match args.policy {
        Policy::Always => "the active version of its template",
        Policy::Never => "the version that it has",
    };
    ctx.printer.note(&format!("Workspace {:?} starts with {version} from now on.", workspace.name));
    Ok(())
}
