//! Replaces the roles of a user: `coder users edit-roles`.

use anyhow::{bail, ensure};

use crate::context::Context;
use crate::remote;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name or id.
    user: String,
    /// The complete new set, separated by commas; `member` alone removes all others.
    #[arg(long, required = true, value_delimiter = ',', value_name = "ROLES")]
    roles: Vec<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

/// The role that every user has.
const MEMBER_ROLE: &str = "member";

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let user = remote::user(&client, &args.user).await?;
    let before = client.user_roles(&args.user).await?.roles;
    let known = client.site_roles().await?;
    let known: Vec<_> = known.iter().map(|role| role.name.as_str()).collect();
    let mut wanted: Vec<_> = args.roles.iter().map(|role| role.trim().to_owned()).collect();
    ensure!(wanted.iter().all(|role| !role.is_empty()), "--roles is empty: pass at least {MEMBER_ROLE:?}");
    if let Some(unknown) = wanted.iter().find(|role| *role != MEMBER_ROLE && !known.contains(&role.as_str()))
    {
        bail!("there is no role {unknown:?}, choose from: {}", known.join(", "));
    }
    wanted.retain(|role| role != MEMBER_ROLE);
    if !args.yes {
        let show =
            |roles: &[String]| if roles.is_empty() { MEMBER_ROLE.to_owned() } else { roles.join(", ") };
        let question =
            format!("Change the roles of {} from {} to {}?", user.username, show(&before), show(&wanted));
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    client.update_user_roles(&args.user, wanted).await?;
    ctx.printer.note(&format!("The roles of {} are changed.", user.username));
    Ok(())
}
