//! `coder organizations roles show`

use coder_api::users::{AssignableRole, Permission};

use crate::context::Context;
use crate::table::{self, Column};
use crate::{args, remote};

/// Sub-commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the roles of an organization.
    #[command(alias = "list")]
    Show(ShowArgs),
}

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Only these; none named means all.
    names: Vec<String>,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::Options,
}

const COLUMNS: &[Column<AssignableRole>] = &[
    Column { name: "name", shown: true, cell: |role| role.name.clone() },
    Column { name: "display name", shown: true, cell: |role| role.display_name.clone() },
    Column {
        name: "organization id",
        shown: false,
        cell: |role| role.organization_id.map(|id| id.to_string()).unwrap_or_default(),
    },
    Column { name: "site permissions", shown: true, cell: |role| count(&role.site_permissions) },
    Column {
        name: "organization permissions",
        shown: true,
        cell: |role| count(&role.organization_permissions),
    },
    Column { name: "user permissions", shown: true, cell: |role| count(&role.user_permissions) },
    Column { name: "assignable", shown: false, cell: |role| role.assignable.to_string() },
    Column { name: "built in", shown: false, cell: |role| role.built_in.to_string() },
];

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
    table::print(&ctx.printer, &args.table, COLUMNS, &roles, "There is no such role.")
}
