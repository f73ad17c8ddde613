//! `coder templates versions list|promote|archive|unarchive`

use coder_api::versions::TemplateVersion;
use serde::Serialize;

use crate::context::Context;
use crate::terminal::prompt;
use crate::terminal::table::{self, Column, Listed};
use crate::{args, env, remote};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List a template's versions, oldest first.
    #[command(alias = "ls")]
    List(ListArgs),
    /// Make a version the active one, which new workspaces and updates use.
    Promote(PromoteArgs),
    /// Archive versions that neither the template nor a workspace uses.
    Archive(ArchiveArgs),
    /// Unarchive versions.
    Unarchive(ArchiveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PromoteArgs {
    /// Name of the template.
    #[arg(short, long, env = env::TEMPLATE_NAME, value_name = "NAME")]
    template: String,
    /// Name of the version.
    #[arg(long, env = env::TEMPLATE_VERSION, value_name = "NAME")]
    template_version: String,
    #[command(flatten)]
    organization: args::Organization,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ArchiveArgs {
    /// Name of the template.
    template: String,
    /// Names of the versions.
    #[arg(required = true)]
    versions: Vec<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Name of the template.
    template: String,
    /// Also archived versions.
    #[arg(long)]
    include_archived: bool,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::TableOptions<Row>,
}

#[derive(Serialize)]
struct Row {
    #[serde(rename = "TemplateVersion")]
    version: TemplateVersion,
    active: bool,
}

impl Listed for Row {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("id", false, |row| row.version.id.to_string()),
        Column::text("name", true, |row| row.version.name.clone()),
        Column::time("created at", true, |row| Some(row.version.created_at), ""),
        Column::optional(Column::text("created by", true, |row| row.version.created_by.username.clone())),
        Column::text("status", true, |row| row.version.job.status.to_string()),
        Column::text("active", true, |row| if row.active { "active".to_owned() } else { String::new() }),
        Column::text("archived", false, |row| {
            if row.version.archived { "archived".to_owned() } else { String::new() }
        }),
        Column::text("message", false, |row| row.version.message.clone()),
    ];
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(ctx, args).await,
        Command::Promote(args) => promote(ctx, args).await,
        Command::Archive(args) => archive(ctx, args, true).await,
        Command::Unarchive(args) => archive(ctx, args, false).await,
    }
}

async fn list(ctx: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let template = remote::template(&client, &organization, &args.template).await?;
    let versions = client.template_versions(template.id, args.include_archived).await?;
    let row = |version: TemplateVersion| Row { active: version.id == template.active_version_id, version };
    let rows: Vec<Row> = versions.into_iter().map(row).collect();
    table::print(&ctx.printer, &args.table, &rows, "The template has no versions.")
}

async fn promote(ctx: &Context, args: PromoteArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let template = remote::template(&client, &organization, &args.template).await?;
    let version = remote::version(&client, &template, &args.template_version).await?;
    client.set_active_version(template.id, version.id).await?;
    ctx.printer.note(&format!("Version {} of template {} is active.", version.name, template.name));
    Ok(())
}

async fn archive(ctx: &Context, args: ArchiveArgs, archived: bool) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let template = remote::template(&client, &organization, &args.template).await?;
    let mut versions = Vec::new();
    for name in &args.versions {
        versions.push(remote::version(&client, &template, name).await?);
    }
    if !args.yes {
        let verb = if archived { "Archive" } else { "Unarchive" };
        let question = format!("{verb} {} of template {}?", args.versions.join(", "), template.name);
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    for version in versions {
        if archived {
            client.archive_version(version.id).await?;
        } else {
            client.unarchive_version(version.id).await?;
        }
        let state = if archived { "archived" } else { "shown again" };
        ctx.printer.note(&format!("Version {} of template {} is {state}.", version.name, template.name));
    }
    Ok(())
}
