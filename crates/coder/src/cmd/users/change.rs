//! Suspends, activates and deletes users: `coder users suspend|activate|delete`.

use coder_api::users::{User, UserStatus};

use crate::context::Context;
use crate::remote;
use crate::terminal::{prompt, table};

/// Arguments of `suspend` and `activate`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// User name or id.
    user: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    table: table::TableOptions<User>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// User name or id.
    user: String,
}

pub(super) async fn suspend(ctx: &Context, args: StatusArgs) -> anyhow::Result<()> {
    set(ctx, args, UserStatus::Suspended).await
}

pub(super) async fn activate(ctx: &Context, args: StatusArgs) -> anyhow::Result<()> {
    set(ctx, args, UserStatus::Active).await
}

async fn set(ctx: &Context, args: StatusArgs, wanted: UserStatus) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let user = remote::user(&client, &args.user).await?;
    if user.status == wanted {
        ctx.printer.note(&format!("The account {} is {wanted} already.", user.username));
        return Ok(());
    }
    let (id, name) = (user.id, user.username.clone());
    table::print(&ctx.printer, &args.table, &[user], "")?;
    let (verb, done) =
        if wanted == UserStatus::Suspended { ("Suspend", "suspended") } else { ("Activate", "activated") };
    if !args.yes {
        prompt::confirm(&ctx.printer, &format!("{verb} this account?"), "pass --yes")?;
    }
    if wanted == UserStatus::Suspended {
        client.suspend_user(id).await?;
    } else {
        client.activate_user(id).await?;
    }
    ctx.printer.note(&format!("The account {name} is {done}."));
    Ok(())
}

pub(super) async fn delete(ctx: &Context, args: DeleteArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let user = remote::user(&client, &args.user).await?;
    client.delete_user(user.id).await?;
    ctx.printer.note(&format!("The account {} is deleted.", user.username));
    Ok(())
}
