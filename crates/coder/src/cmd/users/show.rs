//! Shows one user: `coder users show`.

use super::role_names;
use crate::context::Context;
use crate::remote;
use crate::terminal::output::strip_control;
use crate::terminal::table::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name, id, or `me`.
    user: String,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let user = remote::user(&client, &args.user).await?;
    if args.output == Format::Json {
        ctx.printer.json(&user)?;
        return Ok(());
    }
    let mut names = Vec::new();
    for id in &user.organization_ids {
        // A caller who may see the account may not see all of its organizations.
        let found = remote::found(client.organization(&id.to_string()).await)?;
        names.push(found.map_or_else(|| id.to_string(), |organization| organization.name));
    }
    let facts = [
        ("Username", user.username.clone()),
        ("Full name", user.name.clone()),
        ("Email", user.email.clone()),
        ("Status", user.status.to_string()),
        ("Created at", table::time(user.created_at)),
        ("Roles", role_names(&user)),
        ("Organizations", names.join(", ")),
    ];
    for (name, value) in facts {
        ctx.printer.data(format!("{name:<14}{}", strip_control(&value)).trim_end());
    }
    Ok(())
}
