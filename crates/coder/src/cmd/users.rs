//! `coder users show`

use coder_api::users::User;

use crate::context::Context;
use crate::remote;
use crate::table::{self, Format};

/// Sub-commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show one user.
    Show(ShowArgs),
}

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// User name, id, or `me`.
    user: String,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

fn roles(user: &User) -> String {
    user.roles.iter().map(|role| role.name.as_str()).collect::<Vec<_>>().join(",")
}

pub(crate) async fn run(ctx: &Context, Command::Show(args): Command) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let user = client.user(&args.user).await?;
    if args.output == Format::Json {
        ctx.printer.data(&serde_json::to_string_pretty(&user)?);
        return Ok(());
    }
    let mut names = Vec::new();
    for id in &user.organization_ids {
        names.push(client.organization(&id.to_string()).await?.name);
    }
    let facts = [
        ("Username", user.username.clone()),
        ("Full name", user.name.clone()),
        ("Email", user.email.clone()),
        ("Status", user.status.to_string()),
        ("Created at", table::time(user.created_at)),
        ("Roles", roles(&user)),
        ("Organizations", names.join(", ")),
    ];
    for (name, value) in facts {
        ctx.printer.data(format!("{name:<14}{value}").trim_end());
    }
    Ok(())
}
