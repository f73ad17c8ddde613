//! Shows the roles of an organization: `coder organizations roles show`.

use coder_api::users::{AssignableRole, Permission};

use crate::context::Context;
use crate::terminal::table::{self, Column, Listed};
use crate::{args, remote};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the roles of an organization.
    #[command(alias = "list")]
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Only these roles; default all.
    names: Vec<String>,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::TableOptions<AssignableRole>,
}

impl Listed for AssignableRole {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("name", true, |role| role.name.clone()),
        Column::optional(Column::text("display name", true, |role| role.display_name.clone())),
        Column::text("organization id", false, |role| {
            role.organization_id.map(|id| id.to_string()).unwrap_or_default()
        }),
        Column::optional(Column::text("site permissions", true, |role| count(&role.site_permissions))),
        Column::text("organization permissions", true, |role| count(&role.organization_permissions)),
        Column::optional(Column::text("user permissions", true, |role| count(&role.user_permissions))),
        Column::text("assignable", false, |role| role.assignable.to_string()),
        Column::text("built in", false, |role| role.built_in.to_string()),
    ];
}

fn count(permissions: &[Permission]) -> String {
    format!("{} permissions", permissions.len())
}

pub(super) async fn run(ctx: &Context, Command::Show(args): Command) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let mut roles = client.organization_roles(organization.id).await?;
    roles.retain(|role| {
        args.names.is_empty() || args.names.iter().any(|name| name.eq_ignore_ascii_case(&role.name))
    });
    table::print(&ctx.printer, &args.table, &roles, "No roles match.")
}
