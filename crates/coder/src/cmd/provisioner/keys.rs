//! `coder provisioner keys create|list|delete`

use std::collections::BTreeMap;

use coder_api::keys::ProvisionerKey;
use coder_domain::tags;

use crate::context::Context;
use crate::output::Look;
use crate::table::{self, Column};
use crate::{args, env, prompt, remote};

/// Sub-commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a key and print its token, this once.
    Create(CreateArgs),
    /// List keys.
    #[command(alias = "ls")]
    List(ListArgs),
    /// Delete a key.
    #[command(alias = "rm")]
    Delete(DeleteArgs),
}

/// Arguments of `create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Name of the key.
    name: String,
    /// Tag of the daemons that join with it, as key=value; may be repeated.
    #[arg(short, long = "tag", env = env::PROVISIONERD_TAGS, value_delimiter = ',', value_name = "KEY=VALUE")]
    tags: Vec<String>,
    #[command(flatten)]
    organization: args::Organization,
}

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::Options,
}

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Name of the key.
    name: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

const COLUMNS: &[Column<ProvisionerKey>] = &[
    Column { name: "id", shown: false, cell: |key| key.id.to_string() },
    Column { name: "created at", shown: true, cell: |key| table::time(key.created_at) },
    Column { name: "name", shown: true, cell: |key| key.name.clone() },
    Column { name: "tags", shown: true, cell: |key| key.tags.to_string() },
];

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create(ctx, args).await,
        Command::List(args) => {
            let client = remote::connect(ctx)?;
            let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
            let keys = client.provisioner_keys(organization.id).await?;
            let empty = "There are no provisioner keys. Make one with: coder provisioner keys create <name>";
            table::print(&ctx.printer, &args.table, COLUMNS, &keys, empty)
        }
        Command::Delete(args) => delete(ctx, args).await,
    }
}

/// Reads `key=value` tags; the last of a name wins.
pub(crate) fn tags(list: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pairs = list.iter().map(|text| tags::parse_pair(text.trim()));
    Ok(pairs.collect::<Result<_, _>>()?)
}

async fn create(ctx: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let tags = tags(&args.tags)?;
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let token = client.create_provisioner_key(organization.id, &args.name, tags).await?;
    // The token is alone on the last line, so that scripts take it with `tail -n 1`.
    let name = ctx.printer.paint(Look::Bold, &args.name.to_lowercase());
    ctx.printer.data(&format!(
        "Provisioner key {name} is made. Keep its token in a safe place, it will not be shown again:"
    ));
    ctx.printer.data("");
    ctx.printer.data(token.expose());
    Ok(())
}

async fn delete(ctx: &Context, args: DeleteArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    if !args.yes {
        let question = format!("Delete provisioner key {:?}? Its daemons cannot join again.", args.name);
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    client.delete_provisioner_key(organization.id, &args.name).await?;
    ctx.printer.note(&format!("Provisioner key {:?} is deleted.", args.name));
    Ok(())
}
