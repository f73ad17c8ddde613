//! `coder organizations`: organizations, their members and roles.

mod change;
mod members;
mod roles;
mod show;

use coder_api::organizations::Organization;

use crate::context::Context;
use crate::terminal::table::{Column, Listed};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show an organization.
    Show(show::ShowArgs),
    /// List all organizations that you may see.
    #[command(alias = "ls")]
    List(show::ListArgs),
    /// Create an organization, of which you become a member.
    Create(change::CreateArgs),
    /// Change the name, description and icon of an organization.
    Edit(change::EditArgs),
    /// Delete an empty organization.
    #[command(alias = "rm")]
    Delete(change::DeleteArgs),
    /// Manage members.
    #[command(alias = "member", subcommand_required = true, arg_required_else_help = true)]
    Members {
        #[command(subcommand)]
        command: members::Command,
    },
    /// Show the available roles.
    #[command(alias = "role", subcommand_required = true, arg_required_else_help = true)]
    Roles {
        #[command(subcommand)]
        command: roles::Command,
    },
}

impl Listed for Organization {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("id", true, |organization| organization.id.to_string()),
        Column::text("name", true, |organization| organization.name.clone()),
        Column::text("display name", false, |organization| organization.display_name.clone()),
        Column::text("description", false, |organization| organization.description.clone()),
        Column::time("created at", false, |organization| Some(organization.created_at), ""),
        Column::text("default", true, |organization| organization.is_default.to_string()),
    ];
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Show(args) => show::show(ctx, args).await,
        Command::List(args) => show::list(ctx, args).await,
        Command::Create(args) => change::create(ctx, args).await,
        Command::Edit(args) => change::edit(ctx, args).await,
        Command::Delete(args) => change::delete(ctx, args).await,
        Command::Members { command } => members::run(ctx, command).await,
        Command::Roles { command } => roles::run(ctx, command).await,
    }
}
