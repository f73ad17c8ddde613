//! `coder users`: creating, showing and managing accounts.

mod change;
mod create;
mod list;
mod password;
mod roles;
mod show;

use coder_api::users::User;

use crate::context::Context;
use crate::terminal::table::{Column, Listed};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create an account; without --password a random password is generated and shown.
    Create(create::Args),
    /// List accounts.
    #[command(alias = "ls")]
    List(list::Args),
    /// Show one account.
    Show(show::Args),
    /// Suspend an account: it cannot be used until it is activated again.
    Suspend(change::StatusArgs),
    /// Activate a suspended account.
    Activate(change::StatusArgs),
    /// Delete an account that owns no workspaces.
    #[command(alias = "rm")]
    Delete(change::DeleteArgs),
    /// Replace an account's site roles.
    EditRoles(roles::Args),
    /// Set an account's password; its sessions end.
    ResetPassword(password::Args),
}

impl Listed for User {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("id", false, |user| user.id.to_string()),
        Column::text("username", true, |user| user.username.clone()),
        Column::text("name", false, |user| user.name.clone()),
        Column::text("email", true, |user| user.email.clone()),
        Column::text("roles", false, role_names),
        Column::optional(Column::time("created at", true, |user| Some(user.created_at), "")),
        Column::time("last seen at", false, |user| user.last_seen_at, "never"),
        Column::text("status", true, |user| user.status.to_string()),
    ];
}

fn role_names(user: &User) -> String {
    user.roles.iter().map(|role| role.name.as_str()).collect::<Vec<_>>().join(",")
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create::run(ctx, args).await,
        Command::List(args) => list::run(ctx, args).await,
        Command::Show(args) => show::run(ctx, args).await,
        Command::Suspend(args) => change::suspend(ctx, args).await,
        Command::Activate(args) => change::activate(ctx, args).await,
        Command::Delete(args) => change::delete(ctx, args).await,
        Command::EditRoles(args) => roles::run(ctx, args).await,
        Command::ResetPassword(args) => password::run(ctx, args).await,
    }
}
