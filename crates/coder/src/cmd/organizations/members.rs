//! Manages members of an organization: `coder organizations members list|add|remove|edit-roles`.

use coder_api::organizations::MemberWithUserData;

use crate::context::Context;
use crate::terminal::table::{self, Column, Listed};
use crate::{args, remote};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List members.
    #[command(alias = "ls")]
    List(args::List<MemberWithUserData>),
    /// Add a user.
    Add(UserArgs),
    /// Remove a member.
    #[command(alias = "rm")]
    Remove(UserArgs),
    /// Replace a member's roles; without names all are removed.
    EditRoles(RolesArgs),
}

/// Arguments of `add` and `remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct UserArgs {
    /// User name or id.
    user: String,
    #[command(flatten)]
    organization: args::Organization,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RolesArgs {
    /// User name or id.
    user: String,
    /// All roles that the member has from now on.
    roles: Vec<String>,
    #[command(flatten)]
    organization: args::Organization,
}

impl Listed for MemberWithUserData {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("username", true, |row| row.username.clone()),
        Column::text("name", false, |row| row.name.clone()),
        Column::text("email", false, |row| row.email.clone()),
        Column::text("user id", false, |row| row.member.user_id.to_string()),
        Column::text("organization id", false, |row| row.member.organization_id.to_string()),
        Column::time("created at", false, |row| Some(row.member.created_at), ""),
        Column::time("updated at", false, |row| Some(row.member.updated_at), ""),
        Column::text("organization roles", true, |row| {
            row.member.roles.iter().map(|role| role.name.as_str()).collect::<Vec<_>>().join(",")
        }),
    ];
}

pub(super) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    match command {
        Command::List(args) => {
            let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
            let rows = client.members(organization.id).await?;
            table::print(&ctx.printer, &args.table, &rows, "The organization has no members.")?;
        }
        Command::Add(args) => {
            let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
            let added = client.add_member(organization.id, &args.user).await;
            remote::known_user(&client, &args.user, added).await?;
            ctx.printer.note(&format!("{} belongs to {} now.", args.user, organization.name));
        }
        Command::Remove(args) => {
            let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
            let removed = client.remove_member(organization.id, &args.user).await;
            remote::known_member(&client, &organization, &args.user, removed).await?;
            ctx.printer.note(&format!("{} belongs to {} no more.", args.user, organization.name));
        }
        Command::EditRoles(args) => {
            let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
            let changed = client.update_member_roles(organization.id, &args.user, args.roles).await;
            remote::known_member(&client, &organization, &args.user, changed).await?;
            ctx.printer.note(&format!("The roles of {} in {} are changed.", args.user, organization.name));
        }
    }
    Ok(())
}
